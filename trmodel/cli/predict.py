"""``trmodel predict``: what one threshold vector gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trmodel.cli import options
from trmodel.cli.options import SolverName
from trmodel.cli.output import DOCUMENT_FORMATS, output
from trmodel.cli.plots import check_plot, draw
from trmodel.cli.progress import progress_bar
from trmodel.cli.ranges import (
    completion_of,
    context_of,
    limits_of,
    sweep_of_p,
    vector,
    whole_number,
)
from trmodel.errors import UsageError

if TYPE_CHECKING:
    from trmodel.simulate import Estimate
    from trmodel.system import RoutedSystem


def predict(
    N: Annotated[str, typer.Option("--N", metavar="N", help="Concurrent requests.")],
    B: Annotated[
        str,
        typer.Option("--B", metavar="B0,B1,...", help="A threshold for each model, such as 1,3."),
    ],
    profile: options.ProfileOption = "a100",
    routing: options.RoutingOption = None,
    p: options.POption = None,
    context: options.ContextOption = None,
    reply_tokens: options.ReplyTokensOption = None,
    prompt_tokens: options.PromptTokensOption = None,
    prefill_ms: options.PrefillOption = None,
    max_batch: options.MaxBatchOption = None,
    grid_ms: options.GridOption = None,
    solver: options.SolverOption = SolverName.auto,
    max_states: options.MaxStatesOption = None,
    sweep: options.SweepOption = None,
    symbolic: Annotated[
        bool,
        typer.Option(
            "--symbolic",
            help="Also give the throughput as an exact function of p (up to 30 states, latencies "
            "that are whole grid units).",
        ),
    ] = False,
    check_grid: Annotated[
        bool,
        typer.Option(
            "--check-grid",
            help="Also solve on grids half and a quarter as wide, and say what that changes.",
        ),
    ] = False,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    plot: options.PlotOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Predict throughput, delays and where the time goes under one threshold vector B."""
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "takes a whole table; use trmodel tune --format r2r")
    concurrency, thresholds = whole_number(N, "--N"), vector(B, "--B")
    values = None if sweep is None else sweep_of_p(sweep)
    tokens = context_of(context)
    completion = completion_of(reply_tokens, prompt_tokens, prefill_ms)
    _check(values, p, symbolic, check_grid)
    out.keep(profile, routing, plot=plot)
    check_plot(plot)
    from trmodel import api
    from trmodel.cli.predictions import prediction_sweep_view, prediction_view
    from trmodel.profile import build_system, load_profile

    loaded = load_profile(profile)
    out.note(f"profile: {loaded.origin}")
    given: dict[str, Any] = {
        "routing": routing,
        "context": tokens,
        "completion": completion,
        "max_batch": max_batch,
        "grid_ms": grid_ms,
    }
    system = build_system(loaded, concurrency, **given, p=values[0] if values else p)
    origin = api.origin_of(loaded, system, tokens)
    search: dict[str, Any] = {"solver": solver.value, **limits_of(max_states)}
    if values is None:
        prediction = api.predict(loaded, N=concurrency, B=thresholds, p=p, **given, **search)
        found = None
        if symbolic:
            from trmodel.cli.symbolic import symbolic as solve_symbolic

            found = solve_symbolic(system, thresholds)
        checked = None
        if check_grid:
            from trmodel.calibrate import grid_check

            checked = grid_check(system, thresholds)
        shift = _handoff_shift(system, thresholds)
        out.emit(prediction_view(prediction, origin, found, checked, shift))
        if plot is not None:
            draw([prediction], plot, out)
        return 0
    with progress_bar(quiet) as progress:
        predictions = api.sweep_predictions(
            values, loaded, N=concurrency, B=thresholds, progress=progress, **given, **search
        )
    shifts = [
        _handoff_shift(build_system(loaded, concurrency, **given, p=value), thresholds)
        for value in values
    ]
    out.emit(prediction_sweep_view(values, predictions, origin, shifts))
    if plot is not None:
        fixed = dict(enumerate(thresholds))
        draw(
            api.sweep_p(values, loaded, concurrency, fixed=fixed, **given, **search),
            plot,
            out,
            fixed,
        )
    return 0


def _handoff_shift(system: RoutedSystem, B: Sequence[int]) -> Estimate | None:
    """Simulate what handoff latency shifts, if there is any: the chain does not have it."""
    if not system.handoffs_ms.any():
        return None
    from trmodel.simulate.handoff import handoff_shift

    return handoff_shift(system, B)


def _check(
    values: Sequence[float] | None, p: float | None, symbolic: bool, check_grid: bool
) -> None:
    """Refuse options that make no sense together."""
    if values is not None and p is not None:
        raise UsageError("--sweep: gives p already; leave out --p")
    if values is not None and symbolic:
        raise UsageError("--symbolic: is a function of p already; leave out --sweep")
    if values is not None and check_grid:
        raise UsageError("--check-grid: checks one prediction; leave out --sweep")
