from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trmodel.cli.ranges import MAX_VALUES, numbers, sweep_of_p, vector, whole_numbers
from trmodel.errors import UsageError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("4", [4]),
        ("4..6", [4, 5, 6]),
        ("4,8,16", [4, 8, 16]),
        ("4..16:4", [4, 8, 12, 16]),
        ("4..15:4", [4, 8, 12]),
        ("16,1,4..8:2,4", [1, 4, 6, 8, 16]),
        (" 4 .. 6 ", [4, 5, 6]),
        ("7..7", [7]),
    ],
)
def test_whole_numbers(text: str, values: list[int]) -> None:
    assert whole_numbers(text, "--N") == values


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 60))
def test_a_range_holds_both_ends_and_every_step(low: int, length: int, step: int) -> None:
    high = low + length
    assert whole_numbers(f"{low}..{high}:{step}", "--N") == list(range(low, high + 1, step))
    assert whole_numbers(f"{low}..{high}", "--N") == list(range(low, high + 1))


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 20))
def test_decimals_have_no_dust(low: int, length: int, step: int) -> None:
    text = f"{low / 100}..{(low + length) / 100}:{step / 100}"
    expected = [k / 100 for k in range(low, low + length + 1, step)]
    assert numbers(text, "--sweep") == expected


def test_the_sweep_of_the_help() -> None:
    values = sweep_of_p("p=0.05..0.6:0.05")
    assert len(values) == 12
    assert values[2] == 0.15
    assert values[-1] == 0.6


BAD = [
    "",
    ",",
    "x",
    "4..",
    "..4",
    "4...6",
    "16..4",
    "4..16:0",
    "4..16:-1",
    "4..16:",
    "4:2",
    "1.5",
    "4-16",
    "nan",
    "1_000",
    "٤",
    "0",
    "-3",
    "0..4",
    "1..1000000000000",
    "1..999999999:2,4",
    "9" * 5000,
    "4..16:1e-9",
]


@pytest.mark.parametrize("text", BAD)
def test_a_bad_range_is_refused_in_one_line_that_names_the_option(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        whole_numbers(text, "--N")
    message = str(refusal.value)
    assert message.startswith("--N: ")
    assert "\n" not in message
    assert len(message) < 150


@given(st.text(alphabet="0123456789.,:-+e xn", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (whole_numbers, numbers, vector):
        with suppress(UsageError):
            assert 0 < len(read(text, "--N")) <= MAX_VALUES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p",
        "p=",
        "q=0.1",
        "0.1",
        "p=0.1..0.5",
        "p=0.5..0.1:0.1",
        "p=nan",
        "p=0..1:1e-9",
        "p=inf",
    ],
)
def test_a_bad_sweep_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--sweep: "):
        sweep_of_p(text)
