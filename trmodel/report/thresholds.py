"""Throughput against the threshold of the last model, one curve for each concurrency."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from trmodel.launch import shown_vector
from trmodel.report.style import (
    SMALL,
    dress,
    new_figure,
    plain,
    shades,
    star,
    system_words,
    whole_numbers,
)
from trmodel.search import Candidate, Row, ThresholdTable

MOST_LABELS = 16


def threshold_figure(table: ThresholdTable, *, title: str | None = None) -> Figure:
    """Plot throughput against the last model's threshold, a curve for each N asked for.

    A point is the best over the thresholds of the other models (what a server gets that sets
    the last one so); the subtitle says so. A star marks the chosen thresholds: where larger ones
    are better by less than the model can tell, it lies up to 0.1 % below its curve.

    Parameters
    ----------
    table
        Of any number of models; with one model its own threshold is on the axis.
    title
        In place of the profile and models.
    """
    rows = table.wanted_rows
    last = len(table.models) - 1
    figure = new_figure(
        3.6,
        title or system_words(table.origin, table.models),
        f"★ chosen{_others(rows, last)}",
    )
    axes = figure.add_subplot()
    step = -(-len(rows) // MOST_LABELS)
    for i, (row, color) in enumerate(zip(rows, shades(len(rows)), strict=True)):
        best = best_by_threshold(row.candidates, last)
        axes.plot(
            list(best), list(best.values()), color=color, marker="o", markersize=3, linewidth=1.3
        )
        axes.plot([row.B[last]], [row.throughput_tok_s], **star(len(rows)))
        if (len(rows) - 1 - i) % step == 0:
            end = max(best)
            axes.annotate(
                f"N = {row.N}" if i == len(rows) - 1 else f"{row.N}",
                (end, best[end]),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                fontsize=SMALL,
            )
    dress(
        axes,
        f"Threshold B{last} of {plain(table.models[last])} (requests)",
        "Throughput (tokens/s)",
    )
    axes.xaxis.set_major_locator(whole_numbers())
    axes.set_ylim(bottom=0.0)
    axes.margins(x=0.08)
    return figure


def best_by_threshold(candidates: Sequence[Candidate], model: int) -> dict[int, float]:
    """Return, for each threshold of one model in ascending order, the best throughput."""
    best: dict[int, float] = {}
    for candidate in sorted(candidates, key=lambda c: c.B[model]):
        b = candidate.B[model]
        best[b] = max(candidate.throughput_tok_s, best.get(b, 0.0))
    return best


def _others(rows: Sequence[Row], last: int) -> str:
    """Say what the thresholds of the other models are along a curve."""
    if last == 0:
        return ""
    seen = {candidate.B[:last] for row in rows for candidate in row.candidates}
    names = ", ".join(f"B{i}" for i in range(last))
    if len(seen) == 1:
        return f"; {names} = {shown_vector(seen.pop())}"
    return f"; {names} at {'its' if last == 1 else 'their'} best for each point"
