"""Each model's batches over time, a panel for each strategy."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from trmodel.errors import UsageError
from trmodel.launch import shown_vector
from trmodel.report.style import GREY, PALE, SERIES, SMALL, dress, new_figure, plain
from trmodel.simulate.timeline import Timeline

_CHARACTER = 0.013
"""Width of one figure of a label as a share of the panel; narrower bars have no label."""


def timeline_figure(timelines: Mapping[str, Timeline], *, title: str | None = None) -> Figure:
    """Plot when each model ran a batch, labelled with its size; grey is idle.

    Parameters
    ----------
    timelines
        By name of the strategy, in the order of the panels, of systems with the same models.
    title
        In place of the models.

    Raises
    ------
    UsageError
        If there is no timeline.
    """
    if not timelines:
        raise UsageError("timelines: at least one is needed")
    first = next(iter(timelines.values()))
    M = len(first.models)
    figure = new_figure(
        1.0 + len(timelines) * (0.35 + 0.28 * M),
        title or " + ".join(plain(name) for name in first.models),
        "batches over time, labelled with their size; grey: idle",
    )
    panels = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, line) in zip(panels, timelines.items(), strict=True):
        span = line.end_ms - line.start_ms
        for i in range(M):
            axes.barh(i, span, left=line.start_ms, height=0.8, color=PALE, gid="idle")
            own = [batch for batch in line.batches if batch.model == i]
            shown = [line.shown(batch) for batch in own]
            axes.broken_barh(
                [(start, end - start) for start, end in shown],
                (i - 0.4, 0.8),
                facecolor=SERIES[i % len(SERIES)],
                edgecolor="white",
                linewidth=0.4,
                gid="batches",
            )
            for batch, (start, end) in zip(own, shown, strict=True):
                label = str(batch.size)
                if end - start > _CHARACTER * (len(label) + 0.3) * span:
                    axes.text(
                        (start + end) / 2,
                        i,
                        label,
                        ha="center",
                        va="center",
                        color="white",
                        fontsize=SMALL - 2,
                    )
        dress(axes, "Time (ms)" if axes is panels[-1] else "")
        axes.grid(visible=False)
        thresholds = f", B = {shown_vector(line.B)}" if name == "delayed" else ""
        axes.set_title(f"{plain(name)}{thresholds}", loc="left", fontsize=SMALL, color=GREY, pad=2)
        axes.set_yticks(range(M), [plain(model) for model in line.models])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(M - 0.5, -0.5)
        axes.set_xlim(line.start_ms, line.end_ms)
    return figure
