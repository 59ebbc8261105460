"""Chains that are too large: a clear error that says what to do instead."""

import pytest
from chain_systems import r2r

from trmodel.errors import LimitError
from trmodel.markov import Limits, solve_chain
from trmodel.system import RoutedSystem

ADVICE = r"coarser grid \(grid_ms\), a smaller N, or fewer models"


def test_states():
    with pytest.raises(LimitError, match=rf"N = 10, B = 1,1: .* limit of 2,000 states; .*{ADVICE}"):
        solve_chain(r2r(10), (1, 1), limits=Limits(states=2_000))


def test_transitions():
    with pytest.raises(LimitError, match=rf"limit of 10,000 transitions; .*{ADVICE}"):
        solve_chain(r2r(10), (1, 1), limits=Limits(transitions=10_000))


def test_bits_of_a_state():
    system = RoutedSystem(
        [f"m{i}" for i in range(4)], [500.0] * 4, [[0.25] * 4] * 4, [[1] * 4] * 4, 16
    )
    with pytest.raises(
        LimitError, match=rf"4 models .* needs 92 bits, 62 are supported; .*{ADVICE}"
    ):
        solve_chain(system, (1, 1, 1, 1))


def test_limits_that_suffice_change_nothing():
    roomy = solve_chain(r2r(8), (1, 1))
    exact = Limits(states=5_000, transitions=40_000)
    assert roomy.states < exact.states
    assert roomy.transition.nnz < exact.transitions
    assert (solve_chain(r2r(8), (1, 1), limits=exact).pi == roomy.pi).all()
