"""Latency tables of a profile: how long a step takes by batch and context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from trmodel.profile import ModelProfile, Profile
from trmodel.report.style import GREY, SMALL, TEXT, dress, new_figure, plain, shades

COLUMNS = 2


def profile_figure(profile: Profile, *, title: str | None = None) -> Figure:
    """Plot step latency against batch: a panel for each model, in it a line for each context.

    Listed latencies plus overhead; hollow marks are entries that were not measured.

    Parameters
    ----------
    profile
        With any number of models and contexts.
    title
        In place of the profile's name.
    """
    models = profile.models
    contexts = sorted({context for model in models for context in model.decode.contexts})
    colours = dict(zip(contexts, shades(len(contexts)), strict=True))
    columns = min(COLUMNS, len(models))
    rows = -(-len(models) // columns)
    figure = new_figure(
        1.1 + 1.9 * rows,
        title or f"{plain(profile.name)}: duration of a decode step",
        "overhead included" + ("; hollow: not measured" if _any_guessed(models) else ""),
    )
    panels = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes, model in zip(panels, models, strict=False):
        _lines(axes, model, colours)
    for axes in panels[len(models) :]:
        axes.remove()
    if len(contexts) > 1:
        handles = {
            label: handle
            for axes in panels[: len(models)]
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        ordered = [f"{context}" for context in contexts[::-1]]
        figure.legend(
            [handles[label] for label in ordered],
            ordered,
            title="context",
            loc="outside right center",
            fontsize=SMALL,
            title_fontsize=SMALL,
            frameon=False,
            handlelength=1.2,
        )
    figure.supxlabel("Requests in the step", fontsize=TEXT)
    figure.supylabel("Duration of a step (ms)", fontsize=TEXT)
    return figure


def _any_guessed(models: Sequence[ModelProfile]) -> bool:
    return any(s != "measured" for m in models for row in m.decode.status_rows for s in row)


def _lines(axes: Axes, model: ModelProfile, colours: dict[int, Any]) -> None:
    table = model.decode
    overhead = model.overhead.value_ms if model.overhead else 0.0
    dress(axes, "")
    for r, row in enumerate(table.rows):
        context = table.contexts[r] if table.contexts else None
        colour = GREY if context is None else colours[context]
        steps = [latency + overhead for latency in row]
        label = "unknown" if context is None else f"{context}"
        axes.plot(table.batch, steps, color=colour, marker="o", markersize=3.5, label=label)
        guessed = [k for k, status in enumerate(table.status_rows[r]) if status != "measured"]
        axes.plot(
            [table.batch[k] for k in guessed],
            [steps[k] for k in guessed],
            color=colour,
            marker="o",
            markersize=3.5,
            markerfacecolor="white",
            linestyle="none",
            gid="not measured",
        )
    axes.set_title(plain(model.name), loc="left", fontsize=SMALL)
    axes.set_xscale("log", base=2)
    ticks = [4**k for k in range(table.batch[-1].bit_length()) if 4**k <= table.batch[-1]]
    axes.set_xticks(ticks, [f"{tick}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(bottom=0.0)
