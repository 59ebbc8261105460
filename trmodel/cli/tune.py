"""``trmodel tune``: the best live thresholds for every concurrency."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trmodel.cli import options
from trmodel.cli.objectives import SloOption, check_slo, end_of_objectives, with_objectives
from trmodel.cli.options import Format, MethodName, SolverName
from trmodel.cli.output import DOCUMENT_FORMATS, Output, View, output
from trmodel.cli.plots import check_plot, draw
from trmodel.cli.progress import progress_bar
from trmodel.cli.ranges import completion_of, context_of, limits_of, sweep_of_p, whole_numbers
from trmodel.cli.streams import complain
from trmodel.errors import LimitError, UsageError

if TYPE_CHECKING:
    from trmodel.search.sweep import Sweep

SEARCH = "Search"
SAMPLES = 200
MOST_SAMPLES = 10_000
"""That of `trmodel.calibrate.uncertainty`, which is not imported because that takes long."""


def _fixed_option(i: int) -> Any:
    return typer.Option(
        f"--B{i}", metavar="B", help=f"Fix the threshold of model {i}.", rich_help_panel=SEARCH
    )


def _spread_option(name: str, of: str) -> Any:
    return typer.Option(
        name,
        metavar="PERCENT",
        help=f"Of --uncertainty: standard deviation of {of}.",
        rich_help_panel=options.OUTPUT,
    )


def tune(
    N: Annotated[
        str,
        typer.Option("--N", metavar="RANGE", help="Concurrencies to print, such as 4..16 or 4,8."),
    ] = "4..16",
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
    B0: Annotated[int | None, _fixed_option(0)] = None,
    B1: Annotated[int | None, _fixed_option(1)] = None,
    B2: Annotated[int | None, _fixed_option(2)] = None,
    method: Annotated[
        MethodName,
        typer.Option(
            "--method",
            help="exact: every live vector by the chain. simulated: racing simulations, for any "
            "N and any number of models. auto: exact where that takes minutes at most.",
            rich_help_panel=SEARCH,
        ),
    ] = MethodName.auto,
    clip: Annotated[
        bool,
        typer.Option(
            "--clip",
            help="Leave out the concurrencies that do not fit into GPU memory, instead of "
            "refusing.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    slo: SloOption = None,
    sweep: options.SweepOption = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="SECONDS",
            help="Stop then, with the rows there are (exit code 5).",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Do not search again the rows that -o FILE.json holds from an earlier search "
            "that was interrupted or went less far.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            help="Of simulations and of the samples of --uncertainty; recorded in the document. "
            "The exact chain uses no randomness.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    bound: Annotated[
        bool | None,
        typer.Option(
            "--bound/--no-bound",
            help="The throughput that no launch rule exceeds, and how far B is from it. Default: "
            "where that takes a second at most.",
            show_default=False,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    uncertainty: Annotated[
        bool,
        typer.Option(
            "--uncertainty",
            help="Also an interval on throughput and the probability that each B is the best, if "
            "p, latencies and slow-downs are uncertain; of the last N if there are more than 4.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            help="Of --uncertainty: how many systems to draw. Default: 200.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    p_spread: Annotated[float | None, _spread_option("--p-spread", "each p. Default: 10")] = None,
    latency_spread: Annotated[
        float | None,
        _spread_option("--latency-spread", "the latencies of a model. Default: 3, 0 with a fit"),
    ] = None,
    slow_down_spread: Annotated[
        float | None,
        _spread_option("--slow-down-spread", "each slow-down. Default: 10, 0 with a fit"),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Say why each B: what ties, what the runner-up loses, what was rejected, where "
            "the time goes, what binds.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    plot: options.PlotOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Choose the best live thresholds for every concurrency N.

    All vectors that can never deadlock are evaluated or, where these are too many, raced in
    simulation. A file (-o) gets every row from N = 1 on, FILE.json as they are found.
    """
    out = output(format, json, file, quiet)
    wanted = whole_numbers(N, "--N")
    values = None if sweep is None else sweep_of_p(sweep)
    tokens = context_of(context)
    completion = completion_of(reply_tokens, prompt_tokens, prefill_ms)
    _check(out, time_limit, values, p, explain, uncertainty)
    # Objectives need every candidate of a row, of which a file keeps the best only.
    results = None if slo and not resume else _results(out, resume)
    _check_resume(resume, plot if values is None else None, uncertainty, bool(slo))
    check_slo(slo, sweep=sweep is not None, uncertainty=uncertainty)
    spreads = {
        "--p-spread": p_spread,
        "--latency-spread": latency_spread,
        "--slow-down-spread": slow_down_spread,
    }
    _check_uncertainty(uncertainty, samples, spreads)
    deadline = None if time_limit is None else time.monotonic() + time_limit
    out.keep(profile, routing, plot=plot)
    check_plot(plot)
    from trmodel import api
    from trmodel.cli.tables import view_of
    from trmodel.profile import build_system, load_profile
    from trmodel.search import ThresholdTable

    loaded = load_profile(profile)
    out.note(f"profile: {loaded.origin}")
    given: dict[str, Any] = {
        "routing": routing,
        "p": values[0] if values else p,
        "context": tokens,
        "completion": completion,
        "max_batch": max_batch,
        "grid_ms": grid_ms,
    }
    fitting, _ = api.fitting(loaded, wanted, routing, context=tokens, clip=clip)
    system = build_system(loaded, max(fitting), **given)
    if system.M != 2:
        out.require(DOCUMENT_FORMATS, f"R2R has two models, this system has {system.M}")
    fixed = {i: b for i, b in enumerate((B0, B1, B2)) if b is not None}
    search: dict[str, Any] = {
        "method": method.value,
        "seed": seed or 0,
        "solver": solver.value,
        "clip": clip,
        "fixed": fixed,
        "time_limit_s": time_limit,
        "bound": bound,
        **limits_of(max_states),
        "results": results,
        "resume": resume,
    }
    found = None
    with _partial(out, results), progress_bar(quiet, "steps" if slo else "chains") as progress:
        result: ThresholdTable | Sweep
        if slo:
            found = api.tune_with_objectives(
                slo, loaded, wanted, progress=progress, **given, **search
            )
            result = found.table
        elif values is None:
            result = api.tune(loaded, wanted, progress=progress, **given, **search)
        else:
            del given["p"]
            result = api.sweep_p(values, loaded, wanted, progress=progress, **given, **search)
    explained = None
    if explain and isinstance(result, ThresholdTable):
        from trmodel.cli.explain import explain_row
        from trmodel.profile import check_capacity

        memory = check_capacity(loaded, system.N, routing, tokens)
        explained = {row.N: explain_row(system, row, fixed, solver.value, memory) for row in result}
    sure, cut = None, None
    if uncertainty and isinstance(result, ThresholdTable):
        from trmodel.cli.uncertainty import Asked, examined_rows, uncertain_rows

        rows = examined_rows(result)
        if not rows:
            out.note("uncertainty: left out, no row is exact")
        elif len(rows) < len(result):
            named = ", ".join(str(row.N) for row in rows)
            out.note(f"uncertainty: of N = {named} only, of {len(result)} rows")
        asked = Asked(
            p_percent=p_spread,
            latency_percent=latency_spread,
            slow_down_percent=slow_down_spread,
            samples=samples or SAMPLES,
            seed=seed or 0,
            deadline=deadline,
        )
        with progress_bar(quiet, "samples") as progress:
            sure, origin, cut = uncertain_rows(system, rows, loaded.profile, asked, progress)
        out.note(f"uncertainty: {origin}")
    more = (seed, explained, sure)

    def view(every_row: bool) -> View:
        shown = view_of(result, every_row, *more)
        return with_objectives(shown, found, every_row) if found else shown

    out.emit(view(False), lambda: view(True))
    if result.stopped and Format.r2r in out.formats and isinstance(result, ThresholdTable):
        out.note(
            f"trmodel: warning: thresholds above n = {result.thresholds.max_n} repeat those of "
            "its row, the last that is complete"
        )
    if plot is not None:
        draw(result, plot, out, fixed)
    ended = _end(result.stopped or cut)
    return ended or (end_of_objectives(found) if found else 0)


@contextmanager
def _partial(out: Output, results: str | None) -> Iterator[None]:
    """Say where an interrupted search has left its rows."""
    try:
        yield
    except KeyboardInterrupt:
        if results is not None and os.path.exists(results):
            out.note(f"interrupted; --resume goes on from the rows in {results}")
        raise


def _check_resume(resume: bool, plot: str | None, uncertainty: bool, slo: bool) -> None:
    """Refuse with --resume what needs all candidates, of which a file keeps the best only."""
    needing = {"--plot": plot is not None, "--uncertainty": uncertainty, "--slo": slo}
    for option in [option for option, asked in needing.items() if asked and resume]:
        raise UsageError(f"{option}: needs every candidate of a row; leave out --resume")


def _results(out: Output, resume: bool) -> str | None:
    """Return the file that rows are written to as they are found, if it can be read back."""
    kept = out.file if out.file_format is Format.json else None
    regular = kept is not None and (os.path.isfile(kept) or not os.path.exists(kept))
    if resume and not regular:
        raise UsageError("--resume: rows are kept in a JSON file only; name it with -o FILE.json")
    return kept if regular else None


def _check(
    out: Output,
    time_limit: float | None,
    values: Sequence[float] | None,
    p: float | None,
    explain: bool,
    uncertainty: bool,
) -> None:
    """Refuse options that make no sense together."""
    if time_limit is not None and not (math.isfinite(time_limit) and time_limit >= 0.0):
        raise UsageError(f"--time-limit: must be seconds of at least 0, got {time_limit}")
    one_table = {"--explain": explain, "--uncertainty": uncertainty}
    asked = [option for option, wanted in one_table.items() if wanted]
    for option in asked:
        out.require(DOCUMENT_FORMATS, f"has no room for {option}")
    if values is not None:
        out.require(DOCUMENT_FORMATS, "takes one table, not a --sweep")
        if p is not None:
            raise UsageError("--sweep: gives p already; leave out --p")
        for option in asked:
            raise UsageError(f"{option}: is about one table; leave out --sweep")


def _check_uncertainty(
    wanted: bool, samples: int | None, spreads: Mapping[str, float | None]
) -> None:
    """Refuse what makes no sense of the options of --uncertainty."""
    for option, value in {"--samples": samples, **spreads}.items():
        if value is not None and not wanted:
            raise UsageError(f"{option}: is of --uncertainty; ask for that as well")
    if samples is not None and not 2 <= samples <= MOST_SAMPLES:
        raise UsageError(f"--samples: from 2 to {MOST_SAMPLES} can be drawn, got {samples}")
    for option, value in spreads.items():
        if value is not None and not 0.0 <= value <= 100.0:
            raise UsageError(f"{option}: must be between 0 and 100 percent, got {value:g}")


def _end(stopped: str | None) -> int:
    """Say why a search ended early and return the exit code."""
    if stopped is None:
        return 0
    complain(stopped)
    return LimitError.exit_code
