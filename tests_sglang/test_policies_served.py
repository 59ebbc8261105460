"""Every policy in a whole server with real models, against replies written with plain ones."""

import os
import signal
import statistics
import time
from functools import cached_property, partial

import pytest
from by_seed import EACH
from plain_replies import CLOSE, Writer, by_score, glimprouter, mixture, whole_reply, written
from policy_references import RULES, entropy
from policy_traces import routers
from real_server import Client, config_of, plain_model, prompts, python_path, started

from trmodel.runtime.messages import Sampling
from trmodel.runtime.policies.recording import read_steps

REQUESTS, TOKENS = 8, 40
STOP_IDS = (11, 12)
TOP = 100
"""Logits that R2R reads."""
STEPS = {
    "boundary": [token for token in range(3, 1024) if token % 9 == 0],
    "newline": [token for token in range(3, 1024) if token % 3 == 1],
    "step_tokens": 6,
    "top": 20,
    "think_end": [token for token in range(3, 1024) if token % 128 == 5],
}
"""Options of GlimpRouter: random models write tokens that end a step now and then."""
POLICIES = [*RULES, "glimprouter", "request-level", "ensemble"]


class Case:
    """Requests of the k-th policy, and what plain models answer.

    Parameters
    ----------
    write
        The policy, as `plain_replies` has it.
    """

    def __init__(self, k, models, write):
        self.models, self.write = models, write
        self.prompts = prompts(REQUESTS, seed=k)
        self.sampling = [
            Sampling(TOKENS, 0.8 * (i % 2), seed=k * EACH + i, stop_ids=STOP_IDS)
            for i in range(REQUESTS)
        ]

    def ask(self, client, i):
        """Ask for the i-th reply; return its place."""
        return client.ask_as(self.prompts[i], self.sampling[i])[0]

    @cached_property
    def expected(self):
        return [
            written(self.models, prompt, sampling, self.write)
            for prompt, sampling in zip(self.prompts, self.sampling, strict=True)
        ]

    def check_replies(self, replies):
        """Compare tokens, up to where the last digits of some number would decide."""
        for tokens, one in zip(replies, self.expected, strict=True):
            clear = sum(step["committed"] for step in one.steps[: one.clear])
            assert tokens[:clear] == one.tokens[:clear]
            if one.clear == len(one.steps):
                assert tokens == one.tokens

    def check_steps(self, steps):
        """Compare likewise who wrote each token, what was dropped, and by what score."""
        compared = 0
        for sampling, one in zip(self.sampling, self.expected, strict=True):
            found = [step for step in steps if step["seed"] == sampling.seed]
            if one.clear == len(one.steps):
                assert len(found) == len(one.steps)
            for step, wanted in list(zip(found, one.steps, strict=False))[: one.clear]:
                score = wanted.get("score", -1.0)
                assert (step["model"], step["committed"]) == (wanted["model"], wanted["committed"])
                assert abs(step.get("score", -1.0) - score) < CLOSE
                compared += 1
        assert compared > 0.7 * sum(len(one.steps) for one in self.expected)

    @property
    def shares(self):
        """Of the tokens, how many each model has written."""
        steps = [step for one in self.expected for step in one.steps]
        by_model = [
            sum(step["committed"] for step in steps if step["model"] == i)
            for i in range(len(self.models))
        ]
        return [tokens / sum(by_model) for tokens in by_model]


def middle_score(score, small):
    """Return the median score of what the small model says of its own text."""
    scores = []
    for prompt in prompts(2, seed=99):
        writer = Writer([small], prompt, Sampling(10**6, 1.0, seed=7))
        for _ in range(20):
            token, said = writer.ask(0)
            scores.append(score(said))
            writer.keep(token)
    return statistics.median(scores)


def all_of_two(folder, plain):
    """Return the options of each policy of two models, and its rule; write what it reads."""
    small = plain[0]
    hidden, V = small.config.hidden_size, small.config.vocab_size
    routers.make(folder, hidden, V, TOP)
    states = {
        "r-stitch": None,
        "citer": routers.citer(hidden),
        "co-llm": routers.co_llm(hidden, V),
        "r2r": routers.r2r(hidden, TOP),
    }
    found = {}
    for name, state in states.items():
        threshold = middle_score(partial(RULES[name][0], state), small)
        weights = {} if state is None else {"weights": str(folder / f"{name}.safetensors")}
        rule = partial(by_score, name=name, threshold=threshold, state=state)
        found[name] = ({"threshold": threshold, **weights}, rule)
    threshold = middle_score(lambda said: entropy(sorted(said["logits"])[-STEPS["top"] :]), small)
    for name, rule, options in (
        ("glimprouter", glimprouter, {"threshold": threshold, **STEPS}),
        ("request-level", whole_reply, {"share": 0.3, "longer_than": 12}),
        ("ensemble", mixture, {"weights": [2, 1]}),
    ):
        found[name] = (options, partial(rule, **options))
    return found


@pytest.fixture(scope="module")
def pair(models, tmp_path_factory):
    """A server of two models in which all policies have requests: itself, and those."""
    folder = tmp_path_factory.mktemp("served")
    paths = {name: models[name] for name in ("small", "middle")}
    plain = [plain_model(path) for path in paths.values()]
    made = all_of_two(folder, plain)
    for name in made:
        (folder / name).mkdir()
    cases = {name: Case(k, plain, rule) for k, (name, (_, rule)) in enumerate(made.items())}
    options = {name: given for name, (given, _) in made.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", python_path())
        config = config_of(
            paths,
            policy="by_seed:BySeed",
            policy_options={"policies": options, "folder": str(folder)},
            max_live=12,
        )
        with started(config) as front:
            yield front, folder, cases


def ask_all(client, cases):
    """Ask for all replies, one of every policy after the other; return their places."""
    places = {name: [] for name in cases}
    for i in range(REQUESTS):
        for name, case in cases.items():
            places[name].append(case.ask(client, i))
    return places


@pytest.fixture(scope="module")
def served(pair):
    """What came of them: of each policy the replies and the steps."""
    front, folder, cases = pair
    client = Client(front)
    places = ask_all(client, cases)
    client.wait([place for each in places.values() for place in each], timeout_s=120.0)
    return {
        name: ([client.tokens[place] for place in places[name]], read_steps(folder / name))
        for name in cases
    }


@pytest.mark.parametrize("name", POLICIES)
def test_replies_and_their_writers_are_those_of_plain_models(name, pair, served):
    case, (replies, steps) = pair[2][name], served[name]
    case.check_replies(replies)
    case.check_steps(steps)
    assert min(case.shares) > 0.1


def test_after_all_models_died_every_policy_decides_as_if_nothing_had_been(pair, served):
    front, _, cases = pair
    client = Client(front)
    places = ask_all(client, cases)
    total = sum(len(tokens) for replies, _ in served.values() for tokens in replies)
    while sum(map(len, client.tokens.values())) < total // 3:
        time.sleep(0.01)
    for process in list(front._processes.values()):
        os.kill(process.pid, signal.SIGKILL)
    client.wait([place for each in places.values() for place in each], timeout_s=120.0)
    assert front.desk.rebuilt >= 6
    for name, case in cases.items():
        case.check_replies([client.tokens[place] for place in places[name]])


def test_a_mixture_of_three_models_is_that_of_plain_ones(models, tmp_path):
    weights = [3, 2, 1]
    options = {"policy": "ensemble", "options": {"weights": weights}, "folder": str(tmp_path)}
    paths = {"one": models["small"], "two": models["middle"], "three": models["small"]}
    plain = [plain_model(path) for path in paths.values()]
    case = Case(0, plain, partial(mixture, weights=weights))
    with started(config_of(paths, policy="recording", policy_options=options)) as front:
        client = Client(front)
        places = [case.ask(client, i) for i in range(REQUESTS)]
        client.wait(places)
    case.check_replies([client.tokens[place] for place in places])
    case.check_steps(read_steps(tmp_path))
    assert case.shares[0] > case.shares[1] > case.shares[2] > 0.05
