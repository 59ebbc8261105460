"""Chains that are too large: a clear error that says what to do instead."""

import pytest
from chain_systems import r2r

from trmodel.errors import LimitError, UsageError
from trmodel.markov import Limits, solve_chain
from trmodel.phases import Phase
from trmodel.system import RoutedSystem

ADVICE = r"coarser grid \(grid_ms, --grid-ms\), a smaller N, or fewer models"


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


def test_larger_limits_are_refused_before_they_fill_the_memory(monkeypatch):
    assert Limits.up_to(5_000) == Limits(states=5_000, transitions=50_000)
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**20}.get)
    assert Limits.up_to(6_000_000).transitions == 60_000_000
    with pytest.raises(LimitError, match=r"10,000,000 states needs about 6\.4 GB, .* 4\.3"):
        Limits.up_to(10_000_000)
    with pytest.raises(UsageError, match="max_states: must be a whole number from 1"):
        Limits.up_to(0)


def test_bits_of_a_state_of_phases():
    """The largest work counts what all phases of a batch add."""
    system = RoutedSystem(
        ["m"], [1.0], [[1.0]], [[1.0]], 1_000, phases=[Phase("u", 0, 500_000.0)], grid_ms=1e-9
    )
    with pytest.raises(LimitError, match=r"1 phases of 1 models .* needs 79 bits"):
        solve_chain(system, (1,))
