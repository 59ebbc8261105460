"""The engine in this process against transformers: caches kept, cut, dropped, and freed."""

from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from transformers import AutoModelForCausalLM

from trmodel.runtime.bench.engine_times import GROWTH, Ask, Stepper
from trmodel.runtime.engines.sglang.engine import MOST_FAILURES, SglangEngine
from trmodel.runtime.engines.sglang.options import EngineOptions, sizes
from trmodel.runtime.engines.sglang.start import start_engine
from trmodel.runtime.messages import Sampling
from trmodel.runtime.policies import Scripted
from trmodel.runtime.request import Batch, Request

KV_TOKENS, REQUESTS, VOCABULARY = 256, 6, 1024
CLOSE = 1e-3


@pytest.fixture(scope="module")
def loaded(models):
    options = EngineOptions(
        path=str(models["small"]), dtype="float32", kv_tokens=KV_TOKENS, max_context=256
    )
    engine = start_engine(0, options, REQUESTS, {"logits", "hidden", "embedding"})
    reference = AutoModelForCausalLM.from_pretrained(models["small"], dtype=torch.float32).eval()
    return engine.runner, reference


@pytest.fixture
def engine(loaded):
    runner, _ = loaded
    made = SglangEngine(0, runner, {"logits", "hidden", "embedding"})
    start = runner.free_tokens, runner.free_rows
    yield made
    for number in list(made._held):
        made.release(number)
    assert (runner.free_tokens, runner.free_rows) == start == (KV_TOKENS, REQUESTS + 2)


def request(number, token_ids, **sampling):
    sampling = Sampling(**{"temperature": 0.0, **sampling})
    return Request(number, list(token_ids), len(token_ids), sampling, 0, 0, [0, 0])


def step(engine, requests):
    """Make a step as the scheduler would: something is read, and then counts as held."""
    for one in requests:
        one.anchor = min(one.anchor, len(one.token_ids) - 1)
    result = engine.step(Batch(0, list(requests), 0.0, [0.0] * len(requests)))
    for one in requests:
        one.anchor = len(one.token_ids)
    return result


def scratch(reference, token_ids):
    with torch.inference_mode():
        found = reference(torch.tensor([token_ids]), output_hidden_states=True)
    return found.logits[0, -1], found.hidden_states[-1][0, -1]


def check(reference, requests, result):
    for place, one in enumerate(requests):
        logits, hidden = scratch(reference, one.token_ids)
        assert (result.tensors["logits"][place] - logits).abs().max() < CLOSE
        assert (result.tensors["hidden"][place] - hidden).abs().max() < CLOSE
        assert result.token_ids[place] == logits.argmax()


def test_decodes_and_extends_over_kept_caches_equal_a_pass_from_scratch(engine, loaded):
    _, reference = loaded
    one, two, three = request(1, [5, 6, 7]), request(2, range(10, 40)), request(3, [9])
    check(reference, [one, two], step(engine, [one, two]))  # prompts
    for token in (50, 60):
        one.token_ids.append(token)
        two.token_ids.append(token + 1)
        check(reference, [two, one], step(engine, [two, one]))  # decodes, in another order
    one.token_ids += [1, 2, 3, 4]
    two.token_ids.append(8)
    check(reference, [one, three, two], step(engine, [one, three, two]))  # mixed with a new one
    for new in (2, 4, 12):  # few are read as decodes
        one.token_ids += range(3, 3 + new)
        two.token_ids.append(8)
        check(reference, [two, one], step(engine, [two, one]))


def test_embeddings_are_those_of_the_tokens_chosen(engine, loaded):
    _, reference = loaded
    result = step(engine, [request(1, [5, 6, 7])])
    expected = reference.get_input_embeddings()(torch.tensor(result.token_ids))
    assert torch.allclose(result.tensors["embedding"], expected)


def test_a_step_without_new_tokens_reads_the_last_one_again(engine, loaded):
    _, reference = loaded
    one = request(1, [5, 6, 7])
    first = step(engine, [one])
    again = step(engine, [one])
    check(reference, [one], again)
    assert again.token_ids == first.token_ids
    assert engine.kv_tokens == 3


def test_what_a_rebuilt_request_no_longer_has_is_cut(engine, loaded):
    _, reference = loaded
    one = request(1, range(20, 40))
    step(engine, [one])
    one.token_ids[12:] = [7, 8]
    one.anchor = 12
    check(reference, [one], step(engine, [one]))
    assert engine.kv_tokens == 14


def test_a_stale_cache_is_noticed(engine):
    one = request(1, range(20, 30))
    step(engine, [one])
    one.token_ids[-1] = 500
    one.token_ids.append(7)
    with pytest.raises(AssertionError, match="stale"):
        engine._take(one)


def test_for_want_of_room_the_cache_that_was_not_used_for_longest_goes_and_is_read_again(
    engine, loaded
):
    _, reference = loaded
    pending = [request(k, range(k, k + 80)) for k in (1, 2, 3)]
    for one in pending:
        check(reference, [one], step(engine, [one]))
    late = request(4, range(100, 150))
    check(reference, [late], step(engine, [late]))
    assert engine.dropped == 1
    assert engine.kv_tokens == 80 + 80 + 50
    pending[0].token_ids.append(3)
    check(reference, [pending[0]], step(engine, [pending[0]]))
    assert engine.dropped == 2
    assert engine.kv_tokens <= KV_TOKENS


def test_rows_give_out_before_tokens(engine, loaded):
    _, reference = loaded
    many = [request(k, [k, k + 1]) for k in range(20)]
    for one in many:
        check(reference, [one], step(engine, [one]))
    assert engine.dropped == 20 - (REQUESTS + 2)


def test_a_batch_beyond_the_pool_runs_in_parts(engine, loaded):
    _, reference = loaded
    many = [request(k, range(k, k + 70)) for k in range(5)]
    check(reference, many, step(engine, many))
    for one in many:
        one.token_ids.append(11)
    check(reference, many, step(engine, many))


def test_a_request_beyond_the_pool_ends_and_the_others_go_on(engine, loaded):
    _, reference = loaded
    small, huge = request(1, [5, 6, 7]), request(2, [9] * (KV_TOKENS + 1))
    result = step(engine, [huge, small])
    assert "exceed the model's cache of 256" in result.errors[0]
    assert list(result.errors) == [0]
    assert result.token_ids[1] == scratch(reference, small.token_ids)[0].argmax()
    engine.release(2)
    small.token_ids.append(8)
    check(reference, [small], step(engine, [small]))


def test_requests_beyond_the_pool_do_not_break_the_engine(engine):
    for number in range(MOST_FAILURES + 1):
        assert step(engine, [request(number, [9] * (KV_TOKENS + 1))]).errors


def test_an_engine_that_only_fails_is_given_up(engine, monkeypatch):
    def broken(*_):
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(engine.runner, "forward", broken)
    one = request(1, [5])
    for _ in range(MOST_FAILURES - 1):
        assert "the device is gone" in step(engine, [one]).errors[0]
    with pytest.raises(RuntimeError, match="gone"):
        step(engine, [one])


def test_a_failed_pass_leaves_nothing_behind(engine, loaded, monkeypatch):
    runner, reference = loaded
    one = request(1, [5, 6, 7])
    step(engine, [one])
    one.token_ids.append(9)
    real, calls = runner._model.forward, []

    def once(*arguments):
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("a hiccup")
        return real(*arguments)

    monkeypatch.setattr(runner._model, "forward", once)
    check(reference, [one], step(engine, [one]))
    assert engine.kv_tokens == 4


def test_tokens_that_only_fill_up_the_shape_are_never_chosen(engine, loaded):
    one = request(1, [5, 6, 7])
    best = step(engine, [one]).token_ids[0]
    assert best > 0
    engine.vocabulary = best
    result = step(engine, [one])
    assert result.tensors["logits"].shape == (1, best)
    assert result.token_ids[0] < best


def test_releasing_what_is_not_known_does_nothing(engine):
    engine.release(99)


class Traffic(RuleBasedStateMachine):
    """Requests come, go on at random, are cut back as by a rebuild, and end."""

    engine: SglangEngine
    reference: object

    def __init__(self):
        super().__init__()
        self.requests = {}
        self.next = 0

    @rule(length=st.integers(1, 60))
    @precondition(lambda self: len(self.requests) < 10)
    def arrive(self, length):
        self.next += 1
        self.requests[self.next] = request(self.next, [(7 * k) % 900 + 3 for k in range(length)])

    @rule(data=st.data())
    @precondition(lambda self: self.requests)
    def run(self, data):
        chosen = data.draw(
            st.lists(st.sampled_from(sorted(self.requests)), min_size=1, unique=True)
        )
        batch = [self.requests[number] for number in chosen]
        for one in batch:
            if len(one.token_ids) < 120:
                one.token_ids += data.draw(st.lists(st.integers(3, 900), max_size=6))
        check(self.reference, batch, step(self.engine, batch))

    @rule(data=st.data())
    @precondition(lambda self: self.requests)
    def rebuild(self, data):
        one = self.requests[data.draw(st.sampled_from(sorted(self.requests)))]
        one.anchor = min(one.anchor, data.draw(st.integers(0, len(one.token_ids))))
        one.token_ids[one.anchor :] = [5, 6]

    @rule(data=st.data())
    @precondition(lambda self: self.requests)
    def end(self, data):
        number = data.draw(st.sampled_from(sorted(self.requests)))
        del self.requests[number]
        self.engine.release(number)

    @invariant()
    def accounts_agree(self):
        held = sum(len(held) for held in self.engine._held.values())
        assert self.engine.kv_tokens == held <= KV_TOKENS
        rows = sum(1 for held in self.engine._held.values() if len(held))
        assert self.engine.runner.free_rows == REQUESTS + 2 - rows

    def teardown(self):
        for number in list(self.engine._held):
            self.engine.release(number)


def test_any_traffic_gives_what_a_pass_from_scratch_gives(engine, loaded):
    Traffic.engine, Traffic.reference = engine, loaded[1]
    machine = Traffic.TestCase
    machine.settings = settings(
        max_examples=25,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine().runTest()


def test_sizes_of_graphs_waste_at_most_an_eighth():
    for largest in (1, 7, 32, 500):
        made = sizes(largest)
        assert made[-1] == largest
        assert all(b - a <= max(a // 8, 1) for a, b in pairwise(made))


def test_contexts_to_be_timed_take_room_without_being_read(engine, monkeypatch):
    stepper = Stepper(0, 1, engine, Scripted([0]))
    read = []
    forward = engine.runner.forward

    def noted(helds, unseen):
        read.append([(len(held), len(ids)) for held, ids in zip(helds, unseen, strict=True)])
        return forward(helds, unseen)

    monkeypatch.setattr(engine.runner, "forward", noted)
    for batch, context, new in [(2, 80, 1), (4, 15, 3), (1, 150, 1)]:
        read.clear()
        stepper.run(Ask(batch, context, new, 0.0))
        assert all(len(step) == batch for step in read)
        brought = [count for step in read for _, count in step]
        assert sum(brought) == new * len(brought)
        assert all(
            context <= held <= context + GROWTH + 2 * new for step in read for held, _ in step
        )
        assert batch * context <= engine.kv_tokens <= batch * (context + GROWTH + 4 * new)
    assert engine.dropped == 0
