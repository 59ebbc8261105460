from dataclasses import replace

import numpy as np
import pytest

from trmodel.launch import is_live
from trmodel.markov import solve_chain
from trmodel.search import Effort, feasible_thresholds
from trmodel.search.proposals import neighbours, proposals
from trmodel.search.racing import cycle_ms, enter, extended, race, sharpened
from trmodel.search.simulated import RowSearch
from trmodel.system import RoutedSystem


def random_system(seed: int, N: int | None = None) -> RoutedSystem:
    """Two models with random routing and latencies that grow with the batch."""
    rng = np.random.default_rng(seed)
    N = int(rng.integers(4, 13)) if N is None else N
    p, q = rng.uniform(0.05, 0.6), rng.uniform(0.6, 1.0)
    first, second = rng.uniform(3, 10), rng.uniform(10, 40)
    growth = rng.uniform(0, 0.05, 2)[:, None] * np.arange(N)
    latency = [first * (1 + growth[0]), second * (1 + growth[1])]
    return RoutedSystem(["small", "large"], latency, [[1 - p, p], [q, 1 - q]], np.ones((2, 2)), N)


@pytest.mark.parametrize("seed", range(10))
def test_the_winner_is_the_exact_optimum_or_as_good(seed):
    system = random_system(seed)
    row = RowSearch().row(system, {})
    best = max(solve_chain(system, B).throughput_tok_s for B in feasible_thresholds(system))
    own = solve_chain(system, row.B).throughput_tok_s
    assert own >= best * (1 - 1.001e-3)
    assert row.search == "racing"
    assert row.evaluated == len(feasible_thresholds(system))
    assert row.choice.best.method == "exact"
    assert row.throughput_tok_s == pytest.approx(own, rel=1e-12)


def test_what_is_clearly_worse_is_dropped_and_the_best_is_not():
    system = random_system(1, N=8)
    vectors = feasible_thresholds(system)
    exact = {B: solve_chain(system, B).throughput_tok_s for B in vectors}
    outcome = race(system, vectors)
    finalists = {runner.B for runner in outcome.finalists}
    assert max(exact, key=exact.__getitem__) in finalists
    worst = sorted(exact, key=exact.__getitem__)[:5]
    assert not finalists & set(worst)
    assert len(outcome.finalists) + len(outcome.dropped) == len(vectors)


def test_intervals_of_long_runs_hold_the_exact_throughput_and_are_as_narrow_as_wanted():
    system = random_system(2, N=6)
    exact = solve_chain(system, (1, 2)).throughput_tok_s
    held = 0
    for seed in range(20):
        (runner,) = sharpened(
            extended([enter(system, (1, 2), seed)]), Effort(precision_percent=0.5)
        )
        found = runner.interval
        assert found.half_width <= 0.005 * found.value
        held += found.low <= exact <= found.high
    assert held >= 16


def test_the_same_seed_gives_the_same_race():
    system = random_system(3, N=7)
    vectors = feasible_thresholds(system)
    first, again = (race(system, vectors, seed=5, effort=Effort(work=1e6)) for _ in range(2))
    assert [(r.B, r.throughput_tok_s) for r in first.finalists] == [
        (r.B, r.throughput_tok_s) for r in again.finalists
    ]


def test_a_race_ends_when_its_work_is_spent():
    system = random_system(4, N=8)
    spent: list[float] = []
    outcome = race(system, feasible_thresholds(system), effort=Effort(work=3e5), check=spent.append)
    assert len(spent) <= 2
    assert not outcome.decided


def test_large_systems_are_proposed_a_selection_of_live_vectors():
    system = random_system(5, N=200)
    found = proposals(system, {})
    assert found.step > 1
    assert len(found.vectors) == len(set(found.vectors)) < 100
    assert (1, 1) in found.vectors
    assert all(is_live(B, 200) for B in found.vectors)
    fixed = proposals(system, {1: 7})
    assert {B[1] for B in fixed.vectors} == {7}
    near = neighbours((1, 50), 8, [0, 1], 200)
    assert set(near) == {(1, 42), (1, 58), (9, 50), (9, 42)}
    assert neighbours((1, 200), 1, [1], 200) == [(1, 199)]


def test_a_large_row_is_simulated_with_an_interval_and_beats_the_grid():
    system = random_system(6, N=120)
    row = RowSearch(effort=Effort(work=3e7)).row(system, {})
    best = row.choice.best
    assert best.method == "simulated"
    assert best.states is None
    low, high = best.throughput_low_tok_s, best.throughput_high_tok_s
    assert low is not None
    assert high is not None
    assert low < row.throughput_tok_s < high
    assert row.gain_percent > -0.2
    assert is_live(row.B, 120)


def test_a_cycle_lasts_longer_the_rarer_a_model_is_visited():
    system = random_system(7, N=4).with_p(0.5)
    assert cycle_ms(system.with_p(0.01)) > 10 * cycle_ms(system)
    assert cycle_ms(system) >= system.latency_ms.max()
    assert cycle_ms(replace(system, wake_ms=[3.0, 50.0])) > cycle_ms(system) + 50.0


def test_handoff_delays_count_and_are_said():
    system = random_system(8, N=5)
    slow = RoutedSystem(
        system.models, list(system.latency_ms), system.transition_probability,
        system.committed_tokens, 5, handoff_ms=[[0, 30], [30, 0]],
    )  # fmt: skip
    row, without = (RowSearch(effort=Effort(work=1e7)).row(s, {}) for s in (slow, system))
    assert row.choice.best.method == "simulated"
    assert "with handoff delays" in row.notes
    assert row.throughput_tok_s < without.throughput_tok_s
