"""What handed-over requests bring: closed forms, a Monte Carlo, and the steps made of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_making import PROVENANCE, decode_table, model, profile, routing

from trmodel.errors import InputError
from trmodel.markov.metrics import chain_warnings
from trmodel.profile import build_system, handed_over, handoff_latency, model_steps
from trmodel.routing import Completion, fixed_length, load_routing, with_completion

R2R_TOKENS = [[1, 0], [1, 0]]


@given(st.floats(0.01, 1.0))
def test_r2r_hands_over_one_in_p_tokens(p):
    found = handed_over([[1 - p, p], [1, 0]], R2R_TOKENS)
    assert found.new_tokens == pytest.approx([1.0, 1 / p])
    assert found.fraction == pytest.approx([p, 1.0])


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_a_large_model_that_stays(p, q):
    """R-Stitch: either model keeps the request for a while; the first step is taken over."""
    found = handed_over([[1 - p, p], [q, 1 - q]], [[1, 0], [1, 1]])
    assert found.new_tokens == pytest.approx([1 + (1 - q) / q, 1 + (1 - p) / p])
    assert found.fraction == pytest.approx([p, q])


def walk(P, C, steps, rng):
    """Mean unseen tokens and share of arrivals by handoff, by simulation of one request."""
    M = len(P)
    draws = rng.random(steps)
    cumulative = np.cumsum(P, axis=1)
    committed, left_at = 0.0, np.full(M, np.nan)
    brought, visits, arrivals = [[] for _ in range(M)], np.zeros(M), np.zeros(M)
    at = 0
    for draw in draws:
        to = min(int(np.searchsorted(cumulative[at], draw)), M - 1)
        before = committed
        committed += C[at][to]
        visits[to] += 1
        if to != at:
            left_at[at] = before
            arrivals[to] += 1
            if not np.isnan(left_at[to]):
                brought[to].append(committed - left_at[to])
        at = to
    return brought, arrivals / visits


def test_three_models_against_a_walk():
    P = [[0.5, 0.3, 0.2], [0.6, 0.1, 0.3], [0.2, 0.8, 0.0]]
    C = [[1, 0, 2], [0.5, 1, 1], [1, 3, 0]]
    brought, arrivals = walk(P, C, 120_000, np.random.default_rng(5))
    found = handed_over(P, C)
    for i in range(3):
        sample = np.array(brought[i])
        error = sample.std() / np.sqrt(len(sample))
        # Successive excursions of a Markov chain are independent: four standard errors.
        assert abs(sample.mean() - found.new_tokens[i]) < 4 * error
    assert found.fraction == pytest.approx(arrivals, abs=0.01)


def test_models_never_left_or_never_entered_again_bring_nothing():
    absorbing = handed_over([[0.5, 0.5], [0, 1]], R2R_TOKENS)
    assert np.isnan(absorbing.new_tokens).all()
    assert absorbing.fraction.tolist() == [0.5, 0.0]
    alone = handed_over([[1.0]], [[1.0]])
    assert (np.isnan(alone.new_tokens).all(), alone.fraction.tolist()) == (True, [0.0])


def test_the_mean_is_over_the_requests_that_come_back():
    # From 0 to 1, which returns with 5 tokens or is lost to 2 for ever.
    P = [[0, 1, 0], [0.25, 0, 0.75], [0, 0, 1]]
    C = [[0, 2, 0], [5, 0, 9], [0, 0, 1]]
    found = handed_over(P, C)
    assert found.new_tokens[0] == pytest.approx(7.0)
    assert found.new_tokens[1] == pytest.approx(7.0)
    assert np.isnan(found.new_tokens[2])


def two_models(**large):
    decode = {"batch": [1, 4, 8], "latency_ms": [20.0, 23.0, 27.0], "provenance": PROVENANCE}
    return profile(
        [model("m0", gpus=[0]), model("m1", gpus=[1], decode=decode, **large)],
        routing=routing([[0.65, 0.35], [1, 0]], R2R_TOKENS),
    )


EXTEND = {
    "batch": [1, 4, 8],
    "new_tokens": [1, 3, 10],
    "latency_ms": [[21.0, 24.0, 28.0], [22.0, 28.0, 36.0], [29.0, 44.0, 64.0]],
    "provenance": PROVENANCE,
}
OVERHEAD = {"value_ms": 2.0, "provenance": PROVENANCE}


def test_every_step_of_the_large_model_is_an_extend():
    system = build_system(two_models(extend=EXTEND, overhead=OVERHEAD), 8)
    t = (1 / 0.35 - 1) / 2  # place between 1 and 3 new tokens
    expected = np.interp(np.arange(1, 9), [1, 8], [21 + t, 28 + 8 * t]) + 2.0
    assert system.latency_ms[1] == pytest.approx(expected)
    assert system.latency_ms[0] == pytest.approx([10.0] * 8)
    assert system.warnings == ()


def test_the_probability_asked_for_counts():
    loaded = two_models(extend=EXTEND)
    assert build_system(loaded, 1, p=0.1).latency_ms[1] == pytest.approx([29.0])
    assert build_system(loaded, 1, p=0.5).latency_ms[1] == pytest.approx([21.5])
    # p = 1: one new token is a decode step; p = 0: the large model is never entered.
    assert build_system(loaded, 1, p=1.0).latency_ms[1] == pytest.approx([20.0])
    assert build_system(loaded, 1, p=0.0).latency_ms[1] == pytest.approx([20.0])
    (warning,) = build_system(loaded, 1, p=0.05).warnings
    assert warning.startswith("m1, extend: new tokens 20 is outside the listed 1 to 10")


@given(st.floats(0.0, 1.0), st.floats(1.01, 10.0))
def test_the_mean_of_decode_and_extend(h, new):
    large = two_models(extend=EXTEND).profile.models[1]
    steps = model_steps(large, 8, (2048, 2048), handed_over=h, new_tokens=new)
    b = np.arange(1, 9)
    decode = np.interp(b, [1, 8], [20, 27])
    rows = [np.interp(b, [1, 4, 8], row) for row in EXTEND["latency_ms"]]
    extend = np.array([np.interp(new, [1, 3, 10], column) for column in np.transpose(rows)])
    assert steps.latency_ms == pytest.approx((1 - h) ** b * decode + (1 - (1 - h) ** b) * extend)
    assert (steps.latency_ms >= decode - 1e-9).all()


def test_an_extend_is_at_least_a_decode_step():
    quick = {**EXTEND, "latency_ms": [[1.0] * 3] * 3}
    large = two_models(extend=quick).profile.models[1]
    steps = model_steps(large, 8, (2048, 2048), handed_over=1.0, new_tokens=5.0)
    assert steps.latency_ms == pytest.approx(np.linspace(20, 27, 8))


@pytest.mark.parametrize("new", [float("nan"), 1.0, 0.0])
def test_without_new_tokens_a_step_is_a_decode_step(new):
    large = two_models(extend=EXTEND).profile.models[1]
    steps = model_steps(large, 8, (2048, 2048), handed_over=1.0, new_tokens=new)
    assert steps.latency_ms == pytest.approx(np.linspace(20, 27, 8))


def test_the_extend_table_must_reach_and_says_its_context():
    rows = [row[:2] for row in EXTEND["latency_ms"]]
    small = {**EXTEND, "batch": [1, 4], "latency_ms": rows}
    with pytest.raises(InputError, match=r"models\[1\]\.extend\.batch: m1, extend has latencies"):
        build_system(two_models(extend=small), 8)
    assert build_system(two_models(extend=small), 8, max_batch=4).max_batch == (4, 4)
    listed = two_models(extend={**EXTEND, "context_tokens": 512})
    assert build_system(listed, 2).warnings == (
        "m1, extend: context 2048: the latencies listed for 512 are used unchanged",
    )
    assert build_system(listed, 2, context=512).warnings == ()


def test_at_another_context_an_extend_is_longer_by_as_much_as_a_decode_step():
    tables = two_models(extend={**EXTEND, "context_tokens": 512}).profile.models[1]
    rows = [[20.0, 27.0], [24.0, 39.0]]
    moving = decode_table([1, 8], rows, context_tokens=[512, 2512])
    large = tables.model_copy(update={"decode": moving})
    listed, further, wide = (
        model_steps(large, 8, context, handed_over=1.0, new_tokens=5.0)
        for context in [(512, 512), (1512, 1512), (512, 2512)]
    )
    longer = np.linspace(2.0, 6.0, 8)  # half way from 20, 27 to 24, 39
    assert further.latency_ms == pytest.approx(listed.latency_ms + longer)
    assert wide.latency_ms == pytest.approx(listed.latency_ms + longer)
    assert listed.notes == ()
    assert further.notes == (
        "m1, extend: context 1512: the latencies listed for 512 and the difference between decode "
        "steps there and here",
    )
    assert set(further.status) == {"interpolated"}


def test_an_extend_grows_with_the_context_as_its_table_says():
    moving = decode_table([1, 8], [[20.0, 27.0], [24.0, 39.0]], context_tokens=[512, 2512])
    growing = {**EXTEND, "context_tokens": 512, "context_growth": [1.0, 3.0, 6.5]}
    large = two_models(extend=growing).profile.models[1].model_copy(update={"decode": moving})

    def extend(context, new):
        return model_steps(large, 8, (context, context), handed_over=1.0, new_tokens=new)

    for new, growth in [(3.0, 3.0), (5.0, 4.0), (10.0, 6.5), (12.0, 6.5)]:
        listed, further = extend(512, new), extend(1512, new)
        longer = growth * np.linspace(2.0, 6.0, 8)
        assert further.latency_ms == pytest.approx(listed.latency_ms + longer)
        assert f"listed for 512 and {growth:g} times the difference" in " ".join(further.notes)


HANDOFF = {
    "latency_ms": 1.5,
    "pairs": [{"source": "m1", "destination": "m0", "latency_ms": 4.0}],
    "provenance": PROVENANCE,
}


def test_handoff_latencies_are_a_matrix_and_not_in_the_chain():
    loaded = profile(
        [model(f"m{i}", gpus=[i]) for i in range(3)],
        routing=routing([[0.5, 0.5, 0], [1, 0, 0], [0, 0, 1]]),
        handoff=HANDOFF,
    )
    delays = handoff_latency(loaded.profile, ["m1", "m0", "m2"])
    assert delays.tolist() == [[0, 4, 1.5], [1.5, 0, 1.5], [1.5, 1.5, 0]]
    assert handoff_latency(loaded.profile, ["m0", "m2"]).tolist() == [[0, 1.5], [1.5, 0]]
    assert chain_warnings(build_system(loaded, 2), [1]) == (
        "handoff latency (1.5 to 4 ms) is not in the exact chain; predict gives its shift",
    )


def test_handoff_latency_that_is_not_used_is_not_told():
    models = [model("m0", gpus=[0]), model("m1", gpus=[1])]
    chain = routing([[0.5, 0.5], [1, 0]])
    assert (handoff_latency(profile(models).profile, ["m0", "m1"]) == 0).all()
    zero = {"latency_ms": 0, "provenance": PROVENANCE}
    assert chain_warnings(build_system(profile(models, routing=chain, handoff=zero), 2), [1]) == ()
    one = {**HANDOFF, "pairs": []}
    stays = routing([[1, 0], [0, 1]])
    assert chain_warnings(build_system(profile(models, routing=stays, handoff=one), 2), [1]) == ()
    used = build_system(profile(models, routing=chain, handoff=one), 2)
    assert used.warnings == ()
    assert chain_warnings(used, [1]) == (
        "handoff latency (1.5 ms) is not in the exact chain; predict gives its shift",
    )


def test_phases_that_are_alike_are_handed_what_one_is():
    """Two phases per model, each going to the two of a model in fixed shares."""
    P, C = [[0.6, 0.4], [0.7, 0.3]], [[1, 0], [2, 1]]
    shares = np.array([0.2, 0.8])
    alike = np.kron(P, np.ones((2, 1)) * shares)
    expected = handed_over(P, C)
    found = handed_over(alike, np.kron(C, np.ones((2, 2))), [0, 0, 1, 1])
    assert found.fraction == pytest.approx(expected.fraction, rel=1e-6)
    assert found.new_tokens == pytest.approx(expected.new_tokens, rel=1e-6)


def test_runs_of_fixed_length_are_handed_over_once_a_run():
    p, K = 0.25, 4
    routing = fixed_length(K, p)
    found = handed_over(
        routing.transition_probability, routing.committed_tokens, routing.phase_models
    )
    # The small model makes 1 / p steps between two runs of the large one, all but one of them
    # committing a token, and is handed the K tokens of the run; the last token of a run is what
    # the large model hands away.
    assert found.fraction == pytest.approx([p, 1 / K], rel=1e-6)
    assert found.new_tokens == pytest.approx([K, 1 + (1 / p - 1)], rel=1e-6)


def test_prefills_are_no_handoffs_and_end_what_is_unseen():
    plain = load_routing("r2r")
    ended = with_completion(plain, Completion(100, prefill_ms=5.0))
    P, C = np.array(ended.transition_probability), ended.committed_tokens
    found = handed_over(P, C, ended.phase_models, entry=2, restart=2, own=[2])
    # Of 100 steps of the large model one ends the reply; the others come back to the small one,
    # which makes 1 / 0.35 times as many steps.
    assert found.fraction == pytest.approx([0.35 * 0.99, 1.0], rel=1e-6)
    # The small model is handed the one token; the large one waits for fewer than without end.
    assert found.new_tokens[0] == pytest.approx(1.0)
    onward = 0.65 * 0.99
    assert found.new_tokens[1] == pytest.approx(1 + onward / (1 - onward), rel=1e-6)


def test_phases_that_say_what_they_read_are_not_counted_again():
    P = [[0.5, 0.0, 0.5], [0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]
    C = np.ones((3, 3))
    counted = handed_over(P, C, [0, 0, 1])
    assert counted.fraction[0] > 0
    own = handed_over(P, C, [0, 0, 1], own=[1])
    assert own.fraction.tolist() == [0.0, counted.fraction[1]]
    assert np.isnan(own.new_tokens[0])
