"""Contention in the exact chain, against an event simulation that shares nothing with it."""

import random
from dataclasses import replace
from itertools import product
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from scipy.stats import t as student

from trmodel.errors import InputError
from trmodel.markov import solve_chain
from trmodel.system import RoutedSystem
from trmodel.system_checks import slow_down_table

TWO = dict(
    models=["small", "large"],
    latency_ms=[[5.137, 5.611, 6.029, 6.4], [26.491, 26.107, 26.853, 27.2]],
    transition_probability=[[0.65, 0.35], [1.0, 0.0]],
    committed_tokens=[[1, 0], [1, 0]],
)
PAIR = {(0, 1): (1.437, 1.213)}
ENSEMBLE = dict(
    models=["a", "b", "c"],
    latency_ms=[6.137, 12.311, 27.853],
    transition_probability=[[0.5, 0.3, 0.2]] * 3,
    committed_tokens=np.ones((3, 3)),
)
PAIRS = {(0, 1): (1.31, 1.17), (0, 2): (1.49, 1.09), (1, 2): (1.23, 1.13)}


def simulate(system: RoutedSystem, B, pairs, events=250_000, windows=40, seed=1):
    """Return a 99 % interval of throughput by batch means; continuous time, no grid."""
    rng = random.Random(seed)
    M, N = system.M, system.N
    waiting, batch, work = [0] * M, [0] * M, [0.0] * M
    ended_at = [-1.0] * M
    waiting[system.entry] = N
    P, C = system.transition_probability.tolist(), system.committed_tokens.tolist()

    def speed(i):
        product = 1.0
        for (a, b), (slow_a, slow_b) in pairs.items():
            if batch[a] and batch[b] and i in (a, b):
                product *= slow_a if i == a else slow_b
        return 1.0 / product

    history, now, tokens = [], 0.0, 0.0
    for _ in range(events):
        for i in range(M):
            if batch[i] == 0 and waiting[i] >= B[i]:
                batch[i], waiting[i] = waiting[i], 0
                work[i] = system.latency_ms[i, batch[i] - 1]
                if ended_at[i] < now:  # it was idle
                    work[i] += system.wake_ms[i]
        running = [i for i in range(M) if batch[i]]
        speeds = {i: speed(i) for i in running}
        first = min(running, key=lambda i: work[i] / speeds[i])
        passed = work[first] / speeds[first]
        now += passed
        for i in running:
            work[i] -= passed * speeds[i]
        for _ in range(batch[first]):
            u, j = rng.random(), 0
            while j < M - 1 and u >= P[first][j]:
                u -= P[first][j]
                j += 1
            waiting[j] += 1
            tokens += C[first][j]
        batch[first], ended_at[first] = 0, now
        history.append((now, tokens))
    start = history[events // 20]
    width = (now - start[0]) / windows
    rates, last, edge = [], start, start[0] + width
    for at in history[events // 20 :]:
        if at[0] >= edge:
            rates.append(1000 * (at[1] - last[1]) / (at[0] - last[0]))
            last, edge = at, edge + width
    half = student.ppf(0.995, len(rates) - 1) * stdev(rates) / len(rates) ** 0.5
    return mean(rates) - half, mean(rates) + half


@pytest.mark.parametrize(
    ("N", "B"), [(2, (1, 1)), (3, (1, 1)), (4, (1, 2)), (4, (1, 3)), (4, (2, 2)), (4, (3, 1))]
)
def test_two_models_agree_with_an_independent_simulation(N, B):
    system = RoutedSystem(**TWO, N=N, slow_down=PAIR, grid_ms=0.005)
    exact = solve_chain(system, B).throughput_tok_s
    low, high = simulate(system, B, PAIR)
    assert high / low < 1.02
    assert low <= exact <= high
    without = solve_chain(RoutedSystem(**TWO, N=N, grid_ms=0.005), B).throughput_tok_s
    assert not low <= without <= high, "the case does not tell contention from none"


@pytest.mark.parametrize("B", [(1, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("slow_down", [PAIR, {}])
def test_models_that_were_idle_take_longer(B, slow_down):
    system = RoutedSystem(**TWO, N=4, slow_down=slow_down, grid_ms=0.01, wake_ms=[1.74, 3.21])
    low, high = simulate(system, B, slow_down)
    assert high / low < 1.02
    assert low <= solve_chain(system, B).throughput_tok_s <= high
    awake = replace(system, wake_ms=None)
    assert not low <= solve_chain(awake, B).throughput_tok_s <= high


def test_three_models_agree_with_an_independent_simulation():
    system = RoutedSystem(**ENSEMBLE, N=3, slow_down=PAIRS, grid_ms=0.02)
    low, high = simulate(system, (1, 1, 2), PAIRS)
    assert low <= solve_chain(system, (1, 1, 2)).throughput_tok_s <= high


def plain_chain_throughput(units, P, C, N, B):
    """The chain without contention in whole numbers of time units: tokens per unit, two models."""

    def launched(k, b, r):
        k, b, r = list(k), list(b), list(r)
        for i in range(2):
            if b[i] == 0 and k[i] >= B[i]:
                b[i], r[i], k[i] = k[i], units[i][k[i] - 1], 0
        return tuple(k), tuple(b), tuple(r)

    states = [launched((N, 0), (0, 0), (0, 0))]
    index, rows, holding, reward = {states[0]: 0}, [], [], []
    for k, b, r in states:
        tau = min(r[i] for i in range(2) if b[i])
        ends = [i for i in range(2) if b[i] and r[i] == tau]
        row: dict = {}
        for moved in product(*(range(b[i] + 1) for i in ends)):
            p, k2, b2 = 1.0, list(k), list(b)
            for i, to_large in zip(ends, moved, strict=True):
                p *= binom.pmf(to_large, b[i], P[i][1])
                k2[0] += b[i] - to_large
                k2[1] += to_large
                b2[i] = 0
            if p == 0.0:
                continue
            r2 = [r[i] - tau if b2[i] else 0 for i in range(2)]
            state = launched(k2, b2, r2)
            if state not in index:
                index[state] = len(states)
                states.append(state)
            row[index[state]] = row.get(index[state], 0.0) + p
        rows.append(row)
        holding.append(tau)
        reward.append(sum(b[i] * np.dot(P[i], C[i]) for i in ends))
    A = np.zeros((len(states) + 1, len(states)))
    for s, row in enumerate(rows):
        for target, p in row.items():
            A[target, s] += p
    A[:-1] -= np.eye(len(states))
    A[-1] = 1.0
    right = np.zeros(len(states) + 1)
    right[-1] = 1.0
    pi = np.linalg.lstsq(A, right, rcond=None)[0]
    return pi @ reward / (pi @ holding), len(states)


@pytest.mark.parametrize(
    ("N", "B"), [(1, (1, 1)), (2, (1, 1)), (3, (1, 2)), (3, (2, 1)), (4, (1, 3)), (4, (2, 2))]
)
def test_a_slow_down_of_one_is_the_plain_chain(N, B):
    units = [[60, 62, 65, 69], [279, 281, 290, 301]]
    system = RoutedSystem(
        **TWO | {"latency_ms": np.array(units) / 10}, N=N, slow_down={(0, 1): (1.0, 1.0)}
    )
    P, C = TWO["transition_probability"], TWO["committed_tokens"]
    expected, states = plain_chain_throughput(units, P, C, N, B)
    chain = solve_chain(system, B, solver="direct")
    assert chain.states == states
    assert chain.throughput_tok_s == pytest.approx(expected * 10_000, rel=1e-12)


FACTORS = st.floats(1.0, 2.5)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(FACTORS, FACTORS, st.floats(1.0, 1.5), st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2)]))
def test_throughput_falls_when_slow_downs_rise(s_small, s_large, more, B):
    # Up to 5 %: a slower model can gather larger batches, as a threshold does.
    at = [
        solve_chain(
            RoutedSystem(**TWO, N=3, slow_down={(0, 1): (s_small * f, s_large * f)}), B
        ).throughput_tok_s
        for f in (1.0, more)
    ]
    assert at[1] <= at[0] * 1.05
    alone = solve_chain(RoutedSystem(**TWO, N=3), B).throughput_tok_s
    assert at[1] >= alone / (more * max(s_small, s_large)) * 0.95


@settings(deadline=None, max_examples=15, derandomize=True)
@given(
    st.permutations(range(3)),
    st.lists(FACTORS, min_size=6, max_size=6),
    st.sampled_from([(1, 1, 1), (1, 2, 1), (1, 1, 2)]),
)
def test_names_and_order_of_models_do_not_matter(order, factors, B):
    pairs = dict(zip(PAIRS, zip(factors[::2], factors[1::2], strict=True), strict=True))
    system = RoutedSystem(**ENSEMBLE, N=2, slow_down=pairs, grid_ms=0.5)
    place = {old: new for new, old in enumerate(order)}
    P = system.transition_probability[np.ix_(order, order)]
    other = RoutedSystem(
        [system.models[i] for i in order],
        [ENSEMBLE["latency_ms"][i] for i in order],
        P,
        np.ones((3, 3)),
        2,
        entry=place[0],
        slow_down={(place[i], place[j]): s for (i, j), s in pairs.items()},
        grid_ms=0.5,
    )
    expected = solve_chain(system, B)
    found = solve_chain(other, [B[i] for i in order])
    assert found.states == expected.states
    assert found.throughput_tok_s == pytest.approx(expected.throughput_tok_s, rel=1e-9)


def test_slow_downs_of_pairs_multiply_in_larger_sets():
    table = slow_down_table(3, PAIRS)
    assert table[0b111] == pytest.approx([1.31 * 1.49, 1.17 * 1.23, 1.09 * 1.13])
    assert table[0b101].tolist() == [1.49, 1.0, 1.09]
    assert np.all(table[[0b000, 0b001, 0b010, 0b100]] == 1.0)


def test_a_system_without_unreached_models_keeps_the_slow_downs_of_the_others():
    P = [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    system = RoutedSystem(**ENSEMBLE | {"transition_probability": P}, N=2, slow_down=PAIRS)
    kept = system.restricted()
    assert kept.models == ("a", "c")
    assert kept.slow_down.tolist() == [[1, 1], [1, 1], [1, 1], [1.49, 1.09]]
    two = RoutedSystem(
        ["a", "c"],
        [6.137, 27.853],
        [[0.5, 0.5], [1, 0]],
        np.ones((2, 2)),
        2,
        slow_down={(0, 1): (1.49, 1.09)},
    )
    expected = solve_chain(two, (1, 1)).throughput_tok_s
    assert solve_chain(system, (1, 1, 1)).throughput_tok_s == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("slow_down", "words"),
    [
        ({(0, 1): (0.9, 1.0)}, "between 1 and 100"),
        ({(0, 1): (1.0, 101.0)}, "between 1 and 100"),
        ({(0, 1): (1.0, float("nan"))}, "between 1 and 100"),
        ({(0, 0): (1.1, 1.1)}, "two different models below 2"),
        ({(0, 2): (1.1, 1.1)}, "two different models below 2"),
        (np.ones((3, 2)), "must be 4 x 2"),
    ],
)
def test_slow_downs_are_checked(slow_down, words):
    with pytest.raises(InputError, match=words):
        RoutedSystem(**TWO, N=2, slow_down=slow_down)
