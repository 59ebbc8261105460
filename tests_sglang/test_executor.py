"""The whole executor with real models: what it says equals what the models say from scratch."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from real_server import Client, config_of, plain_model, prompts, python_path, settled, started

CLOSE = 1e-3


SCRIPT = [0, 1, 1, 0, 0, 0, 1, 0]
OF_THREE = [1, 2, 2, 0, 2, 1, 0, 0]
"""Where the small model's token is followed by another one it is dropped."""


def test_every_step_equals_a_pass_from_scratch(models, tmp_path, monkeypatch):
    names = ["small", "middle", "large"]
    monkeypatch.setenv("PYTHONPATH", python_path())
    config = config_of(
        {name: models[name] for name in names},
        policy="recorded_steps:Recorded",
        policy_options={"folder": str(tmp_path), "script": OF_THREE, "drop_on_leaving": [0]},
    )
    with started(config) as front:
        client = Client(front)
        places = [client.ask(prompt, 24)[0] for prompt in prompts(12)]
        client.wait(places)
        assert settled(front) == [(0, 0)] * 3
    references = [plain_model(models[name]) for name in names]
    seen, who = 0, set()
    for file in tmp_path.glob("*.pt"):
        found = torch.load(file)
        who.add(found["model"])
        for token_ids, logits in zip(found["token_ids"], found["logits"], strict=True):
            expected = references[found["model"]](torch.tensor([token_ids])).logits[0, -1]
            assert (logits - expected).abs().max() < CLOSE
            seen += 1
    assert seen >= 12 * 24
    assert who == {0, 1, 2}
    for place, prompt in zip(places, prompts(12), strict=True):
        assert client.tokens[place] == by_script(references, prompt, OF_THREE, [0], 24)


def by_script(references, prompt, script, drop_on_leaving, tokens):
    """Write a reply with plain models, one pass from scratch for every step."""
    token_ids, model = list(prompt), 0
    for step in range(10_000):
        token = int(references[model](torch.tensor([token_ids])).logits[0, -1].argmax())
        after = script[step % len(script)]
        if after == model or model not in drop_on_leaving:
            token_ids.append(token)
        model = after
        if len(token_ids) - len(prompt) == tokens:
            break
    return token_ids[len(prompt) :]


def test_always_the_large_model_says_what_sglang_says(models):
    config = config_of(
        {"small": models["small"], "large": models["large"]},
        policy="scripted",
        policy_options={"script": [1], "drop_on_leaving": [0]},
    )
    asked = prompts(8, seed=3)
    with started(config) as front:
        client = Client(front)
        places = [client.ask(prompt, 32)[0] for prompt in asked]
        client.wait(places)
    alone = subprocess.run(
        [sys.executable, Path(__file__).parent / "sglang_alone.py", models["large"], "32"],
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=180.0,
    )
    assert [client.tokens[place] for place in places] == json.loads(alone.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def pair(models):
    """The small model in both places, whose caches are too small for all requests at once."""
    config = config_of(
        {"small": models["small"], "large": models["small"]},
        policy="scripted",
        policy_options={"script": SCRIPT, "drop_on_leaving": [0]},
        kv_tokens=2048,
    )
    config = config.model_copy(
        update={
            "models": {
                name: model.model_copy(update={"kv_tokens": 150})
                for name, model in config.models.items()
            }
        }
    )
    with started(config) as front:
        yield front


def test_no_cache_is_left_after_two_thousand_requests_with_aborts(pair):
    client, draw = Client(pair), random.Random(7)
    ended = 0
    while ended < 2000:
        places = [client.ask(prompt, draw.randrange(1, 12)) for prompt in prompts(40, seed=ended)]
        time.sleep(draw.random() * 0.05)
        for _, number in draw.sample(places, 13):
            pair.abort(number)
        kept = [place for place, number in places if number in pair._listeners]
        client.wait(kept)
        ended += len(places)
    assert settled(pair) == [(0, 0), (0, 0)]
    assert sum(finish == "length" for finish in client.finish.values()) > 1000


def test_replies_are_the_same_when_caches_are_dropped_for_want_of_room(pair, models):
    client = Client(pair)
    asked = prompts(8, seed=11)
    places = [client.ask(prompt, 40)[0] for prompt in asked]
    client.wait(places)
    references = [plain_model(models["small"])] * 2
    for place, prompt in zip(places, asked, strict=True):
        assert client.tokens[place] == by_script(references, prompt, SCRIPT, [0], 40)


def test_sampled_replies_come_again_with_their_seed(pair):
    client = Client(pair)
    asked = [client.ask([5, 6, 7], 20, temperature=1.0, top_p=0.9, seed=s)[0] for s in (1, 2, 1)]
    client.wait(asked)
    first, second, again = (client.tokens[place] for place in asked)
    assert first == again != second


@pytest.mark.parametrize("model", [0, 1])
def test_a_killed_subserver_costs_no_token(pair, models, model):
    client = Client(pair)
    asked = prompts(6, seed=20 + model)
    places = [client.ask(prompt, 60)[0] for prompt in asked]
    while sum(map(len, client.tokens.values())) < 60:
        time.sleep(0.01)
    os.kill(pair._processes[model].pid, signal.SIGKILL)
    client.wait(places, timeout_s=120.0)
    references = [plain_model(models["small"])] * 2
    for place, prompt in zip(places, asked, strict=True):
        assert client.tokens[place] == by_script(references, prompt, SCRIPT, [0], 60)
    assert settled(pair) == [(0, 0), (0, 0)]
