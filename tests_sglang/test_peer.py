"""Standard serving with a real engine: it writes what the model alone would write."""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

BENCHMARKS = str(Path(__file__).parents[1] / "benchmarks")
PROMPTS = [tuple(range(10, 30)), tuple(range(10, 25)), (7,)]
TOKENS = 12


def test_replies_are_the_models_own(models):
    """Asked for token by token, three at a time, over a cache that two of them share."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        read, replies = apart.submit(written, str(models["small"])).result(200.0)
    for prompt, reply in zip(PROMPTS, replies, strict=True):
        assert reply == greedy(models["small"], prompt)
    # With a radix cache no token is read twice; 15 of the first two prompts are the same.
    assert len(PROMPTS[0]) + TOKENS <= read
    assert read <= sum(map(len, PROMPTS)) + 3 * (TOKENS - 1)


def written(path):
    """Return how many tokens the engine read, and the replies that a dispatcher gets from it.

    It runs in a process of its own: SGLang shuts down by ending all that its process started.
    """
    sys.path.insert(0, BENCHMARKS)
    from peer import standard_serving

    from trmodel.runtime.bench.target import wait_for
    from trmodel.runtime.engines.sglang.environment import prepare_cpu

    prepare_cpu()
    options = {"device": "cpu", "dtype": "float32", "context_length": 128, "max_total_tokens": 2048}
    with standard_serving(
        {"small": path}, lambda seed: iter([(0, True)] * (TOKENS + 1)), options, radix=True
    ) as dispatcher:
        whole, ask = {}, dispatcher.engines[0]

        async def kept(ids):
            token, read = await ask(ids)
            whole[tuple(ids)] = token
            return token, read

        dispatcher.engines[0] = kept
        ends = []
        for prompt in PROMPTS:
            dispatcher.ask(prompt, TOKENS, 0, lambda _, finish: finish and ends.append(finish))
        wait_for(lambda: len(ends) == len(PROMPTS), 60.0, "replies have not ended")
        counted = dispatcher.stats().counted[0]
        read = counted["extended"] + sum(counted["transitions"])
    assert ends == ["length"] * len(PROMPTS)
    replies = []
    for prompt in PROMPTS:
        ids = list(prompt)
        for _ in range(TOKENS):
            ids.append(whole[tuple(ids)])
        replies.append(ids[len(prompt) :])
    return read, replies


def greedy(path, prompt):
    """Return the reply of transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    ids = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(TOKENS):
            following = model(ids).logits[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, following], dim=1)
    return ids[0, len(prompt) :].tolist()
