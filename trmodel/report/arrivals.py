"""What happens as requests come faster, and where objectives end it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trmodel.report.style import (
    BLUE,
    GREY,
    SMALL,
    VERMILLION,
    dress,
    new_figure,
    plain,
    system_words,
)
from trmodel.search.arrivals_result import Arrivals, Load
from trmodel.search.objectives import SPEED
from trmodel.simulate.intervals import Estimate

SPAN = 10.0
"""Delays that differ by more than this factor are drawn on a logarithmic scale."""


@dataclass(frozen=True)
class _Panel:
    label: str
    figure: Callable[[Load], Estimate]
    limit: float | None = None
    logarithmic: bool = True


def arrivals_figure(arrivals: Arrivals, *, title: str | None = None) -> Figure:
    """Plot throughput and each objective's figure against the rate of arrivals.

    Dashed lines are limits, the vertical line is the largest rate at which all are met, the dotted
    one the capacity; bars are intervals. Without objectives inter-token time and time to first
    token are shown. Delays that differ much are on a logarithmic scale.

    Parameters
    ----------
    title
        In place of the profile and models.
    """
    panels = [
        _Panel("Throughput\n(tokens/s)", lambda load: load.throughput_tok_s, None, False),
        *_panels(arrivals),
    ]
    figure = new_figure(
        0.9 + 1.5 * len(panels),
        title or system_words(arrivals.origin, arrivals.models),
        f"at most {arrivals.N} at a time; largest rate "
        f"{arrivals.largest.rate_per_s:.3g}, capacity {arrivals.capacity_per_s.value:.3g} "
        "requests/s",
    )
    every = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(every, panels, strict=True):
        _draw(axes, panel, arrivals)
    every[-1].set_xlabel("Arrivals (requests/s)", fontsize=SMALL + 1)
    return figure


def _panels(arrivals: Arrivals) -> list[_Panel]:
    panels = []
    for place, objective in enumerate(arrivals.objectives):

        def measured(load: Load, place: int = place) -> Estimate:
            return load.measured[place].value

        if objective.name == SPEED:
            label = "Request speed\n(tokens/s)"
            panels.append(_Panel(label, measured, objective.limit, False))
        else:
            label = plain(objective.label).replace("-ms", "").replace(":", "\n") + " (ms)"
            panels.append(_Panel(label, measured, objective.limit))
    return panels or [
        _Panel("p99-itl (ms)", lambda load: load.inter_token_ms.p99),
        _Panel("p99-ttft (ms)", lambda load: load.first_token_ms.p99),
    ]


def _draw(axes: Axes, panel: _Panel, arrivals: Arrivals) -> None:
    loads = arrivals.loads
    values = [panel.figure(load) for load in loads]
    axes.errorbar(
        [load.rate_per_s for load in loads],
        [value.value for value in values],
        yerr=[
            [max(value.value - value.low, 0.0) for value in values],
            [max(value.high - value.value, 0.0) for value in values],
        ],
        color=BLUE,
        marker="o",
        markersize=3.5,
        linewidth=1.3,
        elinewidth=0.8,
    )
    if panel.limit is not None:
        axes.axhline(panel.limit, color=VERMILLION, linewidth=1.0, linestyle="--", gid="limit")
    axes.axvline(arrivals.largest.rate_per_s, color=VERMILLION, linewidth=1.0, gid="largest")
    axes.axvline(arrivals.capacity_per_s.value, color=GREY, linewidth=1.0, linestyle=":")
    dress(axes, "", panel.label)
    seen = [value.value for value in values]
    if panel.logarithmic and max(seen) > SPAN * min(seen) > 0.0:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0.0)
