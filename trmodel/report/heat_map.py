"""Throughput over both thresholds of two models."""

from __future__ import annotations

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from trmodel.errors import UsageError
from trmodel.launch import is_live, shown_vector
from trmodel.report.style import (
    GREY,
    PALE,
    SMALL,
    TEXT,
    dress,
    new_figure,
    plain,
    star,
    system_words,
    whole_numbers,
)
from trmodel.search import ThresholdTable

MOST_NUMBERS = 8
"""The largest N at which every cell has room for its number."""


def heat_map_figure(
    table: ThresholdTable, N: int | None = None, *, title: str | None = None
) -> Figure:
    """Map throughput over B0 and B1; vectors that can deadlock are hatched, the chosen one starred.

    Parameters
    ----------
    table
        Of two models. Vectors that were not searched, because a threshold was given, are grey.
    N
        Which row; None for the largest.
    title
        In place of the profile and models.

    Raises
    ------
    UsageError
        If the table is not of two models, or has no such row.
    """
    if len(table.models) != 2:
        raise UsageError(f"heat map: needs two models, the table has {len(table.models)}")
    row = table.row(table.rows[-1].N if N is None else N)
    size = row.N
    T = np.full((size, size), np.nan)
    for candidate in row.candidates:
        B0, B1 = candidate.B
        T[B1 - 1, B0 - 1] = candidate.throughput_tok_s
    cells = [(B0, B1) for B0 in range(1, size + 1) for B1 in range(1, size + 1)]
    figure = new_figure(
        4.2,
        title or system_words(table.origin, table.models),
        f"N = {size}; ★ chosen B = {shown_vector(row.B)}; hatched: can deadlock"
        + ("; grey: not searched" if len(row.candidates) < size * (size + 1) // 2 else ""),
    )
    axes = figure.add_subplot()
    edges = np.arange(size + 1) + 0.5
    mesh = axes.pcolormesh(edges, edges, np.ma.masked_invalid(T), cmap="viridis")
    hatched = [
        Rectangle((B0 - 0.5, B1 - 0.5), 1, 1) for B0, B1 in cells if not is_live((B0, B1), size)
    ]
    axes.add_collection(
        PatchCollection(
            hatched,
            hatch="////",
            facecolor="white",
            edgecolor=GREY,
            linewidth=0,
            gid="infeasible",
        )
    )
    axes.plot([row.B[0]], [row.B[1]], **star(size))
    if size <= MOST_NUMBERS:
        middle = (np.nanmin(T) + np.nanmax(T)) / 2
        for B0, B1 in cells:
            value = T[B1 - 1, B0 - 1]
            if np.isfinite(value):
                axes.annotate(
                    f"{value:.0f}",
                    (B0, B1),
                    xytext=(0, -11 if (B0, B1) == row.B else 0),
                    textcoords="offset points",
                    ha="center",
                    va="center",
                    fontsize=SMALL,
                    color="white" if value < middle else "black",
                )
    dress(
        axes,
        f"Threshold B0 of {plain(table.models[0])} (requests)",
        f"Threshold B1 of {plain(table.models[1])} (requests)",
    )
    axes.grid(visible=False)
    axes.set_facecolor(PALE)
    axes.set_aspect("equal")
    axes.xaxis.set_major_locator(whole_numbers())
    axes.yaxis.set_major_locator(whole_numbers())
    bar = figure.colorbar(mesh, ax=axes)
    bar.set_label("Throughput (tokens/s)", fontsize=TEXT)
    bar.ax.tick_params(labelsize=SMALL, color=GREY)
    return figure
