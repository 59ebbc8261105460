"""Simulation against closed forms, and the laws that every run obeys."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel.errors import InfeasibleError, InputError, UsageError
from trmodel.phases import Phase
from trmodel.simulate import Options, Simulator, Strategy, simulate
from trmodel.system import RoutedSystem


def r2r(N, p=0.35, **changes):
    return RoutedSystem(
        ["small", "large"], [6.0, 27.9], [[1 - p, p], [1.0, 0.0]], [[1, 0], [1, 0]], N, **changes
    )


def one_model(N, latency, **changes):
    return RoutedSystem(["m"], [latency], [[1.0]], [[1.0]], N, **changes)


def quick(system, B, options=Options(), **arguments):
    return simulate(system, B, options, **({"batches": 20_000} | arguments))


@pytest.mark.parametrize("strategy", list(Strategy))
def test_one_model_runs_full_batches(strategy):
    found = quick(one_model(5, [3, 4, 5, 6, 7.5]), (5,), Options(strategy=strategy))
    T = found.throughput_tok_s
    assert T.value == pytest.approx(5 / 7.5 * 1000)
    assert T.half_width < 1e-6 * T.value
    assert found.inter_token_ms.p99.value == pytest.approx(7.5)


def test_a_largest_batch_leaves_the_rest_waiting_in_turn():
    """Three requests, batches of two: each request sits out every third batch."""
    found = quick(one_model(3, [4.0, 5.0, 6.0], max_batch=2), (2,))
    # The batch of two that completes queues behind the one that waited.
    assert found.per_model[0].mean_batch == pytest.approx(2)
    assert found.throughput_tok_s.value == pytest.approx(400)
    assert found.inter_token_ms.mean.value == pytest.approx(7.5)
    assert found.inter_token_ms.p99.value == pytest.approx(10)


def test_nobody_is_handed_over():
    found = quick(r2r(4, p=0.0), (1, 1))
    assert found.throughput_tok_s.value == pytest.approx(4000 / 6)
    assert found.per_model[1].batches_per_s == 0.0
    assert np.isnan(found.per_model[1].admission_delay_ms.mean.value)


def test_everybody_is_handed_over():
    """With one request a deterministic cycle; so with N at B = (N, 1)."""
    for N in (1, 3):
        found = quick(r2r(N, p=1.0), (N, 1))
        assert found.throughput_tok_s.value == pytest.approx(N / 33.9 * 1000, rel=1e-3)


def test_handoff_delays_occupy_no_model():
    system = r2r(1, p=1.0, handoff_ms=[[0, 2.5], [1.5, 0]])
    found = quick(system, (1, 1))
    assert found.throughput_tok_s.value == pytest.approx(1 / (33.9 + 4.0) * 1000, rel=1e-3)
    assert found.ledger.handoff_ms == pytest.approx(4.0, rel=1e-3)
    assert found.ledger.total_ms == pytest.approx(1000 / found.throughput_tok_s.value)
    assert found.per_model[0].busy_fraction == pytest.approx(6.0 / 37.9, rel=1e-3)


def test_a_hold_time_ends_every_wait():
    found = quick(r2r(1, p=1.0), (1, 5), Options(hold_ms=10.0))
    assert found.throughput_tok_s.value == pytest.approx(1 / 43.9 * 1000, rel=1e-3)
    assert found.per_model[1].admission_delay_ms.p50.value == pytest.approx(10.0)


def test_step_times_follow_an_empirical_law():
    options = Options(step_factors=((0.8, 1.0, 1.5),))
    found = simulate(one_model(2, 10.0), (1,), options, batches=200_000, confidence=0.999)
    T = found.throughput_tok_s
    assert T.low < 2 / 11.0 * 1000 < T.high


def test_step_sync_takes_one_step_of_each_kind_a_round():
    N, p = 6, 0.35
    found = simulate(
        r2r(N, p), (1, 1), Options(strategy=Strategy.step_sync), batches=200_000, confidence=0.999
    )
    # Each of the N requests commits one token a round; with probability 1 - (1-p)^N somebody is
    # routed away and the round has its second half.
    round_ms = 6.0 + 27.9 * (1 - (1 - p) ** N)
    T = found.throughput_tok_s
    assert T.low < N / round_ms * 1000 < T.high


def test_model_sync_empties_a_model_before_the_next():
    """N = 1 makes every strategy the same."""
    results = [
        quick(r2r(1), (1, 1), Options(strategy=strategy), seed=3).throughput_tok_s.value
        for strategy in Strategy
    ]
    assert results == pytest.approx([results[0]] * 3)
    both = quick(r2r(4), (1, 1), Options(strategy=Strategy.model_sync))
    assert sum(model.busy_fraction for model in both.per_model) == pytest.approx(1.0)
    assert both.per_model[1].mean_batch == pytest.approx(4.0)


def test_phases_have_latencies_and_routes_of_their_own():
    """Probe (with 1 ms more), then two tokens, then the next probe: a cycle of three steps."""
    system = RoutedSystem(
        ["m"],
        [5.0],
        [[0, 1, 0], [0, 0, 1], [1, 0, 0]],
        [[0, 0, 0], [1, 1, 1], [1, 1, 1]],
        N=1,
        phases=[Phase("probe", 0, 1.0), Phase("first", 0), Phase("second", 0)],
        restart="probe",
    )
    found = quick(system, (1,))
    assert found.throughput_tok_s.value == pytest.approx(2 / 16 * 1000, rel=1e-3)
    assert found.replies_per_s.value == pytest.approx(1 / 16 * 1000, rel=1e-3)
    assert found.reply_ms.p99.value == pytest.approx(16.0)
    assert found.first_token_ms.mean.value == pytest.approx(11.0)


def test_replies_of_given_lengths_end():
    found = quick(one_model(3, 10.0), (1,), Options(reply_tokens=(4,)))
    assert found.reply_ms.mean.value == pytest.approx(40.0)
    assert found.replies_per_s.value == pytest.approx(75.0, rel=1e-3)


def test_arrivals_are_served_at_their_rate():
    options = Options(arrivals_per_s=5.0, reply_tokens=(3, 5), hold_ms=20.0)
    found = simulate(r2r(16), (1, 3), options, batches=100_000, confidence=0.999)
    assert found.replies_per_s.low < 5.0 < found.replies_per_s.high
    # Little's law for the whole system: nobody waits outside at this load.
    reply_ms = found.reply_ms.mean
    assert found.mean_live == pytest.approx(
        found.replies_per_s.value * reply_ms.value / 1000, rel=0.01
    )


def test_arrivals_with_a_table_of_thresholds_need_no_hold_time():
    table = [(1, min(n, 4)) for n in range(1, 9)]
    options = Options(arrivals_per_s=2.0, reply_tokens=(20,))
    assert quick(r2r(8), table, options).replies_per_s.value == pytest.approx(2.0, rel=0.1)
    with pytest.raises(InfeasibleError, match="can deadlock at N = 1"):
        quick(r2r(8), (1, 4), options)


def test_same_seed_same_bytes():
    first, second = (quick(r2r(6), (1, 4), seed=7) for _ in range(2))
    assert repr(first) == repr(second)
    assert repr(first) != repr(quick(r2r(6), (1, 4), seed=8))


def test_runs_with_one_seed_are_common_random_numbers():
    """The difference of two rules varies less than if they were simulated independently."""
    pairs = np.array(
        [
            [quick(r2r(8), B, seed=seed).throughput_tok_s.value for B in ((1, 4), (1, 5))]
            for seed in range(40)
        ]
    )
    together = np.var(pairs[:, 0] - pairs[:, 1])
    apart = np.var(pairs[:, 0]) + np.var(pairs[:, 1])
    assert together < 0.5 * apart


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 8),
    st.integers(0, 2**63 - 1),
    st.sampled_from(list(Strategy)),
    st.booleans(),
    st.booleans(),
)
def test_every_run_obeys_littles_law(M, N, seed, strategy, handoff, replies):
    rng = np.random.default_rng(seed)
    system = RoutedSystem(
        [f"m{i}" for i in range(M)],
        [np.cumsum(rng.uniform(0.1, 20.0, N)) for _ in range(M)],
        rng.dirichlet(np.ones(M), M),
        np.ones((M, M)),
        N,
        slow_down=slow_downs(rng, M),
        handoff_ms=rng.uniform(0, 9, (M, M)) * (1 - np.eye(M)) if handoff else None,
    )
    options = Options(strategy=strategy, reply_tokens=(3.0, 8.0) if replies else None)
    found = simulate(system, (1,) * M, options, batches=2_000, seed=seed)
    # What is under way when the counting begins and ends: at most N requests' current waits.
    longest = max(
        delay.admission_delay_ms.p99.value
        for delay in found.per_model
        if np.isfinite(delay.admission_delay_ms.p99.value)
    )
    assert found.little_gap <= 4 * N * max(longest, 1.0) / found.simulated_ms * found.sections
    assert found.mean_live == pytest.approx(N)
    assert found.ledger.total_ms == pytest.approx(1000 * N / found.throughput_tok_s.value)


def slow_downs(rng, M):
    return {(0, 1): tuple(rng.uniform(1, 2, 2))} if M > 1 else None


def test_a_timeline_has_every_batch_once():
    run = Simulator(r2r(5), (1, 3), seed=2)
    counts = run.run_until(2_000.0, timeline=1_000)
    rows = slice(int(counts.logged[0]))
    model, size = counts.log_model[rows], counts.log_size[rows]
    start, end = counts.log_start[rows], counts.log_end[rows]
    for i, latency in enumerate((6.0, 27.9)):
        mine = (model == i) & (end > start)
        assert mine.sum() == counts.batches[i]
        assert end[mine] - start[mine] == pytest.approx(latency)
        assert np.all(start[mine][1:] >= end[mine][:-1] - 1e-6)
        assert size[mine].sum() == counts.sizes[i] @ np.arange(6)


def test_more_precision_takes_a_longer_run():
    rough = quick(r2r(4), (1, 3))
    fine = quick(r2r(4), (1, 3), precision_percent=0.3)
    assert fine.batches > 4 * rough.batches
    assert fine.throughput_tok_s.half_width <= 0.003 * fine.throughput_tok_s.value
    short = quick(r2r(4), (1, 3), precision_percent=0.01, max_batches=50_000)
    assert "was not reached" in short.warnings[-1]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"batches": 10}, "batches: at least 64 are needed, got 10"),
        ({"confidence": 1.0}, "confidence: must be between 0 and 1"),
        ({"precision_percent": 0.0}, "precision_percent: must be above 0"),
        ({"seed": -1}, "seed: must be a whole number of at least 0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, problem):
    with pytest.raises(UsageError, match=problem):
        quick(r2r(3), (1, 1), **arguments)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"hold_ms": 0.0}, "hold_ms: must be a positive number"),
        ({"arrivals_per_s": -1.0}, "arrivals_per_s: must be a positive number"),
        ({"reply_tokens": ()}, "reply_tokens: one or more"),
        ({"step_factors": ((1.0,), (0.0,))}, "step_factors: one or more"),
    ],
)
def test_options_that_make_no_sense_are_refused(values, problem):
    with pytest.raises(UsageError, match=problem):
        Options(**values)


def test_what_cannot_be_simulated_is_refused():
    with pytest.raises(UsageError, match="with arrivals replies must end"):
        quick(r2r(3), (1, 1), Options(arrivals_per_s=1.0))
    with pytest.raises(UsageError, match="step_factors: 2 lists are needed, got 1"):
        quick(r2r(3), (1, 1), Options(step_factors=((1.0,),)))
    with pytest.raises(InfeasibleError, match="can deadlock at N = 3"):
        quick(r2r(3), (2, 3))
    nothing = replace(r2r(3), committed_tokens=np.zeros((2, 2)))
    with pytest.raises(InputError, match="committed no token"):
        quick(nothing, (1, 1))


def test_intervals_of_quantiles_cover_them():
    factors = tuple(np.random.default_rng(0).uniform(0.7, 1.4, 500))
    options = Options(step_factors=(factors, factors))
    long = simulate(r2r(6), (1, 4), options, seed=99, batches=3_000_000).inter_token_ms
    runs = [quick(r2r(6), (1, 4), options, seed=n, confidence=0.9) for n in range(60)]
    for name in ("p90", "p99"):
        truth = getattr(long, name).value
        found = [getattr(run.inter_token_ms, name) for run in runs]
        # Values are those of bins 1.6 % wide at most.
        covered = sum(e.low * 0.992 <= truth <= e.high * 1.008 for e in found)
        assert covered >= 48
        assert max(e.half_width for e in found) < 0.05 * truth


def test_a_cycle_is_not_called_correlated():
    found = simulate(r2r(8, p=0.0), (1, 1))
    assert not [warning for warning in found.warnings if "correlated" in warning]
