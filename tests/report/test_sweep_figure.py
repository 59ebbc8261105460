"""Sweeps: gain and chosen thresholds against p."""

from dataclasses import replace

import pytest
from figure_reading import curves, words

import trmodel
from trmodel.report import sweep_figure

VALUES = (0.1, 0.35, 0.6)


@pytest.fixture(scope="module")
def sweep():
    return trmodel.sweep_p(VALUES, "a100-paper", [3, 4])


def test_gain_and_threshold_of_every_concurrency(sweep):
    gain, threshold = sweep_figure(sweep).axes
    for i, N in enumerate((3, 4)):
        rows = [table.row(N) for table in sweep.tables]
        assert list(curves(gain)[i].get_xdata()) == list(VALUES)
        assert list(curves(gain)[i].get_ydata()) == [row.gain_percent for row in rows]
        assert list(curves(threshold)[i].get_ydata()) == [row.B[1] for row in rows]


def test_a_first_model_that_delays_has_its_own_panel():
    figure = sweep_figure(trmodel.sweep_p([0.25], "a100-paper", 12))
    assert "Chosen threshold of Qwen3-0.6B" in words(figure)
    assert len(figure.axes) == 3


def test_p_is_drawn_in_ascending_order_however_it_was_given(sweep):
    turned = replace(sweep, values=sweep.values[::-1], tables=sweep.tables[::-1])
    assert list(curves(sweep_figure(turned).axes[0])[0].get_xdata()) == list(VALUES)


def test_a_stopped_sweep_shows_what_it_has(sweep):
    last = replace(sweep.tables[-1], rows=sweep.tables[-1].rows[:3], stopped="time")
    gain, _ = sweep_figure(replace(sweep, tables=(*sweep.tables[:-1], last))).axes
    assert [len(line.get_xdata()) for line in curves(gain)] == [3, 2]


def test_it_says_what_it_is_about(sweep):
    figure = sweep_figure(sweep)
    for part in ("a100-paper", "Gain over eager (%)", "B1 (requests)", "Probability p"):
        assert part in words(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["4", "3"]


def test_a_threshold_that_was_given_is_not_called_chosen(sweep):
    assert "Given threshold of Qwen3-32B" in words(sweep_figure(sweep, given=[1]))
    assert "Chosen threshold of Qwen3-32B" in words(sweep_figure(sweep, given=[0]))
