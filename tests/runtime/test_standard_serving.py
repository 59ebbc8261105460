"""Standard serving, the executor's peer: the same decisions, whole contexts, the same figures."""

import asyncio
import sys
import threading
from itertools import islice
from pathlib import Path

import pytest

from trmodel.errors import TrmodelError
from trmodel.runtime.bench.loop import PROMPT, ClosedLoop, asked_alike, asked_in_steady_state
from trmodel.runtime.bench.point import measure_point
from trmodel.runtime.bench.running import running
from trmodel.runtime.bench.target import wait_for
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.plan import make_plan
from trmodel.runtime.policies.bernoulli import Bernoulli

ROOT = Path(__file__).parents[2]
CONFIG = ServerConfig(profile="a100-paper", max_live=4, thresholds="eager")


@pytest.fixture
def peer(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import peer

    yield peer
    del sys.modules["peer"]


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    runs = threading.Thread(target=made.run_forever)
    runs.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    runs.join()
    made.close()


class Engine:
    """Its tokens tell the model; it remembers what it was asked."""

    def __init__(self, model, takes_s=0.0):
        self.model, self.takes_s, self.asked = model, takes_s, []

    async def __call__(self, ids):
        self.asked.append(tuple(ids))
        await asyncio.sleep(self.takes_s)
        return self.model, len(ids)


def bernoulli():
    system = make_plan(CONFIG).system
    return Bernoulli(system.transition_probability.tolist(), system.committed_tokens.tolist())


def replies(target, asked):
    """Ask for all at once and wait for their ends."""
    ends = []
    for prompt, tokens, seed in asked:
        target.ask(prompt, tokens, seed, lambda _, finish: finish and ends.append(finish))
    wait_for(lambda: len(ends) == len(asked), 20.0, "replies have not ended")
    return ends


def transitions(target):
    return [target.stats().counted[model]["transitions"] for model in range(2)]


def test_it_draws_the_decisions_of_the_executor(peer, loop):
    """Requests with the same seeds go the same ways, to the last step."""
    asked = list(islice(asked_alike(32, seed=5), 4))
    dispatcher = peer.Dispatcher(
        ("small", "large"), [Engine(0), Engine(1)], peer.steps_of(bernoulli()), loop
    )
    assert replies(dispatcher, asked) == ["length"] * 4
    with running(CONFIG) as executor:
        assert replies(executor, asked) == ["length"] * 4
        counted = transitions(dispatcher)
        wait_for(lambda: transitions(executor) == counted, 5.0, f"never {counted}")
    assert counted[0][1] > 0
    committed = [dispatcher.stats().counted[model]["committed"] for model in range(2)]
    assert sum(map(sum, committed)) == 4 * 32


def test_engines_read_the_prompt_and_what_was_committed(peer, loop):
    steps = [(0, True), (0, False), (1, True), (0, True)]
    engines = [Engine(7), Engine(8)]
    dispatcher = peer.Dispatcher(
        ("small", "large"), engines, lambda _: iter([*steps, steps[0]]), loop
    )
    assert replies(dispatcher, [((1, 2), 3, 0)]) == ["length"]
    assert engines[0].asked == [(1, 2), (1, 2, 7), (1, 2, 7, 8)]
    assert engines[1].asked == [(1, 2, 7)]
    # Beyond one token for each request: what a kept cache would have saved.
    assert [dispatcher.stats().counted[model]["extended"] for model in range(2)] == [1 + 2 + 3, 2]


def test_it_is_measured_as_the_executor_is(peer, loop):
    engines = [Engine(0, takes_s=0.005), Engine(1, takes_s=0.01)]
    dispatcher = peer.Dispatcher(("small", "large"), engines, peer.steps_of(bernoulli()), loop)
    point = measure_point(
        dispatcher, 4, (1, 1), seconds=1.0, warm_up=0.2, requests=asked_in_steady_state(4, 16, 0)
    )
    # 5 ms, and in 35 % of the cases the large model's 10 ms besides, for each of 4 requests.
    assert 0.5 * 4 / 0.0085 < point["throughput_tok_s"] < 4 / 0.0085
    assert point["throughput_tok_s"] == pytest.approx(point["committed_tok_s"], rel=0.1)
    assert point["transition_probability"][0][1] == pytest.approx(0.35, abs=0.1)
    assert dispatcher.stats().n == 0


def test_an_engine_that_fails_fails_the_measurement(peer, loop):
    async def broken(ids):
        raise RuntimeError("out of memory")

    dispatcher = peer.Dispatcher(("small",), [broken], lambda _: iter([(0, True)] * 9), loop)
    with ClosedLoop(dispatcher, 1, 4) as load:
        wait_for(lambda: load.failed is not None, 5.0, "nobody noticed")
    with pytest.raises(TrmodelError, match="out of memory"):
        load.check()


def test_a_steady_state_has_replies_of_all_stages():
    """What is left differs by the first N, and prompt and reply have the same length in all."""
    asked = list(islice(asked_in_steady_state(4, 100, seed=20), 6))
    assert [tokens for _, tokens, _ in asked] == [25, 50, 75, 100, 100, 100]
    assert {len(prompt) + tokens for prompt, tokens, _ in asked} == {len(PROMPT) + 4 + 100}
    assert len({prompt[:8] for prompt, _, _ in asked}) == 6
    assert [seed for _, _, seed in asked] == [20, 21, 22, 23, 24, 25]
