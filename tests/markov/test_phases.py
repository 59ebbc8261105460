"""Chains whose models have several phases."""

from dataclasses import replace

import numpy as np
import pytest
from chain_systems import cases, r2r
from hypothesis import given, settings
from hypothesis import strategies as st
from phase_reference import phase_reference

from trmodel.errors import LimitError, UsageError
from trmodel.markov import predict_chain, solve_chain
from trmodel.markov.admission import followed_admission_delay_ms
from trmodel.markov.graph import chain_graph, routing_graph
from trmodel.markov.metrics import no_waiting_tok_s
from trmodel.markov.symbolic import symbolic_throughput
from trmodel.phases import Phase
from trmodel.system import RoutedSystem


def phased(model, P, C, N, *, latency=(6.0, 27.9), added=None, **changes):
    """A system of as many models as latencies, phases named by number."""
    added = added or [0.0] * len(model)
    return RoutedSystem(
        [f"m{i}" for i in range(len(latency))],
        latency,
        P,
        C,
        N,
        phases=[Phase(f"u{u}", i, a) for u, (i, a) in enumerate(zip(model, added, strict=True))],
        **changes,
    )


def fixed_length(K, N, p=0.35, **changes):
    """The first model hands over with probability p; the second keeps a request for K steps."""
    P = np.zeros((1 + K, 1 + K))
    P[0, :2] = 1.0 - p, p
    for k in range(1, K):
        P[k, k + 1] = 1.0
    P[K, 0] = 1.0
    C = np.ones_like(P)
    C[0, 1] = 0.0
    return phased([0] + [1] * K, P, C, N, **changes)


@st.composite
def phased_cases(draw):
    """Two models, up to four phases in any order, small numbers; each phase can reach the entry."""
    model = draw(st.permutations([0, 1, *draw(st.lists(st.integers(0, 1), max_size=2))]))
    U, N = len(model), draw(st.integers(1, 3))
    entry = draw(st.integers(0, U - 1))
    numbers = st.lists(st.integers(0, 3), min_size=U, max_size=U)
    weights = np.array([draw(numbers) for _ in range(U)])
    weights[:, entry] += 1
    B0 = draw(st.integers(1, N))
    return {
        "work": [draw(st.lists(st.integers(1, 4), min_size=N, max_size=N)) for _ in range(2)],
        "added": draw(st.lists(st.integers(0, 3), min_size=U, max_size=U)),
        "model": model,
        "P": weights / weights.sum(axis=1, keepdims=True),
        "C": np.array([draw(numbers) for _ in range(U)], dtype=float),
        "N": N,
        "entry": entry,
        "B": (B0, draw(st.integers(1, N - B0 + 1))),
        "restart": draw(st.integers(0, U - 1)),
        "wake": [draw(st.integers(0, 3)) for _ in range(2)],
    }


@settings(max_examples=80, deadline=None)
@given(phased_cases())
def test_against_an_independent_chain(case):
    expected = phase_reference(**case)
    work, added = case.pop("work"), case.pop("added")
    B, restart, wake_ms = case.pop("B"), case["restart"], case.pop("wake")
    system = phased(**case, latency=work, added=added, grid_ms=1.0, wake_ms=wake_ms)
    chain = solve_chain(system, B)
    assert chain.throughput_tok_s == pytest.approx(1000 * expected.throughput, rel=1e-9)
    if restart in system.reached_phases:
        assert chain.replies_per_s == pytest.approx(1000 * expected.restarts, rel=1e-9, abs=1e-12)
    if expected.throughput == 0.0:
        return
    found = predict_chain(system, B)
    assert found.states == len(expected.states)
    assert found.ledger.total_ms == pytest.approx(1000 * system.N / found.throughput_tok_s)
    for i, m in zip(system.reached, found.per_model, strict=True):
        assert m.busy_fraction == pytest.approx(expected.busy[i], abs=1e-10)
        assert m.mean_waiting == pytest.approx(expected.waiting[i], abs=1e-10)
        if m.step_share > 0.0:
            sizes = expected.batches[i] / expected.batches[i].sum()
            assert m.batch_distribution == pytest.approx(sizes, abs=1e-9)
        if chain.recurrent_classes == 1:
            followed = followed_admission_delay_ms(chain, system.reached.index(i))
            assert followed == pytest.approx(m.admission_delay_ms, rel=1e-7, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(cases(max_M=2, max_N=3), st.data())
def test_phases_that_are_alike_are_one(case, data):
    """Copies of a model's phase, however it routes between them, lump to the plain chain."""
    case = replace(case, max_batch=[case.N] * case.M)
    model = [*range(case.M), *data.draw(st.lists(st.integers(0, case.M - 1), max_size=2))]
    shares = st.floats(0.1, 1.0)
    weights = np.array([[data.draw(shares) for _ in model] for _ in model])
    P = np.zeros_like(weights)
    for u, row in enumerate(weights):
        for j in range(case.M):
            copies = [v for v, i in enumerate(model) if i == j]
            P[u, copies] = case.P[model[u], j] * row[copies] / row[copies].sum()
    slow_down = {(0, 1): (1.5, 1.25)} if case.M == 2 and data.draw(st.booleans()) else None
    plain = replace(case.system, slow_down=slow_down)
    system = RoutedSystem(
        plain.models,
        plain.latency_ms,
        P,
        case.C[np.ix_(model, model)],
        case.N,
        entry=case.entry,
        grid_ms=1.0,
        slow_down=slow_down,
        phases=[Phase(f"u{u}", i) for u, i in enumerate(model)],
    )
    expected, found = solve_chain(plain, case.B), solve_chain(system, case.B)
    assert found.throughput_tok_s == pytest.approx(expected.throughput_tok_s, rel=1e-12)
    assert found.mean_holding_ms == pytest.approx(expected.mean_holding_ms, rel=1e-12)


def test_a_fixed_length_of_one_is_a_sure_return():
    one = fixed_length(1, 6)
    plain = replace(one, phases=())
    assert one.plain is False
    assert plain.plain is True
    for B in ((1, 1), (1, 3), (2, 4)):
        expected, found = predict_chain(plain, B), predict_chain(one, B)
        assert found.throughput_tok_s == pytest.approx(expected.throughput_tok_s, rel=1e-12)
        assert found.states == expected.states
        assert found.ledger.total_ms == pytest.approx(expected.ledger.total_ms)


def test_fixed_lengths_of_one_request_have_a_closed_form():
    for K in (1, 2, 5):
        # 1 / p small steps, the last of which commits nothing, then K large ones.
        p, K_ms = 0.35, 27.9 * K
        expected = 1000 * ((1 - p) / p + K) / (6.0 / p + K_ms)
        assert solve_chain(fixed_length(K, 1, p), (1, 1)).throughput_tok_s == pytest.approx(
            expected, rel=1e-12
        )


@pytest.mark.parametrize("N", [1, 3])
def test_one_model_whose_phases_take_turns(N):
    """All requests in step: 2 ms, then 2 ms + N times 1.5 ms, then 2 ms; 5 tokens a round each."""
    P = np.roll(np.eye(3), 1, axis=1)
    system = phased(
        [0, 0, 0], P, [[0, 1, 0], [0, 0, 4], [0, 0, 0]], N, latency=(2.0,), added=[0, 1.5, 0],
        restart=0,
    )  # fmt: skip
    found = predict_chain(system, (1,))
    assert found.states == 3
    assert found.throughput_tok_s == pytest.approx(1000 * 5 * N / (6 + 1.5 * N), rel=1e-12)
    assert found.replies_per_s == pytest.approx(1000 * N / (6 + 1.5 * N), rel=1e-12)
    assert found.per_model[0].busy_fraction == pytest.approx(1.0)


def test_work_is_rounded_once_for_the_whole_batch():
    """Three times 0.04 ms vanish one by one on a grid of 0.1 ms, not together."""
    system = phased([0], [[1.0]], [[1.0]], 3, latency=(1.0,), added=[0.04])
    assert solve_chain(system, (1,)).throughput_tok_s == pytest.approx(3000 / 1.1)
    assert system.grid_error_percent == pytest.approx(100 * 0.05 / 1.04)


def test_the_bound_without_waiting_counts_what_phases_add():
    system = phased([0, 0], [[0, 1], [0.5, 0.5]], np.ones((2, 2)), 4, latency=(2.0,), added=[6, 0])
    # Three steps a round, 12 ms in all.
    assert no_waiting_tok_s(system) == pytest.approx(4 * 1000 * 3 / 12.0)


def test_a_largest_batch_needs_one_phase():
    with pytest.raises(
        UsageError, match=r"m1 has 3 phases and takes at most 2 of N = 4 .*simulate"
    ):
        solve_chain(fixed_length(3, 4, max_batch=[4, 2]), (1, 1))
    small_bound = solve_chain(fixed_length(3, 4, max_batch=[2, 4]), (1, 1))
    assert small_bound.finished[:, 0].max() == 2
    # An unreached second phase does not count.
    P = [[1.0, 0.0], [1.0, 0.0]]
    assert phased([0, 0], P, np.ones((2, 2)), 4, latency=(2.0,)).reached_phases == (0,)
    solve_chain(phased([0, 0], P, np.ones((2, 2)), 4, latency=(2.0,), max_batch=2), (1,))


def test_bits_of_many_phases():
    with pytest.raises(LimitError, match=r"17 phases of 2 models .* needs \d+ bits, 62"):
        solve_chain(fixed_length(16, 8), (1, 1))


def test_symbols_need_plain_routing_and_graphs_show_phases():
    system = fixed_length(2, 2)
    with pytest.raises(UsageError, match="one phase per model"):
        symbolic_throughput(system, (1, 1))
    assert routing_graph(system).nodes["u2"] == {"model": "m1", "entry": False, "reached": True}
    chain = solve_chain(system, (1, 1))
    graph = chain_graph(chain)
    assert len(graph) == chain.states
    assert "k=0,0,0 b=2,0,0 r=60,0" in graph


def test_p_is_refused():
    with pytest.raises(UsageError, match="this one has phases"):
        fixed_length(2, 2).with_p(0.1)
    assert r2r(2).with_p(0.1).plain
