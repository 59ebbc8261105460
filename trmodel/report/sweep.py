"""What a sweep over the routing probability p shows: when delayed batching is worth it, and how
large the thresholds should be."""

from __future__ import annotations

from collections.abc import Collection

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trmodel.report.style import (
    GREY,
    SMALL,
    TEXT,
    dress,
    new_figure,
    plain,
    shades,
    system_words,
    whole_numbers,
)
from trmodel.search.choose import NOT_WORTH_IT_PERCENT
from trmodel.search.sweep import Sweep

LEGEND_ROWS = 16


def sweep_figure(sweep: Sweep, *, given: Collection[int] = (), title: str | None = None) -> Figure:
    """Plot, against p, the gain over eager launching and the chosen thresholds, a line per N.

    Parameters
    ----------
    sweep
        Rows that a stopped sweep lacks are left out.
    given
        The models whose thresholds were fixed and not chosen.
    title
        In place of the profile and models.
    """
    first = sweep.tables[0]
    models = first.models
    chosen = [i for i in range(len(models)) if i == len(models) - 1 or _ever_delayed(sweep, i)]
    figure = new_figure(
        2.5 + 1.5 * len(chosen),
        title or system_words(first.origin, models),
        f"dotted: gain of {NOT_WORTH_IT_PERCENT:g} %, below which delaying is not worth it",
    )
    gain, *panels = figure.subplots(1 + len(chosen), sharex=True)
    in_order = sorted(sweep, key=lambda pair: pair[0])
    concurrencies = sorted({row.N for _, table in sweep for row in table})
    for N, color in zip(concurrencies, shades(len(concurrencies)), strict=True):
        found = [(p, table.row(N)) for p, table in in_order if N in table.by_N]
        p = [p for p, _ in found]
        style = {"color": color, "marker": "o", "markersize": 3.5, "linewidth": 1.3}
        gain.plot(p, [row.gain_percent for _, row in found], label=f"{N}", **style)
        for i, axes in zip(chosen, panels, strict=True):
            axes.plot(p, [row.B[i] for _, row in found], **style)
    dress(gain, "", "Gain over eager (%)")
    gain.axhline(NOT_WORTH_IT_PERCENT, color=GREY, linewidth=0.8, linestyle=":")
    for i, axes in zip(chosen, panels, strict=True):
        dress(axes, "", f"B{i} (requests)")
        how = "Given" if i in given else "Chosen"
        axes.set_title(f"{how} threshold of {plain(models[i])}", loc="left", fontsize=SMALL)
        axes.yaxis.set_major_locator(whole_numbers())
        axes.set_ylim(bottom=0.5)
    panels[-1].set_xlabel(f"Probability p of a hand-over by {plain(models[0])}", fontsize=TEXT)
    _legend(figure, gain, len(concurrencies))
    return figure


def _ever_delayed(sweep: Sweep, model: int) -> bool:
    return any(row.B[model] > 1 for _, table in sweep for row in table)


def _legend(figure: Figure, axes: Axes, entries: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles[::-1],
        labels[::-1],
        title="N",
        loc="outside right center",
        ncols=-(-entries // LEGEND_ROWS),
        fontsize=SMALL,
        title_fontsize=SMALL,
        frameon=False,
        handlelength=1.2,
    )
