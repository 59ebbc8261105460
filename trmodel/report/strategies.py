"""Throughput of several strategies or systems as bars with their confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from trmodel.errors import UsageError
from trmodel.report.style import BLUE, GREY, ORANGE, SMALL, dress, new_figure, plain
from trmodel.simulate import Simulation


def strategies_figure(
    simulations: Mapping[str, Simulation], *, title: str, reference: str | None = None
) -> Figure:
    """Plot throughput with its interval, and beside it the 99th percentile between tokens.

    Parameters
    ----------
    simulations
        By name, top first.
    title
        What they have in common.
    reference
        The one that stands out.

    Raises
    ------
    UsageError
        If there is none.
    """
    if not simulations:
        raise UsageError("simulations: at least one is needed")
    some = next(iter(simulations.values()))
    figure = new_figure(
        1.1 + 0.3 * len(simulations), title, f"simulated; lines: {100 * some.confidence:g} %"
    )
    speed, tail = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    rows = range(len(simulations))
    colors = [ORANGE if name == reference else BLUE for name in simulations]
    for axes, figures in (
        (speed, [found.throughput_tok_s for found in simulations.values()]),
        (tail, [found.inter_token_ms.p99 for found in simulations.values()]),
    ):
        axes.barh(rows, [f.value for f in figures], height=0.7, color=colors)
        axes.errorbar(
            [f.value for f in figures],
            rows,
            xerr=[max(f.half_width, 0.0) for f in figures],
            fmt="none",
            ecolor="black",
            elinewidth=1.0,
        )
        for row, found in zip(rows, figures, strict=True):
            axes.annotate(
                f"{found.value:.0f}",
                (found.value, row),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=SMALL,
                color=GREY,
            )
        axes.margins(x=0.2)
        axes.set_xlim(left=0.0)
    dress(speed, "Throughput (tokens/s)")
    dress(tail, "p99 token gap (ms)")
    for axes in (speed, tail):
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
    speed.set_yticks(rows, [plain(name) for name in simulations])
    speed.invert_yaxis()
    return figure
