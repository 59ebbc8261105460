"""The best launch rule against published figures, every rule of tiny systems, and itself."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from chain_systems import cases, r2r
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel.errors import InfeasibleError, InputError, LimitError, NotConvergedError, UsageError
from trmodel.markov import Limits, best_launch_rule, solve_chain
from trmodel.markov.decision_solver import solve_decisions
from trmodel.search import feasible_thresholds
from trmodel.system import RoutedSystem

ACTIONS = ["all", "part"]


def best_thresholds(system):
    found = {B: solve_chain(system, B).throughput_tok_s for B in feasible_thresholds(system)}
    B = max(found, key=found.get)
    return B, found[B]


@pytest.mark.parametrize("N", [2, 4, 6, 8])
def test_gain_over_the_best_thresholds_of_the_published_system(published, N):
    expected = published["computed"]["best_possible_launch_rule"]["gain_percent"][str(N)]
    B, throughput = best_thresholds(r2r(N))
    rule = best_launch_rule(r2r(N), B)
    assert rule.gap_percent(throughput) == pytest.approx(expected, abs=0.02)
    assert rule.thresholds_tok_s == pytest.approx(throughput)
    assert best_launch_rule(r2r(N)).bound_tok_s == pytest.approx(rule.bound_tok_s, rel=1e-8)


def test_launching_a_part_gains_nothing_in_the_published_system():
    for N in (4, 8):
        whole, part = (best_launch_rule(r2r(N), actions=actions) for actions in ACTIONS)
        assert part.states > whole.states
        assert part.bound_tok_s == pytest.approx(whole.bound_tok_s, rel=1e-8)


def test_launching_a_part_can_gain():
    """A step of two takes ten times as long as two steps of one: such a batch is best split."""
    system = RoutedSystem(["m"], [[1.0, 20.0]], [[1.0]], [[1]], 2)
    whole, part = (best_launch_rule(system, actions=actions) for actions in ACTIONS)
    assert whole.bound_tok_s == pytest.approx(2 / 20e-3)
    assert part.bound_tok_s == pytest.approx(1 / 1e-3)
    assert best_launch_rule(replace_max_batch(system, 1)).bound_tok_s == pytest.approx(1 / 1e-3)


def replace_max_batch(system, size):
    return replace(system, max_batch=size)


def check(rule):
    """The bracket is tight, and the rule's own stationary distribution agrees with it."""
    assert rule.lower_tok_s <= rule.bound_tok_s
    assert rule.lower_tok_s == pytest.approx(rule.bound_tok_s, rel=1e-7)
    assert rule.throughput_tok_s == pytest.approx(rule.bound_tok_s, rel=1e-7)


@given(cases(max_N=3), st.sampled_from(ACTIONS))
@settings(max_examples=150, deadline=None)
def test_no_thresholds_are_better(case, actions):
    system = case.system
    if not system.restricted().tokens_per_step.any():
        with pytest.raises(InputError, match="no token is ever committed"):
            best_launch_rule(system)
        return
    rule = best_launch_rule(system, case.B, actions=actions)
    check(rule)
    for B in feasible_thresholds(system):
        assert solve_chain(system, B).throughput_tok_s <= rule.bound_tok_s * (1 + 1e-9)
    if actions == "part":
        whole = best_launch_rule(system, actions="all")
        assert whole.bound_tok_s <= rule.bound_tok_s * (1 + 1e-7)
