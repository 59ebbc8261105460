"""``trmodel simulate``: what one strategy gives, or all four, by event simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trmodel.cli import options
from trmodel.cli.options import SIMULATION
from trmodel.cli.output import DOCUMENT_FORMATS, Output, output
from trmodel.cli.plots import check_plot, save
from trmodel.cli.progress import progress_bar
from trmodel.cli.ranges import context_of, vector, whole_number
from trmodel.cli.streams import complain
from trmodel.errors import InputError, LimitError, UsageError

if TYPE_CHECKING:
    from trmodel.markov import Prediction
    from trmodel.simulate import Options
    from trmodel.simulate.paired import Case

STRATEGIES = ("delayed", "eager", "step-sync", "model-sync", "all")


def simulate(
    N: Annotated[str, typer.Option("--N", metavar="N", help="Concurrent requests.")],
    B: Annotated[
        str | None,
        typer.Option(
            "--B",
            metavar="B0,B1,...",
            help="A threshold for each model, such as 1,3; needed by delayed batching.",
        ),
    ] = None,
    profile: options.ProfileOption = "a100",
    routing: options.RoutingOption = None,
    p: options.POption = None,
    context: options.ContextOption = None,
    max_batch: options.MaxBatchOption = None,
    grid_ms: options.GridOption = None,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="NAME",
            help="delayed, eager (B = 1), step-sync, model-sync, or all four compared.",
            rich_help_panel=SIMULATION,
        ),
    ] = "delayed",
    batches: options.BatchesOption = 500_000,
    precision: options.PrecisionOption = None,
    seed: options.SimulationSeedOption = 0,
    confidence: options.ConfidenceOption = 0.95,
    hold_ms: Annotated[
        float | None,
        typer.Option(
            "--hold-ms",
            metavar="MS",
            help="Delayed batching: start what waits once the oldest has waited this long.",
            rich_help_panel=SIMULATION,
        ),
    ] = None,
    arrivals: Annotated[
        float | None,
        typer.Option(
            "--arrivals",
            metavar="PER_S",
            help="Poisson arrivals of this rate, at most N served at a time; else N always are.",
            rich_help_panel=SIMULATION,
        ),
    ] = None,
    reply_tokens: Annotated[
        str | None,
        typer.Option(
            "--reply-tokens",
            metavar="MEAN|FILE",
            help="Lengths of replies in tokens: geometric of this mean, or drawn from a file "
            "of lengths.",
            rich_help_panel=SIMULATION,
        ),
    ] = None,
    on_grid: Annotated[
        bool,
        typer.Option(
            "--on-grid",
            help="Round latencies to the time unit of the exact chain.",
            rich_help_panel=SIMULATION,
        ),
    ] = False,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Also the exact chain's throughput, where it has what is simulated.",
            rich_help_panel=SIMULATION,
        ),
    ] = False,
    timeline: Annotated[
        str | None,
        typer.Option(
            "--timeline",
            metavar="FILE",
            help="Also draw each model's batches over time to FILE (.png, .svg, .pdf), or write "
            "them as a Chrome trace (.json).",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    timeline_ms: Annotated[
        float,
        typer.Option(
            "--timeline-ms",
            metavar="MS",
            help="How much of the time the timeline shows.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = 300.0,
    timeline_from: Annotated[
        float,
        typer.Option(
            "--timeline-from",
            metavar="MS",
            help="When the timeline begins; at 0 all requests wait at the entry model.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = 0.0,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    plot: options.PlotOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Simulate throughput and delays, with intervals, under one strategy or all four."""
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "takes a whole table; use trmodel tune --format r2r")
    concurrency, tokens = whole_number(N, "--N"), context_of(context)
    thresholds = None if B is None else vector(B, "--B")
    _check(strategy, thresholds is not None, hold_ms, plot)
    out.keep(profile, routing, reply_tokens, plot=plot)
    check_plot(plot)
    _check_timeline(timeline, out, profile, routing, reply_tokens, file, plot)
    from trmodel import api
    from trmodel.cli import simulations as views
    from trmodel.profile import build_system, load_profile
    from trmodel.simulate import Options
    from trmodel.simulate import simulate as run_one
    from trmodel.simulate.paired import simulate_paired
    from trmodel.simulate.strategies import STRATEGIES as FOUR
    from trmodel.simulate.strategies import strategy_case

    wanted = Options(
        on_grid=on_grid,
        hold_ms=hold_ms,
        arrivals_per_s=arrivals,
        reply_tokens=None if reply_tokens is None else _lengths(reply_tokens),
    )
    loaded = load_profile(profile)
    out.note(f"profile: {loaded.origin}")
    system = build_system(
        loaded, concurrency, routing, p=p, max_batch=max_batch, grid_ms=grid_ms, context=tokens
    )
    origin = api.origin_of(loaded, system, tokens) | {"options": _asked(wanted, reply_tokens)}
    names = FOUR if strategy == "all" else (strategy,)
    cases = {name: strategy_case(name, system, thresholds, wanted) for name in names}
    # What cannot be solved or drawn is told before the simulation.
    solved, limit = _solve(cases, strategy == "all") if exact else ({}, None)
    drawn = _timelines(cases, seed, timeline_from, timeline_ms) if timeline else {}
    run: dict[str, Any] = {
        "seed": seed,
        "batches": batches,
        "precision_percent": precision,
        "confidence": confidence,
    }
    with progress_bar(quiet, "sections") as progress:
        if strategy != "all":
            case = cases[strategy]
            simulation = run_one(case.system, case.B, case.options, progress=progress, **run)
            view = views.simulation_view(simulation, origin, strategy, solved.get(strategy))
        else:
            comparison = simulate_paired(cases, "delayed", progress=progress, **run)
            view = views.strategies_view(comparison, origin, solved)
    out.emit(view)
    if plot is not None:
        from trmodel.report import strategies_figure

        title = f"{origin['profile']['name']}: strategies at N = {concurrency}"
        save(strategies_figure(comparison.simulations, title=title, reference="delayed"), plot, out)
    if timeline is not None:
        _write_timeline(drawn, timeline, out)
    if limit is not None:
        complain(f"exact: {limit}")
        return LimitError.exit_code
    return 0


def _check(strategy: str, thresholds: bool, hold_ms: float | None, plot: str | None) -> None:
    """Refuse options that make no sense together."""
    if strategy not in STRATEGIES:
        raise UsageError(f"--strategy: must be one of {', '.join(STRATEGIES)}, got {strategy}")
    delayed = strategy in ("delayed", "all")
    if delayed and not thresholds:
        raise UsageError("--B: delayed batching needs a threshold for each model, such as 1,3")
    if not delayed and thresholds:
        raise UsageError(f"--B: {strategy} has no thresholds; leave it out")
    if not delayed and hold_ms is not None:
        raise UsageError(f"--hold-ms: {strategy} does not hold; leave it out")
    if strategy != "all" and plot is not None:
        raise UsageError("--plot: compares strategies; use --strategy all, or --timeline FILE")


def _check_timeline(timeline: str | None, out: Output, *others: str | None) -> None:
    if timeline is None:
        return
    from pathlib import Path

    from trmodel.cli.output import same_file
    from trmodel.documents import check_writable

    for other in others:
        if other and same_file(other, timeline):
            raise UsageError(f"--timeline: {timeline} is named twice; choose another file")
    if Path(timeline).suffix.lower() == ".json":
        check_writable(timeline)
        return
    try:
        check_plot(timeline)
    except InputError as error:
        raise InputError(f"{error}, or .json for a trace") from None


def _lengths(text: str) -> tuple[float, ...]:
    """Read ``--reply-tokens``: a number is a mean, anything else a file."""
    from trmodel.simulate.lengths import geometric_lengths, load_lengths

    try:
        mean = float(text)
    except ValueError:
        return load_lengths(text)
    return geometric_lengths(mean)


def _asked(wanted: Options, reply_tokens: str | None) -> dict[str, Any]:
    """Return the options that change what is simulated, as plain values."""
    lengths = wanted.reply_tokens
    return {
        "on_grid": wanted.on_grid,
        "hold_ms": wanted.hold_ms,
        "arrivals_per_s": wanted.arrivals_per_s,
        "reply_tokens": reply_tokens,
        "mean_reply_tokens": None if lengths is None else sum(lengths) / len(lengths),
    }


def _solve(
    cases: Mapping[str, Case], several: bool
) -> tuple[dict[str, Prediction], LimitError | None]:
    """Solve the chains of the cases that it has; of several, those of the first two strategies."""
    from trmodel.api.simulating import exact_counterpart

    solved = {}
    try:
        for name, case in cases.items():
            if not several or name in ("eager", "delayed"):
                solved[name] = exact_counterpart(case)
    except LimitError as error:
        return solved, error
    return solved, None


def _timelines(cases: Mapping[str, Case], seed: int, start: float, duration: float) -> Any:
    from trmodel.simulate.timeline import timeline

    return {
        name: timeline(case, seed=seed, start_ms=start, duration_ms=duration)
        for name, case in cases.items()
    }


def _write_timeline(drawn: Any, file: str, out: Output) -> None:
    if file.lower().endswith(".json"):
        from trmodel.documents import json_text, write_text_atomically
        from trmodel.simulate.timeline import chrome_trace

        write_text_atomically(file, json_text(chrome_trace(drawn)))
        out.note(f"wrote {file}")
        return
    from trmodel.report import timeline_figure

    save(timeline_figure(drawn), file, out)
