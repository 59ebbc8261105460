"""Predicted against measured: the points, the errors, and which thresholds were ranked best."""

import math

import pytest
from figure_reading import words

from trmodel.errors import UsageError
from trmodel.report import Measurement, comparison_figure

MEASURED = [
    Measurement(1, (1, 1), 50.0, {"ours": 60.0}),
    Measurement(2, (1, 1), 100.0, {"ours": 90.0, "theirs": 80.0}),
    Measurement(2, (1, 2), 110.0, {"ours": 88.0, "theirs": 121.0}),
]


def drawn(axes, marker):
    """Points by (value, row), in drawing order of the series."""
    return [
        list(zip(*line.get_data(), strict=True))
        for line in axes.lines
        if line.get_marker() == marker
    ]


def test_points_and_stars_of_every_series():
    level, _ = comparison_figure(MEASURED).axes
    assert drawn(level, "*") == [[(110.0, 2)], [(90.0, 1)], [(121.0, 2)]]
    measured, ours, theirs = drawn(level, "o")
    assert measured == [(50.0, 0), (100.0, 1)]
    assert ours == [(60.0, 0), (88.0, 2)]
    assert theirs[1:] == [(80.0, 1)]
    assert math.isnan(theirs[0][0])


def test_errors_are_relative_to_the_measurement():
    _, error = comparison_figure(MEASURED).axes
    widths = [bar.get_width() for bar in error.patches]
    assert widths == pytest.approx([20, -10, -20, math.nan, -20, 10], nan_ok=True)
    assert MEASURED[0].error_percent("ours") == pytest.approx(20.0)
    assert math.isnan(MEASURED[0].error_percent("theirs"))


def test_the_noise_band_is_drawn_and_named():
    figure = comparison_figure(MEASURED, noise_percent=3.0)
    (band,) = (patch for patch in figure.axes[1].patches if patch.get_gid() == "noise")
    assert (band.get_x(), band.get_width()) == (-3.0, 6.0)
    assert "noise of ±3 %" in words(figure)
    assert "noise" not in words(comparison_figure(MEASURED))


def test_it_says_what_it_shows():
    figure = comparison_figure(MEASURED, title="Mine")
    for part in ("Mine", "N = 2, B = 1,2", "Throughput (tokens/s)", "Error of prediction (%)"):
        assert part in words(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["measured", "ours", "theirs"]


def test_nothing_to_compare_is_refused():
    with pytest.raises(UsageError, match="at least one"):
        comparison_figure([])
    for value in (0.0, -1.0, math.nan):
        with pytest.raises(UsageError, match="above 0"):
            Measurement(1, (1,), value, {})
