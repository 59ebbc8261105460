"""The launch rule and the liveness condition."""

import re
from itertools import product

import pytest

from trmodel.errors import InfeasibleError
from trmodel.launch import is_live, launch_size, require_live, shown_vector


@pytest.mark.parametrize(
    ("waiting", "running", "threshold", "max_batch", "starts"),
    [
        (0, 0, 1, 8, 0),
        (1, 0, 1, 8, 1),
        (2, 0, 3, 8, 0),
        (3, 0, 3, 8, 3),
        (5, 0, 3, 8, 5),
        (9, 0, 3, 8, 8),
        (9, 1, 3, 8, 0),
        (4, 0, 4, 2, 2),
        (3, 0, 4, 2, 0),
    ],
)
def test_who_starts_with_how_many(waiting, running, threshold, max_batch, starts):
    assert launch_size(waiting, running, threshold, max_batch) == starts


@pytest.mark.parametrize("M", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_thresholds_are_live_when_no_queues_can_hold_all_requests(M, n):
    for B in product(range(1, n + 2), repeat=M):
        queues = product(*(range(b) for b in B))  # all below their thresholds
        assert is_live(B, n) == (n not in map(sum, queues))


def test_live_thresholds_pass():
    require_live((1, 4), 4)
    require_live((2, 2, 2), 4)


@pytest.mark.parametrize(("B", "n"), [((3, 3), 4), ((1, 5), 4), ((2, 2, 2), 3), ((9,), 2)])
def test_the_refusal_names_a_state_in_which_nothing_starts(B, n):
    with pytest.raises(InfeasibleError) as caught:
        require_live(B, n)
    message = str(caught.value)
    assert "\n" not in message
    assert f"B = {shown_vector(B)} can deadlock at N = {n}" in message
    assert f"sum(B_i - 1) = {sum(B) - len(B)}" in message
    waiting = [int(k) for k in re.search(r"with ([\d,]+) requests", message)[1].split(",")]
    assert sum(waiting) == n
    assert not any(launch_size(k, 0, b, n) for k, b in zip(waiting, B, strict=True))


def test_shown_vector():
    assert shown_vector((1, 3)) == "1,3"
    assert shown_vector([4]) == "4"
