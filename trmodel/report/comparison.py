"""Predicted against measured throughput, with the errors beside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trmodel.errors import UsageError
from trmodel.launch import shown_vector
from trmodel.report.style import GREY, PALE, SERIES, SMALL, dress, new_figure, plain


@dataclass(frozen=True)
class Measurement:
    """A measured throughput and what was predicted for it, in tokens per second.

    Attributes
    ----------
    predicted_tok_s
        By name of the prediction, such as ``exact chain``. The error of a name that is not in it
        is not a number.
    """

    N: int
    B: tuple[int, ...]
    measured_tok_s: float
    predicted_tok_s: Mapping[str, float]

    def __post_init__(self) -> None:
        if not self.measured_tok_s > 0.0:
            raise UsageError(f"measured_tok_s: must be above 0, got {self.measured_tok_s}")

    def error_percent(self, name: str) -> float:
        """Return a prediction's error relative to the measurement; above 0: too high."""
        return 100.0 * (self.predicted_tok_s.get(name, math.nan) / self.measured_tok_s - 1.0)


def comparison_figure(
    measurements: Sequence[Measurement],
    *,
    noise_percent: float | None = None,
    title: str = "Predicted and measured throughput",
) -> Figure:
    """Plot predictions and measurements on one axis, and the errors in percent beside.

    Where an N has several thresholds, a star marks the best of them, separately among the
    measurements and in each prediction: stars in different rows are a wrong ranking.

    Parameters
    ----------
    measurements
        In the order of the rows, top first. A prediction may be missing in some of them.
    noise_percent
        How far measurements of one configuration differ, drawn as a band around no error.
    title
        What was measured.

    Raises
    ------
    UsageError
        If there is no measurement.
    """
    if not measurements:
        raise UsageError("measurements: at least one is needed")
    names = list(dict.fromkeys(name for m in measurements for name in m.predicted_tok_s))
    noise = "" if noise_percent is None else f"; grey: noise of ±{noise_percent:g} %"
    figure = new_figure(1.4 + 0.27 * len(measurements), title, f"★ best thresholds of an N{noise}")
    level, error = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    if noise_percent is not None:
        error.axvspan(-noise_percent, noise_percent, color=PALE, linewidth=0, gid="noise")
    measured = [m.measured_tok_s for m in measurements]
    _points(level, measurements, measured, "measured", markersize=6, color="black")
    for i, name in enumerate(names):
        look = {"color": SERIES[i % len(SERIES)], "label": plain(name)}
        predicted = [m.predicted_tok_s.get(name, math.nan) for m in measurements]
        _points(
            level,
            measurements,
            predicted,
            markersize=max(9 - 3 * i, 4),
            markerfacecolor="none",
            **look,
        )
        height = 0.8 / len(names)
        error.barh(
            [row + height * (i - (len(names) - 1) / 2) for row in range(len(measurements))],
            [m.error_percent(name) for m in measurements],
            height=0.9 * height,
            **look,
        )
    dress(level, "Throughput (tokens/s)")
    dress(error, "Error of prediction (%)")
    error.axvline(0.0, color=GREY, linewidth=0.8)
    error.tick_params(left=False)
    level.set_yticks(
        range(len(measurements)), [f"N = {m.N}, B = {shown_vector(m.B)}" for m in measurements]
    )
    level.invert_yaxis()
    level.margins(x=0.08)
    level.set_xlim(left=0.0)
    figure.legend(
        *level.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        fontsize=SMALL,
        frameon=False,
    )
    return figure


def _points(
    axes: Axes,
    measurements: Sequence[Measurement],
    values: Sequence[float],
    label: str,
    **look: Any,
) -> None:
    """Draw one value for each row, with a star at the best of every N that offers a choice."""
    best = best_rows(measurements, values)
    others = [row for row in range(len(values)) if row not in best]
    axes.plot([values[row] for row in others], others, "o", label=label, **look)
    look["markersize"] += 4
    axes.plot([values[row] for row in best], best, "*", **look)


def best_rows(measurements: Sequence[Measurement], values: Sequence[float]) -> list[int]:
    """Return the rows with the highest value of their N, where an N has several rows."""
    best = []
    for N in dict.fromkeys(m.N for m in measurements):
        rows = [
            row for row, m in enumerate(measurements) if m.N == N and not math.isnan(values[row])
        ]
        if len(rows) > 1:
            best.append(max(rows, key=lambda row: values[row]))
    return best
