"""Strategies as bars with intervals."""

import pytest
from figure_reading import words

import trmodel
from trmodel.errors import UsageError
from trmodel.report import strategies_figure


def test_bars_and_intervals_are_those_of_the_simulations():
    found = trmodel.compare_strategies("a100-paper", N=4, B=(1, 3), batches=6400).simulations
    figure = strategies_figure(found, title="four", reference="delayed")
    speed, tail = figure.axes
    for axes, figures in (
        (speed, [f.throughput_tok_s for f in found.values()]),
        (tail, [f.inter_token_ms.p99 for f in found.values()]),
    ):
        assert [bar.get_width() for bar in axes.patches] == [f.value for f in figures]
        (lines,) = axes.collections
        ends = [tuple(segment[:, 0]) for segment in lines.get_segments()]
        assert ends == [
            pytest.approx((f.value - f.half_width, f.value + f.half_width)) for f in figures
        ]
        colors = [bar.get_facecolor() for bar in axes.patches]
        assert colors[0] == colors[1] == colors[2] != colors[3]
    said = words(figure)
    for part in ("four", *found, "95 %", "Throughput (tokens/s)"):
        assert part in said


def test_none_is_refused():
    with pytest.raises(UsageError, match="at least one"):
        strategies_figure({}, title="x")
