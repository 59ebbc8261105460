"""``--plot FILE``: drawn by `trmodel.report`, which is imported only when asked for."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from trmodel.cli.output import Output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trmodel.markov import Prediction
    from trmodel.search import ThresholdTable
    from trmodel.search.sweep import Sweep


def check_plot(file: str | None) -> None:
    """Refuse a file that cannot be drawn to, before a long computation.

    Raises
    ------
    InputError
    """
    if file is not None:
        from trmodel.report import check_figure_path

        check_figure_path(file)


def draw(
    result: ThresholdTable | Sweep | list[Prediction],
    file: str,
    out: Output,
    given: Collection[int] = (),
) -> None:
    """Draw a table, a sweep or predictions to a file; ``given`` are models with fixed thresholds.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    from trmodel.report import ledger_figure, sweep_figure, threshold_figure
    from trmodel.search.sweep import Sweep

    if isinstance(result, list):
        figure = ledger_figure(result)
    elif isinstance(result, Sweep):
        figure = sweep_figure(result, given=given)
    else:
        figure = threshold_figure(result)
    save(figure, file, out)


def save(figure: Figure, file: str, out: Output) -> None:
    """Write a figure and say so.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    from trmodel.report import save_figure

    save_figure(figure, file)
    out.note(f"wrote {file}")
