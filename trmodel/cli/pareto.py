"""``trmodel pareto``: throughput against a delay, for every live threshold vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trmodel.cli import options
from trmodel.cli.output import DOCUMENT_FORMATS, Grid, View, output
from trmodel.cli.plots import check_plot, save
from trmodel.cli.progress import progress_bar
from trmodel.cli.ranges import context_of, whole_number
from trmodel.errors import UsageError

if TYPE_CHECKING:
    from trmodel.search.pareto import Pareto, Point


def pareto(
    N: Annotated[str, typer.Option("--N", metavar="N", help="Concurrent requests.")],
    profile: options.ProfileOption = "a100",
    routing: options.RoutingOption = None,
    p: options.POption = None,
    context: options.ContextOption = None,
    max_batch: options.MaxBatchOption = None,
    grid_ms: options.GridOption = None,
    delay: Annotated[
        str,
        typer.Option(
            "--delay",
            metavar="NAME",
            help="The delay to set against throughput: any of --slo's, such as p90-itl-ms or "
            "p99-admission-ms.",
        ),
    ] = "p99-itl-ms",
    batches: Annotated[
        int, typer.Option("--batches", help="How many batches to simulate for each vector.")
    ] = 200_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the simulations.")] = 0,
    every: Annotated[
        bool, typer.Option("--all", help="Print the dominated vectors as well.")
    ] = False,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    plot: options.PlotOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Set throughput against a delay over all live thresholds, and find the front.

    A vector is on the front if none has both more throughput and a shorter delay.
    """
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "takes a whole table; use trmodel tune --format r2r")
    concurrency, tokens = whole_number(N, "--N"), context_of(context)
    out.keep(profile, routing, plot=plot)
    check_plot(plot)
    from trmodel import api
    from trmodel.profile import load_profile
    from trmodel.simulate.sections import SECTIONS

    if batches < SECTIONS:
        raise UsageError(f"--batches: at least {SECTIONS} are needed, got {batches}")
    loaded = load_profile(profile)
    out.note(f"profile: {loaded.origin}")
    with progress_bar(quiet, "steps") as progress:
        result = api.pareto(
            loaded,
            concurrency,
            delay=delay,
            batches=batches,
            seed=seed,
            progress=progress,
            routing=routing,
            p=p,
            context=tokens,
            max_batch=max_batch,
            grid_ms=grid_ms,
        )
    out.emit(_view(result, every), lambda: _view(result, True))
    if plot is not None:
        from trmodel.report import pareto_figure

        save(pareto_figure(result), plot, out)
    return 0


def _view(result: Pareto, every: bool) -> View:
    from trmodel.launch import shown_vector
    from trmodel.search.pareto import CONFIDENCE, Place

    name = result.origin["profile"]["name"]
    named = {result.chosen: "chosen", result.eager: "eager"}
    shown = [
        point
        for point in result.points
        if every or point.place is not Place.dominated or point.candidate.B in named
    ]
    best = result.points[0].throughput_tok_s

    def cells(point: Point) -> tuple[str, ...]:
        delay = point.delay_ms
        return (
            shown_vector(point.candidate.B),
            f"{point.throughput_tok_s:.1f}",
            f"{point.throughput_tok_s / result.N:.1f}",
            f"{100.0 * (point.throughput_tok_s / best - 1.0):.1f}",
            f"{delay.value:.2f}",
            f"{delay.low:.2f}..{delay.high:.2f}",
            point.place.value,
            named.get(point.candidate.B, ""),
        )

    headings = (
        "B",
        "tok/s",
        "per request",
        "to best %",
        result.delay,
        f"{CONFIDENCE:.0%} sure",
        "place",
        "",
    )
    methods = " and ".join(sorted({point.candidate.method for point in result.points}))
    hidden = len(result.points) - len(shown)
    count = f"{len(result.front)} of {len(result.points)} live vectors are on the front" + (
        f"; {hidden} dominated ones are not shown (--all)" if hidden else ""
    )
    how = (
        f"throughput {methods}; delays simulated with the same random numbers for each vector, "
        f"{result.batches:,} batches, {CONFIDENCE:.0%} intervals"
    )
    title = f"{name}: throughput against {result.delay}, N = {result.N}, B of " + ", ".join(
        result.models
    )
    grid = Grid(headings, [cells(point) for point in shown], ("B", "place", ""))
    return View(
        result.to_dict(),
        result.to_records(),
        [title, grid, f"{count};\n{how}"],
        warnings=result.warnings,
    )
