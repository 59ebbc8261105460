"""Where the time of requests and models goes: the cost ledger and the busy share of each model."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from trmodel.errors import UsageError
from trmodel.launch import shown_vector
from trmodel.markov import Prediction
from trmodel.report.style import (
    BLUE,
    ORANGE,
    PALE,
    SKY,
    SMALL,
    dress,
    new_figure,
    plain,
)

PARTS = {
    "forward_ms": ("in a running batch", BLUE),
    "threshold_wait_ms": ("waiting for the threshold", ORANGE),
    "batch_wait_ms": ("waiting for a running batch", SKY),
}
"""Parts of the cost ledger: what a request is doing, and its colour."""


def ledger_figure(predictions: Sequence[Prediction], *, title: str | None = None) -> Figure:
    """Plot, for each prediction and model, request-time per token by part, and the busy share.

    The bars of one prediction add up to N / T, which stands above them.

    Parameters
    ----------
    predictions
        In the order of the groups, top first; of systems with any number of models.
    title
        In place of the models.

    Raises
    ------
    UsageError
        If there is no prediction.
    """
    if not predictions:
        raise UsageError("predictions: at least one is needed")
    rows: list[tuple[float, str]] = []
    figure = new_figure(
        1.3 + sum(0.45 + 0.3 * len(p.per_model) for p in predictions),
        title or " + ".join(plain(name) for name in predictions[0].models),
    )
    cost, busy = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
    y = 0.0
    for prediction in predictions:
        cost.annotate(
            f"N = {prediction.N}, B = {shown_vector(prediction.B)}: "
            f"{prediction.throughput_tok_s:.1f} tokens/s, "
            f"{prediction.ledger.total_ms:.2f} ms per token",
            (0.0, y),
            xytext=(2, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
            annotation_clip=False,
        )
        for model in prediction.per_model:
            y += 1.0
            rows.append((y, plain(model.name)))
            left = 0.0
            for part, (_, color) in PARTS.items():
                width = getattr(model.ledger, part)
                cost.barh(y, width, left=left, height=0.75, color=color)
                left += width
            percent = 100.0 * model.busy_fraction
            busy.barh(y, 100.0, height=0.75, color=PALE)
            busy.barh(y, percent, height=0.75, color=BLUE)
            busy.annotate(
                f"{percent:.0f}",
                (100.0, y),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=SMALL,
            )
        y += 1.5
    dress(cost, "Request-time per token (ms)")
    dress(busy, "Model busy (%)")
    for axes in (cost, busy):
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
    cost.set_yticks([y for y, _ in rows], [name for _, name in rows])
    cost.set_ylim(rows[-1][0] + 0.6, -0.6)
    busy.set_xlim(0.0, 118.0)
    busy.set_xticks([0, 50, 100])
    figure.legend(
        [Patch(color=color) for _, color in PARTS.values()],
        [name for name, _ in PARTS.values()],
        loc="outside lower center",
        ncols=3,
        fontsize=SMALL,
        frameon=False,
        columnspacing=1.0,
        handlelength=1.2,
    )
    return figure
