"""The best launch rule against published figures, every rule of tiny systems, and itself."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from chain_systems import cases, r2r
from decision_reference import all_rules, decision_process, gain
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from trmodel.errors import InfeasibleError, InputError, LimitError, NotConvergedError, UsageError
from trmodel.launch_table import load_launch_table
from trmodel.markov import Limits, best_launch_rule, solve_chain
from trmodel.markov.best_rule import require_bounded
from trmodel.markov.decision_solver import solve_decisions
from trmodel.markov.decisions import Decisions
from trmodel.phases import Phase
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
    single = best_launch_rule(replace(system, max_batch=1))
    assert single.bound_tok_s == pytest.approx(1 / 1e-3)


def check(rule):
    """The bracket is tight, and the rule's own stationary distribution agrees with it."""
    assert rule.lower_tok_s <= rule.bound_tok_s * (1 + 1e-12)
    assert rule.lower_tok_s == pytest.approx(rule.bound_tok_s, rel=1e-7)
    assert rule.throughput_tok_s == pytest.approx(rule.bound_tok_s, rel=1e-7)


@given(st.one_of(cases(max_N=3), cases(max_N=3, max_wake=3)), st.sampled_from(ACTIONS))
@settings(max_examples=200, deadline=None)
def test_no_thresholds_are_better(case, actions):
    system = case.system
    if not system.restricted().tokens_per_step.any():
        with pytest.raises(InputError, match="no token is committed"):
            best_launch_rule(system)
        return
    rule = best_launch_rule(system, case.B, actions=actions)
    check(rule)
    for B in feasible_thresholds(system):
        assert solve_chain(system, B).throughput_tok_s <= rule.bound_tok_s * (1 + 1e-9)
    if actions == "part":
        whole = best_launch_rule(system, actions="all")
        assert whole.bound_tok_s <= rule.bound_tok_s * (1 + 1e-7)


@given(
    cases(max_N=4, max_wake=2), st.floats(1.0, 3.0), st.floats(1.0, 3.0), st.sampled_from(ACTIONS)
)
@settings(max_examples=60, deadline=None)
def test_no_thresholds_are_better_where_models_slow_each_other(case, slow, fast, actions):
    pairs = {(0, case.M - 1): (slow, fast)} if case.M > 1 else None
    system = replace(case.system, slow_down=pairs)
    assume(system.restricted().tokens_per_step.any())
    rule = best_launch_rule(system, case.B, actions=actions)
    check(rule)
    for B in feasible_thresholds(system):
        assert solve_chain(system, B).throughput_tok_s <= rule.bound_tok_s * (1 + 1e-9)


TINY = [
    ([[3, 3], [7, 7]], [[0.65, 0.35], [1.0, 0.0]], [[1, 0], [1, 0]], [2, 2]),
    ([[2, 5], [3, 4]], [[0.5, 0.5], [0.3, 0.7]], [[1, 2], [1, 1]], [2, 2]),
    ([[4, 4], [5, 5]], [[0.0, 1.0], [1.0, 0.0]], [[1, 1], [1, 1]], [2, 2]),
    ([[2, 9], [4, 20]], [[0.2, 0.8], [0.9, 0.1]], [[1, 0], [3, 0]], [2, 1]),
    ([[1, 9], [1, 20]], [[0.2, 0.8], [0.9, 0.1]], [[1, 0], [3, 0]], [2, 2]),
]


@pytest.mark.parametrize("tiny", TINY)
@pytest.mark.parametrize(("actions", "wake"), [("all", [0, 0]), ("part", [0, 0]), ("all", [1, 4])])
def test_against_every_rule_of_a_tiny_system(tiny, actions, wake, tmp_path):
    latency, P, C, max_batch = tiny
    system = RoutedSystem(
        ["a", "b"], latency, P, C, 2, max_batch=max_batch, grid_ms=1.0, wake_ms=wake
    )
    start, process = decision_process(latency, P, C, 2, max_batch, 0, actions == "part", wake)
    assert prod(map(len, process.values())) < 20_000
    best = max(gain(start, process, rule) for rule in all_rules(process))
    rule = best_launch_rule(system, actions=actions)
    assert rule.states == len(process)
    assert len(rule.decisions.tau) == sum(map(len, process.values()))
    assert rule.bound_tok_s == pytest.approx(1000 * best, rel=1e-8)
    rule.table.save(tmp_path / "rule.json")
    assert exported_gain(tmp_path / "rule.json", start, process) == pytest.approx(best, rel=1e-8)


def exported_gain(path, start, process):
    """Tokens per unit of time of a saved rule, by the plain reference."""
    table = load_launch_table(path)
    return gain(start, process, lambda state: table.launches_at(*zip(*state, strict=True)))


def test_a_saved_rule_gives_the_bound(tmp_path):
    system = replace(r2r(4), grid_ms=0.3)
    rule = best_launch_rule(system)
    rule.table.save(tmp_path / "rule.json")
    units = [[20] * 4, [93] * 4]
    P, C = system.transition_probability, system.committed_tokens
    start, process = decision_process(units, P, C, 4, (4,) * 2, 0, False)
    table = load_launch_table(tmp_path / "rule.json")

    def launches(state):
        waiting, running, remaining = zip(*state, strict=True)
        return table.launches_at(waiting, running, np.array(remaining) * 0.3)

    found = gain(start, process, launches) / 0.3e-3
    assert found == pytest.approx(rule.bound_tok_s, rel=1e-8)
    check(rule)


def test_how_the_rule_differs_from_thresholds():
    rule = best_launch_rule(r2r(4), (1, 3))
    # By hand: with N = 4 it differs where the small model holds as the large one is nearly done.
    assert 0 < rule.differing_percent < 5
    points = {(point.model, point.running): point for point in rule.launch_points()}
    small = points[0, (0, 3)]
    assert small.smallest == 1
    assert small.remaining_ms == pytest.approx(9.9)
    large = points[1, (0, 0)]
    assert large.smallest == 3
    assert large.remaining_ms is None
    small_alone = points[0, (0, 0)]
    assert small.decisions_percent < small_alone.decisions_percent
    same = best_launch_rule(r2r(2), (1, 2))
    assert same.differing_percent == 0.0
    assert best_launch_rule(r2r(2), (1, 1)).differing_percent > 0.0


def test_models_that_are_never_reached_are_left_out():
    system = RoutedSystem(
        ["a", "b", "never"],
        [2.0, 5.0, 1.0],
        [[0.5, 0.5, 0], [1, 0, 0], [1, 0, 0]],
        np.ones((3, 3)),
        3,
    )
    rule = best_launch_rule(system, (1, 2, 1))
    assert rule.B == (1, 2)
    assert rule.table.models == ("a", "b")
    assert rule.bound_tok_s >= solve_chain(system, (1, 2, 1)).throughput_tok_s


def test_what_is_refused():
    with pytest.raises(UsageError, match="actions: some is not one of all, part"):
        best_launch_rule(r2r(4), actions="some")
    with pytest.raises(InfeasibleError, match="can deadlock"):
        best_launch_rule(r2r(4), (4, 4))
    absorbing = [[0.5, 0.25, 0.25], [0, 1, 0], [0, 0, 1]]
    with pytest.raises(UsageError, match="chance decides between several"):
        best_launch_rule(RoutedSystem(list("abc"), [1, 2, 3], absorbing, np.ones((3, 3)), 2))
    silent = [[0, 1], [0, 0]]
    lost = RoutedSystem(["a", "b"], [1, 2], [[0, 1], [0, 1]], silent, 2)
    with pytest.raises(InputError, match="in the long run no token is committed"):
        best_launch_rule(lost)


def test_several_phases_per_model_are_refused():
    cycle = [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    stages = [Phase("probe", 0), Phase("write", 0), Phase("help", 1)]
    phased = RoutedSystem(["a", "b"], [1.0, 2.0], cycle, np.ones((3, 3)), 2, phases=stages)
    with pytest.raises(UsageError, match="one phase per model; this routing has 3 phases for 2"):
        require_bounded(phased)


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (Limits(states=500), "500 states"),
        (Limits(transitions=1_500), "1,500 transitions"),
        (Limits(transitions=800), "800 transitions"),
    ],
)
def test_limits_are_named(limits, named):
    with pytest.raises(LimitError, match=f"N = 4: .* the limit of {named}"):
        best_launch_rule(r2r(4), limits=limits)
    assert best_launch_rule(r2r(2), limits=limits).states == 12


def test_a_state_that_does_not_fit_into_an_integer():
    system = RoutedSystem(
        [f"m{i}" for i in range(6)], [1e5] * 6, np.full((6, 6), 1 / 6), np.ones((6, 6)), 9
    )
    with pytest.raises(LimitError, match="bits, 62 are supported"):
        best_launch_rule(system)


def test_no_bound_rather_than_a_wrong_one():
    """Routing so extreme that the values of states do not fit into double precision."""
    P = np.array([[1e-13, 1 - 2e-13, 1e-13], [1 - 2e-13, 1e-13, 1e-13], [1e-13, 1e-13, 1 - 2e-13]])
    system = RoutedSystem(list("abc"), [3.1, 3.0, 2.8], P, [[1, 1, 1], [2, 2, 2], [0, 0, 1]], 3)
    with pytest.raises(NotConvergedError, match="the best launch rule"):
        best_launch_rule(system)


def made(first_action, tau, tokens, outcome):
    none = np.zeros((len(first_action) - 1, 1), dtype=np.int32)
    launches = np.zeros((len(tau), 1), dtype=np.int32)
    matrix = csr_array(np.array(outcome, dtype=float))
    arrays = (np.array(first_action), launches, np.array(tau, float), np.array(tokens, float))
    return Decisions(none, none, none, *arrays, matrix)


def test_a_rule_with_several_recurrent_classes_is_led_to_the_best_one():
    """Two states that may stay or change: staying in the second earns most."""
    decisions = made([0, 2, 4], [1, 1, 1, 2], [1, 0, 0, 6], [[1, 0], [0, 1], [1, 0], [0, 1]])
    optimum = solve_decisions(decisions, np.array([0, 3]))
    assert optimum.action.tolist() == [1, 3]
    assert optimum.lower == pytest.approx(3.0)
    assert optimum.upper == pytest.approx(3.0)


def test_a_periodic_rule_is_no_obstacle():
    decisions = made([0, 1, 2], [1, 3], [1, 5], [[0, 1], [1, 0]])
    optimum = solve_decisions(decisions, np.array([0, 1]))
    assert optimum.lower == pytest.approx(1.5)
    assert optimum.upper == pytest.approx(1.5)


def test_states_that_cannot_lead_to_a_common_one_are_refused():
    decisions = made([0, 1, 2], [1, 1], [1, 2], [[1, 0], [0, 1]])
    with pytest.raises(NotConvergedError, match="depends on where the system starts"):
        solve_decisions(decisions, np.array([0, 1]))
