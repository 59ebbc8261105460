"""Throughput against a delay, a point for every live threshold vector, and the front."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trmodel.launch import shown_vector
from trmodel.report.style import (
    BLUE,
    GREY,
    SMALL,
    VERMILLION,
    dress,
    new_figure,
    plain,
    star,
    system_words,
)
from trmodel.search.pareto import Pareto, Place, Point

MOST_LABELS = 8


def pareto_figure(pareto: Pareto, *, title: str | None = None) -> Figure:
    """Plot the delay on the horizontal axis and throughput on the vertical one.

    Up and to the left is better. Points of the front are joined, those that tie with it are
    hollow, dominated ones grey; bars are the delays' intervals, the star the thresholds that
    tuning chooses for throughput alone.

    Parameters
    ----------
    title
        In place of the profile and models.
    """
    figure = new_figure(
        3.8,
        title or system_words(pareto.origin, pareto.models),
        f"N = {pareto.N}, {len(pareto.points)} live threshold vectors; ★ chosen for throughput",
    )
    axes = figure.add_subplot()
    for place, color, fill in (
        (Place.dominated, GREY, GREY),
        (Place.tie, BLUE, "white"),
        (Place.front, BLUE, BLUE),
    ):
        some = [point for point in pareto.points if point.place is place]
        if some:
            _draw(axes, some, place, color, fill)
    front = pareto.front
    for point in front[:: -(-len(front) // MOST_LABELS)]:
        axes.annotate(
            shown_vector(point.candidate.B),
            (point.delay_ms.value, point.throughput_tok_s),
            xytext=(-4, 5),
            textcoords="offset points",
            ha="right",
            fontsize=SMALL,
        )
    eager, chosen = pareto.at(pareto.eager), pareto.at(pareto.chosen)
    if eager is not None:
        axes.plot(
            [eager.delay_ms.value],
            [eager.throughput_tok_s],
            marker="o",
            markersize=8,
            markerfacecolor="none",
            markeredgecolor=VERMILLION,
            linestyle="none",
            gid="eager",
        )
        axes.annotate(
            "eager",
            (eager.delay_ms.value, eager.throughput_tok_s),
            xytext=(6, -9),
            textcoords="offset points",
            fontsize=SMALL,
            color=VERMILLION,
        )
    if chosen is not None:
        axes.plot([chosen.delay_ms.value], [chosen.throughput_tok_s], **star())
    dress(axes, plain(pareto.delay).removesuffix("-ms") + " (ms)", "Throughput (tokens/s)")
    axes.margins(x=0.12, y=0.1)
    axes.legend(fontsize=SMALL, frameon=False, loc="best")
    return figure


def _draw(axes: Axes, points: list[Point], place: Place, color: str, fill: str) -> None:
    delays = [point.delay_ms for point in points]
    axes.errorbar(
        [delay.value for delay in delays],
        [point.throughput_tok_s for point in points],
        xerr=[
            [max(delay.value - delay.low, 0.0) for delay in delays],
            [max(delay.high - delay.value, 0.0) for delay in delays],
        ],
        color=color,
        marker="o",
        markersize=4,
        markerfacecolor=fill,
        linewidth=1.2,
        linestyle="-" if place is Place.front else "none",
        elinewidth=0.8,
        zorder=3 if place is Place.front else 2,
        label={
            Place.front: "front",
            Place.tie: "ties with the front",
            Place.dominated: "dominated",
        }[place],
    )
