"""Timing an engine's steps: what requests hold in them, and the process that answers."""

import io
import queue

import msgspec
import pytest

from trmodel.errors import TrmodelError
from trmodel.runtime.bench.engine_process import EngineProcess
from trmodel.runtime.bench.engine_times import (
    FEWEST_STEPS,
    GROWTH,
    WARM_UP_STEPS,
    Ask,
    Stepper,
    Times,
    serve,
)
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.plan import make_plan
from trmodel.runtime.policies import Scripted
from trmodel.runtime.request import StepResult


class Recorder:
    """An engine that keeps its caches as a real one does, and notes what every step reads."""

    def __init__(self):
        self.held, self.steps = {}, []

    def occupy(self, requests):
        for request in requests:
            assert len(request.token_ids) > request.anchor
            self.held[request.id] = request.token_ids[: request.anchor]

    def step(self, batch):
        read = []
        for request in batch.requests:
            held = self.held.get(request.id, [])[: request.anchor]
            assert held == request.token_ids[: len(held)]
            read.append((len(held), len(request.token_ids) - len(held)))
            self.held[request.id] = list(request.token_ids)
        self.steps.append(read)
        return StepResult([7] * len(batch))

    def release(self, request):
        self.held.pop(request, None)


@pytest.fixture
def engine():
    return Recorder()


@pytest.fixture
def stepper(engine):
    return Stepper(0, 2, engine, Scripted([1]))


@pytest.mark.parametrize(("batch", "context", "new"), [(1, 10, 1), (3, 50, 1), (2, 40, 5)])
def test_every_step_is_of_the_batch_the_context_and_the_new_tokens_asked_for(
    stepper, engine, batch, context, new
):
    times = stepper.run(Ask(batch, context, new, 0.0))
    assert len(times.step_ms) == len(times.route_ms) == FEWEST_STEPS
    assert len(engine.steps) == FEWEST_STEPS + WARM_UP_STEPS
    for step in engine.steps:
        assert len(step) == batch
        for held, read in step:
            assert 1 <= read <= 2 * new - 1
            assert context <= held <= context + GROWTH + 2 * new
    brought = [read for step in engine.steps for _, read in step]
    assert sum(brought) == new * len(brought), "on average, exactly, over pairs of steps"
    assert len(set(brought)) > (new > 1)


def test_a_context_that_grew_is_cut_back(stepper, engine):
    for _ in range(3):
        stepper.run(Ask(2, 100, 16, 0.0))
    held = [held for step in engine.steps for held, _ in step]
    assert min(held) == 100
    assert 100 < max(held) <= 100 + GROWTH + 2 * 16


def test_contexts_and_batches_follow_each_other_in_any_order(stepper, engine):
    for batch, context, new in [(4, 200, 1), (1, 30, 4), (2, 90, 1), (4, 30, 2)]:
        engine.steps.clear()
        stepper.run(Ask(batch, context, new, 0.0))
        assert [held for held, _ in engine.steps[0]] == [context] * batch
        assert len(engine.held) == batch, "those that are not in the batch hold nothing"


def test_a_step_that_fails_is_no_time(stepper, engine):
    engine.step = lambda batch: StepResult([0] * len(batch), {}, {0: "out of memory"})
    with pytest.raises(TrmodelError, match="out of memory"):
        stepper.run(Ask(1, 10, 1, 0.0))


def test_commands_are_answered_in_order(stepper):
    answers = []
    asks = [Ask(1, 10, 1, 0.0), Ask(2, 10, 3, 0.0)]
    lines = io.BytesIO(b"".join(msgspec.json.encode(ask) + b"\n" for ask in asks))
    serve(stepper, lines, answers.append)
    assert [len(times.step_ms) for times in answers] == [FEWEST_STEPS] * 2


def test_steps_without_end_are_made_until_the_next_line(stepper, engine):
    lines = queue.Queue()
    answers = []

    def answer(value):
        answers.append(value)
        if len(answers) == 1:
            lines.put(b"\n")
        elif len(answers) == 2:
            lines.put(None)

    lines.put(msgspec.json.encode(Ask(2, 10)) + b"\n")
    serve(stepper, iter(lines.get, None), answer)
    assert answers == [Times(), Times()]


def spec_of(**engine):
    plan = make_plan(ServerConfig(profile="a100-paper", thresholds="eager", max_live=2))
    made = plan.specs[0]
    return msgspec.structs.replace(made, engine=made.engine | engine)


def test_a_process_times_the_engine_that_would_be_served():
    process = EngineProcess(spec_of(latency_ms=[4.0, 8.0], added_ms_per_token=2.0), 60.0)
    try:
        assert process.ready().kv_capacity is None
        # Each token beyond the first takes 2 ms.
        for batch, new, least, mean in [(1, 1, 4.0, 4.0), (2, 1, 8.0, 8.0), (1, 3, 4.0, 8.0)]:
            steps = process.time(batch, 20, new, 0.0).step_ms
            assert len(steps) == FEWEST_STEPS
            assert least <= min(steps)
            assert mean <= sum(steps) / len(steps) < mean + 20.0
        with process.running(1, 20):
            pass
        assert len(process.time(1, 20, 1, 0.0).step_ms) == FEWEST_STEPS, "it goes on"
    finally:
        process.close()


def test_an_engine_that_cannot_be_made_is_one_clear_error():
    process = EngineProcess(spec_of(kind="steam"), 60.0)
    try:
        with pytest.raises(TrmodelError, match=r"^Qwen3-0\.6B: engine: steam is not known"):
            process.ready()
    finally:
        process.close()


def test_an_engine_that_ends_is_told():
    process = EngineProcess(spec_of(), 60.0)
    try:
        process.ready()
        process._process.kill()
        process._process.wait()
        with pytest.raises(TrmodelError, match=r"^Qwen3-0\.6B: its engine ended"):
            process.time(1, 20, 1, 0.0)
    finally:
        process.close()
