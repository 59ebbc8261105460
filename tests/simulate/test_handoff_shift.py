"""What handoff latency shifts: a closed form, and none where there is none."""

import numpy as np
import pytest

from trmodel.simulate.handoff import handoff_shift
from trmodel.system import RoutedSystem


def system(N, there, back, p=0.35):
    return RoutedSystem(
        ["small", "large"],
        [6.0, 27.9],
        [[1 - p, p], [1, 0]],
        [[1, 0], [1, 0]],
        N,
        handoff_ms=[[0, there], [back, 0]],
    )


@pytest.mark.parametrize("p", [0.1, 0.35])
def test_a_request_alone(p):
    found = handoff_shift(system(1, 2.0, 3.0, p), (1, 1))
    plain = 6.0 + p * 27.9
    assert found.low < 100.0 * (plain / (plain + p * 5.0) - 1.0) < found.high
    assert found.half_width < 0.1


def test_the_same_seed_gives_the_same_shift_and_others_agree():
    busy = system(8, 1.0, 1.0)
    first, second = (handoff_shift(busy, (1, 5), seed=seed) for seed in (0, 1))
    assert first == handoff_shift(busy, (1, 5), seed=0)
    assert first != second
    assert abs(first.value - second.value) < 2.0 * (first.half_width + second.half_width)
    assert first.high < 0.0


def test_no_shift_where_no_handoff_takes_time():
    assert handoff_shift(system(4, 0.0, 0.0), (1, 1)) is None
    never = RoutedSystem(
        ["a", "b"], [6.0, 27.9], np.eye(2), np.ones((2, 2)), 2, handoff_ms=[[0, 1], [1, 0]]
    )
    assert handoff_shift(never, (1, 1)) is None
