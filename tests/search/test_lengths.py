import numpy as np
import pytest

from trmodel.errors import InputError, UsageError
from trmodel.search.lengths import geometric_lengths, load_lengths


@pytest.mark.parametrize("mean", [1.0, 2.0, 30.0, 1000.0])
def test_geometric_lengths_are_whole_with_the_mean_and_the_tail(mean):
    lengths = np.array(geometric_lengths(mean))
    assert np.all((lengths >= 1.0) & (lengths == np.round(lengths)))
    assert lengths.mean() == pytest.approx(mean, rel=0.01)
    beyond = np.mean(lengths > 2.0 * mean)
    assert beyond == pytest.approx((1.0 - 1.0 / mean) ** np.floor(2.0 * mean), abs=0.002)


def test_a_mean_below_one_token_is_refused():
    with pytest.raises(UsageError, match="reply_tokens: the mean must be at least 1"):
        geometric_lengths(0.5)


@pytest.mark.parametrize("text", ["100\n250\n", "100 250", "[100, 250]", "\n [100,250.0]"])
def test_files_of_lengths(tmp_path, text):
    path = tmp_path / "lengths"
    path.write_text(text)
    assert load_lengths(path) == (100.0, 250.0)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("100 short", "length 1: must be a number above 0, got short"),
        ("[100, 0]", "length 1: must be a number above 0, got 0"),
        ("[true]", "length 0: must be a number above 0, got True"),
        ("nan", "length 0: must be a number above 0, got nan"),
        ("[]", "at least one length is needed"),
        ('{"mean": 3}', "must be a list of lengths in tokens"),
        ("[1,", "not valid JSON"),
    ],
)
def test_files_of_anything_else(tmp_path, text, part):
    path = tmp_path / "lengths"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load_lengths(path)
    assert part in str(error.value)
