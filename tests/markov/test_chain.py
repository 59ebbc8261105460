"""Invariants of every chain, and systems whose throughput is known in closed form."""

from dataclasses import replace

import numpy as np
import pytest
from chain_systems import cases, r2r
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel.errors import InfeasibleError, UsageError
from trmodel.markov import solve_chain
from trmodel.markov.transitions import compositions, split_table
from trmodel.system import RoutedSystem

EXAMPLES = settings(max_examples=60)
ANY = cases(connected=False)


@EXAMPLES
@given(ANY)
def test_rows_are_distributions_and_pi_is_one(case):
    chain = solve_chain(case.system, case.B)
    T = chain.transition
    assert T.data.min() > 0.0
    assert T.sum(axis=1) == pytest.approx(np.ones(chain.states), abs=1e-12)
    assert chain.pi.min() >= 0.0
    assert chain.pi.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.abs(T.T @ chain.pi - chain.pi).sum() <= 1e-10


@EXAMPLES
@given(ANY)
def test_states_obey_their_definition(case):
    chain = solve_chain(case.system, case.B)
    system, e = chain.system, chain.enumeration
    B, idle = np.array(chain.B), e.b == 0
    assert ((e.k + e.b).sum(axis=1) == system.N).all()
    assert (e.k >= 0).all()
    assert ((e.k < B) & (e.r == 0))[idle].all()
    assert (e.b <= np.array(system.max_batch)).all()
    work = system.latency_units[np.arange(system.M), np.maximum(e.b, 1) - 1]
    assert ((e.r > 0) & (e.r <= work))[~idle].all()
    running = np.where(idle, np.iinfo(np.int32).max, e.r)
    assert (e.holding_units == running.min(axis=1)).all()
    assert len({row.tobytes() for row in np.hstack([e.k, e.b, e.r])}) == chain.states


@EXAMPLES
@given(ANY, st.sampled_from([0.1, 0.5, 3.0, 10.0]))
def test_slower_steps_divide_the_throughput(case, factor):
    chain = solve_chain(case.system, case.B)
    scaled = solve_chain(replace(case, grid_ms=factor).system, case.B)
    assert scaled.states == chain.states
    expected = chain.throughput_tok_s / factor
    assert scaled.throughput_tok_s == pytest.approx(expected, rel=1e-10)


@EXAMPLES
@given(ANY, st.integers(2, 5))
def test_a_finer_grid_changes_nothing(case, finer):
    chain = solve_chain(case.system, case.B)
    fine = solve_chain(replace(case.system, grid_ms=1.0 / finer), case.B)
    assert fine.states == chain.states
    assert fine.throughput_tok_s == pytest.approx(chain.throughput_tok_s, rel=1e-10)


@EXAMPLES
@given(ANY, st.data())
def test_the_order_of_models_changes_nothing(case, data):
    other = case.relabelled(data.draw(st.permutations(range(case.M))))
    one, two = solve_chain(case.system, case.B), solve_chain(other.system, other.B)
    assert one.states == two.states
    assert two.throughput_tok_s == pytest.approx(one.throughput_tok_s, rel=1e-10, abs=1e-10)


@EXAMPLES
@given(ANY)
def test_tokens_count_in_proportion(case):
    chain = solve_chain(case.system, case.B)
    doubled = solve_chain(replace(case, C=2.0 * case.C).system, case.B)
    assert doubled.throughput_tok_s == pytest.approx(2.0 * chain.throughput_tok_s, rel=1e-12)


def test_a_shared_split_table_changes_nothing():
    system = r2r(5)
    splits = split_table(system)
    for B in [(1, 1), (1, 4), (2, 3)]:
        assert (solve_chain(system, B, splits=splits).pi == solve_chain(system, B).pi).all()


@pytest.mark.parametrize("total", [0, 1, 4])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_compositions(total, parts):
    rows = compositions(total, parts).tolist()
    every = np.ndindex(*[total + 1] * parts)
    assert sorted(map(tuple, rows)) == [counts for counts in every if sum(counts) == total]


def test_splits_of_a_large_batch_are_a_distribution():
    splits = split_table(r2r(400))
    rows = slice(splits.first[0, 400], splits.first[0, 401])
    p, arrivals = splits.probability[rows], splits.arrivals[rows]
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert p @ arrivals[:, 1] == pytest.approx(400 * 0.35, rel=1e-10)
    assert p @ arrivals[:, 1] ** 2 - (400 * 0.35) ** 2 == pytest.approx(400 * 0.35 * 0.65, rel=1e-8)


class TestClosedForms:
    @pytest.mark.parametrize("N", [1, 2, 7])
    @pytest.mark.parametrize("threshold", [1, "N"])
    def test_one_model(self, N, threshold):
        latency = [3.0 + 0.5 * b for b in range(1, N + 1)]
        system = RoutedSystem(["only"], [latency], [[1]], [[1.5]], N)
        chain = solve_chain(system, [N if threshold == "N" else 1])
        assert chain.throughput_tok_s == pytest.approx(1500 * N / latency[-1], rel=1e-12)

    def test_one_model_with_a_largest_batch(self):
        """Of N = 5 the two left over wait, then three run: all batches are full."""
        system = RoutedSystem(["only"], [[4.0, 5.0, 6.0]], [[1]], [[1]], 5, max_batch=3)
        assert solve_chain(system, [1]).throughput_tok_s == pytest.approx(500.0, rel=1e-12)

    @pytest.mark.parametrize("p", [0.05, 0.35, 1.0])
    def test_one_request(self, p):
        """A request alone never waits: 1 / p small steps and a large one give 1 / p tokens."""
        throughput = solve_chain(r2r(1, p), (1, 1)).throughput_tok_s
        assert throughput == pytest.approx(1000 / (6.0 + p * 27.9), rel=1e-12)

    @pytest.mark.parametrize("B", [(1, 1), (1, 4)])
    def test_no_hand_over(self, B):
        throughput = solve_chain(r2r(4, p=0.0), B).throughput_tok_s
        assert throughput == pytest.approx(1000 * 4 / 6.0, rel=1e-12)

    def test_a_deterministic_cycle(self):
        """All requests move as one batch through all models."""
        cycle = [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
        system = RoutedSystem(["a", "b", "c"], [2.0, 3.0, 5.0], cycle, np.eye(3)[[1, 2, 0]], 4)
        chain = solve_chain(system, (1, 2, 2))
        assert chain.states == 3
        assert chain.throughput_tok_s == pytest.approx(1000 * 4 * 3 / 10.0, rel=1e-12)

    def test_a_pipeline_of_two_half_batches(self):
        """Batches of at most two of four requests: both models always work, in step."""
        system = RoutedSystem(
            ["a", "b"], [5.0, 5.0], [[0, 1], [1, 0]], [[0, 0], [1, 0]], 4, max_batch=2
        )
        assert solve_chain(system, (1, 1)).throughput_tok_s == pytest.approx(400.0, rel=1e-12)


class TestRefusal:
    def test_thresholds_that_can_deadlock(self):
        with pytest.raises(InfeasibleError, match=r"B = 3,3 can deadlock at N = 4"):
            solve_chain(r2r(4), (3, 3))

    @pytest.mark.parametrize("B", [(1,), (1, 1, 1), (0, 1), (1, 1.5), (1, True)])
    def test_thresholds_that_make_no_sense(self, B):
        with pytest.raises(UsageError, match="B"):
            solve_chain(r2r(4), B)
