from itertools import product
from math import comb

import pytest

from trmodel.errors import InfeasibleError
from trmodel.launch import is_live
from trmodel.search import feasible_thresholds
from trmodel.system import RoutedSystem


def uniform(M: int, N: int) -> RoutedSystem:
    P = [[1.0 / M] * M] * M
    return RoutedSystem([f"m{i}" for i in range(M)], [1.0] * M, P, [[1.0] * M] * M, N)


@pytest.mark.parametrize(("M", "N"), [(1, 5), (2, 1), (2, 7), (3, 4), (4, 3)])
def test_every_live_vector_and_no_other(M, N):
    found = feasible_thresholds(uniform(M, N))
    assert set(found) == {B for B in product(range(1, N + 2), repeat=M) if is_live(B, N)}
    assert len(found) == len(set(found)) == comb(N - 1 + M, M)
    assert found[0] == (1,) * M
    assert [sum(B) for B in found] == sorted(sum(B) for B in found)


def test_fixed_thresholds_are_kept():
    assert feasible_thresholds(uniform(2, 4), {0: 3}) == [(3, 1), (3, 2)]


def test_fixed_thresholds_that_cannot_be_live_are_infeasible():
    with pytest.raises(InfeasibleError, match=r"N = 4: with the threshold of m0 = 5 fixed"):
        feasible_thresholds(uniform(2, 4), {0: 5})


def test_models_never_reached_have_threshold_one():
    system = RoutedSystem(
        ["a", "b"], [1.0, 2.0], [[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]], 3
    )
    assert feasible_thresholds(system) == [(1, 1), (2, 1), (3, 1)]
