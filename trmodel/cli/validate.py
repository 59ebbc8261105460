"""``trmodel validate``: measured throughput beside what the model predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trmodel.cli import options
from trmodel.cli.output import DOCUMENT_FORMATS, Grid, View, output
from trmodel.cli.plots import check_plot, save
from trmodel.cli.progress import progress_bar
from trmodel.cli.ranges import context_of
from trmodel.cli.serving import require_extra
from trmodel.launch import shown_vector

if TYPE_CHECKING:
    from trmodel.runtime.bench.validation import Validation


class Method(StrEnum):
    """The names of `trmodel.runtime.bench.validate.Method`."""

    auto = "auto"
    chain = "chain"
    simulation = "simulation"


def validate(
    results: Annotated[str, typer.Argument(metavar="RESULTS", help="A file of 'trmodel bench'.")],
    profile: options.ProfileOption = "a100",
    routing: options.RoutingOption = None,
    p: options.POption = None,
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="TOKENS|run",
            help="Context of every request; 'run' for the mean that each run had. Default: the "
            "profile's.",
            rich_help_panel=options.SYSTEM,
        ),
    ] = None,
    method: Annotated[
        Method,
        typer.Option(
            "--method",
            help="Predict by the exact chain or by simulation; auto takes the chain unless "
            "handoffs take time, which it does not have.",
            rich_help_panel=options.SYSTEM,
        ),
    ] = Method.auto,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    plot: options.PlotOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Compare measurements with predictions: error, ranking of thresholds, regret of the advice."""
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds, not a comparison")
    out.keep(results, profile, routing, plot=plot)
    check_plot(plot)
    require_extra()
    from trmodel.profile import load_profile
    from trmodel.runtime.bench import validate as comparing
    from trmodel.runtime.bench.results import read_points

    points = read_points(results)
    loaded = load_profile(profile)
    out.note(f"profile: {loaded.origin}")
    with progress_bar(quiet, "points") as progress:
        found = comparing.validate(
            points,
            loaded,
            routing=routing,
            p=p,
            context="run" if context == "run" else context_of(context),
            method=method.value,
            progress=progress,
        )
    out.emit(validation_view(found))
    if plot is not None:
        from trmodel.report import comparison_figure

        title = f"{loaded.profile.name}: predicted and measured throughput"
        save(comparison_figure(found.measurements(), title=title), plot, out)
    return 0


def validation_view(found: Validation) -> View:
    """Show a comparison."""
    document = found.to_dict()
    records = [{**point, "B": shown_vector(point["B"])} for point in document["points"]]
    methods = " and ".join(sorted({point.method for point in found.points}))
    regret = (
        ""
        if found.max_regret_percent is None
        else (f"; regret of the advice: at most {found.max_regret_percent:.2f} %")
    )
    blocks: list[str | Grid] = [
        _grid(found.point_rows(decimals=2)),
        "predicted and error: at the routing frequencies of the run; nominal: at the routing's "
        "own; own: from the run's own step times, so the error of the model alone",
    ]
    if found.rankings:
        blocks.append(_grid(found.ranking_rows(decimals=2)))
    blocks.append(
        f"{methods}: error {found.mean_error_percent:.2f} % on average, "
        f"{found.max_error_percent:.2f} % at most{regret}"
    )
    return View(document, records, blocks)


def _grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Show rows, with thresholds as the command line takes them."""
    shown = [
        {k: shown_vector(v) if isinstance(v, tuple) else v for k, v in r.items()} for r in rows
    ]
    vectors = tuple(key for key, value in rows[0].items() if isinstance(value, tuple))
    return Grid(tuple(rows[0]), [tuple(map(str, row.values())) for row in shown], vectors)
