"""Throughput against threshold: the curves, the stars, and what the words say."""

from dataclasses import replace

import pytest
from figure_reading import curves, stars, words

import trmodel
from trmodel.report import threshold_figure


def test_a_curve_for_each_concurrency_asked_for(table):
    (axes,) = threshold_figure(table).axes
    assert [list(line.get_xdata()) for line in curves(axes)] == [[1, 2], [1, 2, 3], [1, 2, 3, 4]]


def test_stars_mark_the_chosen_thresholds(table):
    (axes,) = threshold_figure(table).axes
    assert stars(axes) == [(row.B[1], row.throughput_tok_s) for row in table]


def test_points_are_the_best_over_the_other_thresholds(table, three_models):
    for tuned, note in ((table, "B0 at its best"), (three_models, "B0, B1 at their best")):
        figure = threshold_figure(tuned)
        for line, row in zip(curves(figure.axes[0]), tuned, strict=True):
            for b, T in zip(*line.get_data(), strict=True):
                same = [c.throughput_tok_s for c in row.candidates if c.B[-1] == b]
                assert max(same) == T
        assert note in words(figure)


def test_given_thresholds_are_named():
    figure = threshold_figure(trmodel.tune("a100-paper", N=4, fixed={0: 2}))
    assert "B0 = 2" in words(figure)
    assert [list(line.get_xdata()) for line in curves(figure.axes[0])] == [[1, 2, 3]]


def test_one_model(one_model):
    figure = threshold_figure(one_model)
    assert len(curves(figure.axes[0])) == 2
    assert "Threshold B0 of only" in words(figure)


def test_it_says_what_it_is_about_in_which_units(table):
    said = words(threshold_figure(table))
    for part in ("a100-paper: Qwen3-0.6B + Qwen3-32B", "(tokens/s)", "Threshold B1 of Qwen3-32B"):
        assert part in said
    assert threshold_figure(table, title="Mine").get_suptitle().startswith("Mine\n")


@pytest.mark.parametrize("N", [range(4, 9), range(1, 33)])
def test_labels_stay_few_and_name_the_largest(N):
    table = trmodel.tune("a100-paper", N=N, fixed={0: 1})
    labels = [text.get_text() for text in threshold_figure(table).axes[0].texts]
    assert labels[-1] == f"N = {max(N)}"
    assert len(labels) <= 16
    assert len(curves(threshold_figure(table).axes[0])) == len(N)


def test_a_stopped_table_shows_what_it_has():
    table = trmodel.tune(
        "a100-paper", N=[2, 40], method="exact", limits=trmodel.markov.Limits(states=1000)
    )
    assert table.stopped
    assert len(curves(threshold_figure(table).axes[0])) == 1


def test_names_are_not_read_as_mathematics_and_long_ones_are_cut(table):
    figure = threshold_figure(replace(table, models=("$\\frac{$", "x" * 200)))
    assert "B1 of " + "x" * 27 + "… (requests)" in words(figure)
    assert r"\$\frac{\$" in figure.get_suptitle()
    figure.draw_without_rendering()
