"""The look that all plots share: sizes, colours that colour-blind readers can tell apart, words.

Everything is set on the artists themselves; the process's matplotlib settings are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

WIDTH_IN = 5.2
TEXT, SMALL = 9.0, 8.0
BLUE, VERMILLION, GREEN, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9"
"""From the palette of Okabe and Ito."""
SERIES = (BLUE, VERMILLION, GREEN, ORANGE, SKY)
GREY, PALE = "#666666", "#E4E4E4"
LONGEST_NAME = 28


def new_figure(height_in: float, title: str, subtitle: str = "") -> Figure:
    """Return an empty figure one text column wide, with its title and a smaller line below."""
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=150, layout="constrained")
    figure.set_facecolor("white")
    figure.suptitle(title + (f"\n{subtitle}" if subtitle else ""), x=0.02, ha="left", fontsize=TEXT)
    return figure


def dress(axes: Axes, xlabel: str, ylabel: str = "") -> None:
    """Label axes and give them the shared look."""
    axes.set_xlabel(xlabel, fontsize=TEXT)
    axes.set_ylabel(ylabel, fontsize=TEXT)
    axes.tick_params(labelsize=SMALL, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.grid(color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)


def whole_numbers() -> MaxNLocator:
    """Return a tick locator for axes that count something."""
    return MaxNLocator(integer=True, min_n_ticks=1)


def shades(count: int) -> list[tuple[float, ...]]:
    """Return that many colours in order, dark to light, for a family of curves."""
    ramp = colormaps["viridis"]
    return [tuple(ramp(0.8 * i / max(count - 1, 1))) for i in range(count)]


def star(companions: int = 1) -> dict[str, Any]:
    """Return the mark of chosen thresholds, the same in every plot; smaller among many."""
    return {
        "marker": "*",
        "markersize": 13 if companions <= 16 else 9,
        "markerfacecolor": VERMILLION,
        "markeredgecolor": "white",
        "markeredgewidth": 0.8,
        "linestyle": "none",
        "zorder": 5,
        "gid": "chosen",
    }


def plain(text: str) -> str:
    """Return a name fit to draw: not read as mathematics, and cut where it is long."""
    short = text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"
    return short.replace("$", r"\$")


def system_words(origin: Mapping[str, Any], models: Sequence[str]) -> str:
    """Name the profile (where known) and the models that a result is about."""
    names = " + ".join(plain(name) for name in models)
    profile = origin.get("profile", {}).get("name")
    return f"{plain(profile)}: {names}" if profile else names
