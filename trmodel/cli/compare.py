"""``trmodel compare``: token-level routing beside what else could serve the same requests."""

from __future__ import annotations

from typing import Annotated

import typer

from trmodel.cli import options
from trmodel.cli.output import DOCUMENT_FORMATS, output
from trmodel.cli.plots import check_plot, save
from trmodel.cli.progress import progress_bar
from trmodel.cli.ranges import context_of, vector, whole_number


def compare(
    N: Annotated[str, typer.Option("--N", metavar="N", help="Concurrent requests.")],
    B: Annotated[
        str | None,
        typer.Option(
            "--B",
            metavar="B0,B1,...",
            help="Thresholds of delayed batching. Default: those that tune chooses.",
        ),
    ] = None,
    profile: options.ProfileOption = "a100",
    routing: options.RoutingOption = None,
    p: options.POption = None,
    context: options.ContextOption = None,
    max_batch: options.MaxBatchOption = None,
    grid_ms: options.GridOption = None,
    share: Annotated[
        float,
        typer.Option(
            "--share",
            metavar="PERCENT",
            help="Request-level routing: questions that the large model answers.",
            rich_help_panel=options.SIMULATION,
        ),
    ] = 40.0,
    reply_tokens: Annotated[
        float,
        typer.Option(
            "--reply-tokens",
            metavar="MEAN",
            help="Request-level routing: mean length of a reply (geometric).",
            rich_help_panel=options.SIMULATION,
        ),
    ] = 500.0,
    keep_overhead: Annotated[
        bool,
        typer.Option(
            "--keep-overhead",
            help="Leave the profile's overhead in the steps of all systems.",
            rich_help_panel=options.SIMULATION,
        ),
    ] = False,
    batches: options.BatchesOption = 500_000,
    precision: options.PrecisionOption = None,
    seed: options.SimulationSeedOption = 0,
    confidence: options.ConfidenceOption = 0.95,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    plot: options.PlotOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Compare delayed batching with eager, request-level routing and single models."""
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "takes a whole table; use trmodel tune --format r2r")
    concurrency, tokens = whole_number(N, "--N"), context_of(context)
    thresholds = None if B is None else vector(B, "--B")
    out.keep(profile, routing, plot=plot)
    check_plot(plot)
    from trmodel.api import compare_systems, origin_of
    from trmodel.cli.simulations import systems_view
    from trmodel.profile import build_system, load_profile

    loaded = load_profile(profile)
    out.note(f"profile: {loaded.origin}")
    given = {
        "routing": routing,
        "p": p,
        "context": tokens,
        "max_batch": max_batch,
        "grid_ms": grid_ms,
    }
    origin = origin_of(loaded, build_system(loaded, concurrency, **given), tokens)  # type: ignore[arg-type]
    with progress_bar(quiet, "sections") as progress:
        found = compare_systems(
            loaded,
            N=concurrency,
            B=thresholds,
            share_percent=share,
            reply_tokens=reply_tokens,
            keep_overhead=keep_overhead,
            batches=batches,
            precision_percent=precision,
            seed=seed,
            confidence=confidence,
            progress=progress,
            **given,  # type: ignore[arg-type]
        )
    out.emit(systems_view(found, origin))
    if plot is not None:
        from trmodel.report import strategies_figure

        name = origin["profile"]["name"]
        title = f"{name}: ways to serve N = {concurrency}, and tokens by the large model"
        simulations = {
            f"{name}, {found.large_token_percent[name]:.0f} %": simulation
            for name, simulation in found.comparison.simulations.items()
        }
        first = next(iter(simulations))
        save(strategies_figure(simulations, title=title, reference=first), plot, out)
    return 0
