"""Lengths of replies from a mean or a file."""

from statistics import fmean

import pytest

from trmodel.errors import InputError, UsageError
from trmodel.simulate.lengths import geometric_lengths, read_lengths


@pytest.mark.parametrize("mean", [1.0, 1.5, 20.0, 1000.0])
def test_geometric_lengths_have_their_mean_and_shape(mean):
    lengths = geometric_lengths(mean)
    assert fmean(lengths) == pytest.approx(mean, rel=0.005)
    assert min(lengths) == 1.0
    assert all(length == int(length) for length in lengths)
    longer = sum(length > mean for length in lengths) / len(lengths)
    assert longer == pytest.approx((1.0 - 1.0 / mean) ** int(mean), abs=0.002)


@pytest.mark.parametrize("mean", [0.5, -1.0, float("nan"), float("inf"), 1e9])
def test_a_mean_that_makes_no_sense(mean):
    with pytest.raises(UsageError, match="reply_tokens"):
        geometric_lengths(mean)


def test_lengths_are_read_line_by_line(tmp_path):
    file = tmp_path / "lengths.txt"
    file.write_text("120\n\n 80.5 \n300\n")
    assert read_lengths(file) == (120.0, 80.5, 300.0)


def test_every_bad_line_is_named(tmp_path):
    file = tmp_path / "lengths.txt"
    file.write_text("120\nlong\n0\nnan\n")
    with pytest.raises(InputError) as error:
        read_lengths(file)
    assert [p.split(": ")[1] for p in error.value.problems] == ["line 2", "line 3", "line 4"]
    file.write_text("\n")
    with pytest.raises(InputError, match="a length on each line is needed"):
        read_lengths(file)
    with pytest.raises(InputError, match="no such file"):
        read_lengths(tmp_path / "missing.txt")
