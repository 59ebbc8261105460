"""Throughput as a rational function: known formulas, the numeric chain, and what is refused."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import sympy
from chain_systems import cases, r2r
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trmodel.errors import InfeasibleError, LimitError, UsageError
from trmodel.markov import solve_chain
from trmodel.markov.symbolic import symbolic_throughput
from trmodel.system import RoutedSystem

p = sympy.Symbol("p")
THREE = RoutedSystem(
    ["a", "b", "c"],
    [1.0, 2.0, 3.0],
    [[0.5, 0.3, 0.2], [0.25, 0.5, 0.25], [1 / 3, 1 / 3, 1 / 3]],
    [[1, 0.5, 0], [1, 1, 1], [1, 2, 1]],
    2,
    grid_ms=1.0,
)


def values_of(result, system):
    """The system's own value of each symbol."""
    P = system.transition_probability
    return {
        str(s): P[0, 1] if str(s) == "p" else P[int(str(s)[-2]), int(str(s)[-1])]
        for s in result.symbols
    }


def test_a_request_alone():
    result = symbolic_throughput(r2r(1), (1, 1))
    assert result.symbols == (p,)
    assert result.states == 2
    assert sympy.simplify(result.expression - 1000 / (6 + p * sympy.Rational("27.9"))) == 0


def test_two_requests_with_the_large_model_waiting_for_both():
    """By hand, with three states.

    Both at the small model (6 ms, commits 2 (1 - p)); one of them handed over, the other alone
    (6 ms, commits 1 - p, until it is handed over too); both at the large model (27.9 ms,
    commits 2). A cycle has 1 / (2 p - p^2) steps of the first kind, of which 2 p (1 - p) lead to
    the second, which lasts 1 / p steps.
    """
    first = 1 / (2 * p - p**2)
    second = first * 2 * p * (1 - p) / p
    tokens = first * 2 * (1 - p) + second * (1 - p) + 2
    time = 6 * (first + second) + sympy.Rational("27.9")
    result = symbolic_throughput(r2r(2), (1, 2))
    assert result.states == 3
    assert sympy.simplify(result.expression - 1000 * tokens / time) == 0


@pytest.mark.parametrize(
    ("N", "B"),
    [(2, (1, 1)), (2, (2, 1)), (3, (1, 2)), (4, (1, 2)), (4, (2, 2)), (5, (2, 3)), (6, (1, 4))],
)
def test_agrees_with_the_numeric_chain_for_every_p(N, B):
    result = symbolic_throughput(r2r(N), B)
    assert result.states == solve_chain(r2r(N), B).states
    for value in (0.001, 0.05, 0.35, 0.5, 0.9):
        numeric = solve_chain(r2r(N, value), B).throughput_tok_s
        assert result.at(p=value) == pytest.approx(numeric, rel=1e-12)


@settings(max_examples=60)
@given(st.one_of(cases(max_N=3, max_units=3), cases(max_N=3, max_units=3, max_wake=2)))
def test_agrees_with_the_numeric_chain_on_random_systems(case):
    chain = solve_chain(case.system, case.B)
    assume(chain.states <= 12)
    result = symbolic_throughput(case.system, case.B)
    assert result.states == chain.states
    exact = result.at(**values_of(result, case.system))
    assert exact == pytest.approx(chain.throughput_tok_s, rel=1e-12, abs=1e-12)


@pytest.fixture(scope="module")
def of_three_models():
    return symbolic_throughput(THREE, (1, 1, 2))


@settings(max_examples=30)
@given(p_01=st.floats(0.01, 0.98), p_02=st.floats(0.01, 0.98))
def test_three_models_have_a_symbol_for_each_hand_over_of_the_entry(of_three_models, p_01, p_02):
    assume(p_01 + p_02 < 0.99)
    P = np.array(THREE.transition_probability)
    P[0] = [1.0 - p_01 - p_02, p_01, p_02]
    assert [s.name for s in of_three_models.symbols] == ["p_01", "p_02"]
    system = RoutedSystem(THREE.models, THREE.latency_ms, P, THREE.committed_tokens, 2, grid_ms=1.0)
    numeric = solve_chain(system, (1, 1, 2)).throughput_tok_s
    assert of_three_models.at(p_01=p_01, p_02=p_02) == pytest.approx(numeric, rel=1e-12)


def test_an_entry_model_that_keeps_nothing_leaves_the_rest_to_its_last_hand_over():
    P = [[0.0, 0.3, 0.7], [1, 0, 0], [1, 0, 0]]
    system = RoutedSystem(["a", "b", "c"], [1, 2, 3], P, [[1] * 3] * 3, 2, grid_ms=1.0)
    result = symbolic_throughput(system, (1, 1, 1))
    assert [s.name for s in result.symbols] == ["p_01"]
    numeric = solve_chain(system, (1, 1, 1)).throughput_tok_s
    assert result.at(p_01=0.3) == pytest.approx(numeric, rel=1e-12)


@pytest.mark.parametrize("hand_over", [0.0, 1.0])
def test_routing_without_a_choice_gives_a_number(hand_over):
    system = r2r(3, hand_over)
    result = symbolic_throughput(system, (1, 2))
    assert result.symbols == ()
    assert result.at() == pytest.approx(solve_chain(system, (1, 2)).throughput_tok_s, rel=1e-14)


def test_decimals_are_taken_at_their_value():
    result = symbolic_throughput(r2r(2), (1, 2))
    assert result.at(p=0.35) == result.at(p=Fraction(7, 20))
    assert result.expression.atoms(sympy.Float) == set()


def test_a_row_of_thirds_sums_to_one():
    third = r2r(1, transition_probability=[[0.5, 0.5], [1 / 3, 2 / 3]])
    # Visits per hand-over: 2 steps at the small model and 3 at the large one; 1 token at each of
    # the small one's that stay and each of the large one's that return.
    assert symbolic_throughput(third, (1, 1)).at(p=0.5) == 1000 * 2 / (2 * 6 + 3 * 27.9)


def test_the_limit_of_many_states():
    with pytest.raises(LimitError, match=r"N = 4, B = 1,1: .* limited to 30 states; use the numer"):
        symbolic_throughput(r2r(4), (1, 1))
    with pytest.raises(LimitError, match="limited to 11 states"):
        symbolic_throughput(r2r(2), (1, 1), max_states=11)
    assert symbolic_throughput(r2r(2), (1, 1), max_states=12).states == 12


def test_latencies_off_the_grid():
    system = r2r(2, latency_ms=[[6.0, 6.05], 27.93])
    with pytest.raises(UsageError, match=r"latency_ms\[0\]\[1\]: 6.05 ms is not a whole number"):
        symbolic_throughput(system, (1, 2))
    with pytest.raises(UsageError, match=r"wake_ms\[1\]: 0.25 ms is not a whole number"):
        symbolic_throughput(r2r(2, wake_ms=[0.2, 0.25]), (1, 2))


def test_several_recurrent_classes():
    P = [[0.4, 0.3, 0.3], [0, 1, 0], [0, 0, 1]]
    system = RoutedSystem(["a", "b", "c"], [1, 2, 3], P, [[1] * 3] * 3, 1, grid_ms=1.0)
    with pytest.raises(UsageError, match="2 recurrent classes"):
        symbolic_throughput(system, (1, 1, 1))


def test_transient_states_do_not_count():
    system = r2r(3, transition_probability=[[0.5, 0.5], [0, 1]], committed_tokens=[[1, 0], [1, 2]])
    result = symbolic_throughput(system, (1, 3))
    assert result.expression == sympy.Rational(2 * 3 * 10_000, 279)


def test_thresholds_that_can_deadlock():
    with pytest.raises(InfeasibleError, match="can deadlock"):
        symbolic_throughput(r2r(2), (2, 2))


@pytest.mark.parametrize(
    "values", [{}, {"q": 0.3}, {"p": 0.3, "q": 0.3}, {"p": -0.1}, {"p": 1.1}, {"p": float("nan")}]
)
def test_values_that_are_not_probabilities_of_the_symbols(values):
    with pytest.raises(UsageError, match="p"):
        symbolic_throughput(r2r(2), (1, 2)).at(**values)


def test_a_corner_without_a_limit():
    """Where requests hardly ever leave model 0, the ratio of p_01 to p_02 decides who waits."""
    P = [[0.5, 0.25, 0.25], [0, 0, 1], [1, 0, 0]]
    system = RoutedSystem(["a", "b", "c"], [1, 1, 1], P, [[1] * 3] * 3, 3, grid_ms=1.0)
    result = symbolic_throughput(system, (1, 2, 2))
    along = [result.at(p_01=1e-9 * share, p_02=1e-9 * (1 - share)) for share in (0.1, 0.5)]
    assert abs(along[0] - along[1]) > 1.0
    with pytest.raises(UsageError, match="p_01, p_02: the throughput has no limit here"):
        result.at(p_01=0, p_02=0)


def test_neither_sympy_nor_networkx_is_loaded_before_it_is_needed():
    code = "import sys, trmodel.markov; print({'sympy', 'networkx'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
