"""Models that were idle take longer: closed forms, and what must not change."""

from dataclasses import replace

import numpy as np
import pytest
from chain_systems import cases, r2r
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel.markov import best_launch_rule, predict_chain, solve_chain
from trmodel.markov.metrics import no_waiting_tok_s
from trmodel.markov.symbolic import symbolic_throughput
from trmodel.search import tune_system
from trmodel.system import RoutedSystem

TURNS = dict(
    models=["a", "b"],
    latency_ms=[[4.0, 5.0], [9.0, 11.0]],
    transition_probability=[[0, 1], [1, 0]],
    committed_tokens=[[1, 1], [1, 1]],
)


@pytest.mark.parametrize("N", [1, 3])
def test_a_model_alone_is_never_idle(N):
    system = RoutedSystem(["m"], [[3.0, 4.0, 6.0]], [[1.0]], [[1.0]], N, wake_ms=[5.0])
    expected = 1000 * N / system.latency_ms[0, -1]
    assert solve_chain(system, (N,)).throughput_tok_s == pytest.approx(expected, rel=1e-12)


def test_models_that_take_turns_are_woken_each_time():
    """Of one request and of two that travel together: a, b, a, b, each after the other."""
    one = RoutedSystem(**TURNS, N=1, wake_ms=[1.5, 2.0])
    assert solve_chain(one, (1, 1)).throughput_tok_s == pytest.approx(2000 / (4 + 1.5 + 9 + 2))
    two = RoutedSystem(**TURNS, N=2, wake_ms=[1.5, 2.0])
    found = predict_chain(two, (1, 2))
    assert found.throughput_tok_s == pytest.approx(4000 / (5 + 1.5 + 11 + 2))
    # Waking is time in a running batch: nobody waits here.
    assert found.ledger.forward_ms == pytest.approx(1000 * 2 / found.throughput_tok_s)
    assert found.per_model[1].busy_fraction == pytest.approx((11 + 2) / (5 + 1.5 + 11 + 2))


@given(st.floats(0.01, 1.0), st.integers(0, 99), st.integers(0, 99))
def test_one_request_wakes_a_model_whenever_it_comes(p, small, large):
    """1 / p steps of the small model, the first of them woken, and one of the large model."""
    system = r2r(1, p, wake_ms=[small / 10, large / 10])
    cycle_ms = 6 / p + 27.9 + (small + large) / 10
    expected = 1000 / p / cycle_ms
    assert solve_chain(system, (1, 1)).throughput_tok_s == pytest.approx(expected, rel=1e-9)
    exact = symbolic_throughput(r2r(1, wake_ms=system.wake_ms), (1, 1))
    assert exact.at(p=p) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(cases(max_N=1, max_wake=4), st.integers(0, 2), st.integers(1, 5))
def test_one_request_is_not_faster_for_longer_waking(case, model, more):
    wake = list(case.wake)
    wake[model % case.M] += more
    before, after = (solve_chain(c.system, case.B) for c in (case, replace(case, wake=tuple(wake))))
    assert after.throughput_tok_s <= before.throughput_tok_s * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_without_waking_all_is_as_it_was(case):
    plain, zero = (solve_chain(c.system, case.B) for c in (case, replace(case, wake=(0,) * case.M)))
    assert plain.throughput_tok_s == zero.throughput_tok_s
    assert np.array_equal(plain.pi, zero.pi)
    assert not plain.enumeration.r[plain.enumeration.b == 0].any()


def test_several_requests_can_be_faster_than_one_that_never_waits_but_wakes():
    """So the bound is that of awake models, which thresholds do not reach."""
    system = r2r(4, wake_ms=[10.0, 10.0])
    assert no_waiting_tok_s(system) == no_waiting_tok_s(r2r(4))
    assert 4 * solve_chain(replace(system, N=1), (1, 1)).throughput_tok_s < no_waiting_tok_s(system)
    assert predict_chain(system, (1, 1)).no_waiting_percent < 100.0


@pytest.mark.parametrize("N", [2, 4, 6])
def test_the_best_rule_is_at_least_the_tuned_thresholds(N):
    system = r2r(N, grid_ms=0.3, wake_ms=[1.5, 4.2])
    row = tune_system(system, [N]).row(N)
    rule = best_launch_rule(system, row.B)
    assert rule.thresholds_tok_s == pytest.approx(row.throughput_tok_s, rel=1e-9)
    assert row.throughput_tok_s <= rule.bound_tok_s * (1 + 1e-9)
    assert rule.throughput_tok_s == pytest.approx(rule.bound_tok_s, rel=1e-7)
    assert rule.bound_tok_s < best_launch_rule(replace(system, wake_ms=None)).bound_tok_s
