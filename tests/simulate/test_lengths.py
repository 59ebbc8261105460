"""Lengths of replies from a mean or a file."""

from statistics import fmean

import pytest

from trmodel.errors import InputError, UsageError
from trmodel.simulate.lengths import geometric_lengths, load_lengths


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


@pytest.mark.parametrize("text", ["120\n\n 80.5 \n300\n", "120 80.5 300", "[120, 80.5, 300]"])
def test_lengths_are_read(tmp_path, text):
    file = tmp_path / "lengths.txt"
    file.write_text(text)
    assert load_lengths(file) == (120.0, 80.5, 300.0)


def test_every_bad_length_is_named(tmp_path):
    file = tmp_path / "lengths.txt"
    file.write_text("120\nlong\n0\nnan\n1e99")
    with pytest.raises(InputError) as error:
        load_lengths(file)
    assert [p.split(": ")[1] for p in error.value.problems] == [f"length {i}" for i in range(1, 5)]
    for text, named in (
        ("\n", "lengths in tokens is needed"),
        ("[]", "must be a list"),
        ('{"a": 1}', "must be a list"),
        ("[true]", "length 0"),
        ("[[1]]", "length 0"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=named):
            load_lengths(file)
    with pytest.raises(InputError, match="no such file"):
        load_lengths(tmp_path / "missing.txt")
