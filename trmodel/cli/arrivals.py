"""``trmodel arrivals``: the largest rate of requests at which objectives are met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from trmodel.cli import options
from trmodel.cli.objectives import OBJECTIVES, SloOption
from trmodel.cli.output import DOCUMENT_FORMATS, Grid, View, output
from trmodel.cli.plots import check_plot, save
from trmodel.cli.progress import progress_bar
from trmodel.cli.ranges import context_of, vector, whole_number
from trmodel.errors import UsageError

if TYPE_CHECKING:
    from trmodel.search.arrivals_result import Arrivals, Load
    from trmodel.simulate import Estimate


def arrivals(
    N: Annotated[str, typer.Option("--N", metavar="N", help="The most requests served at a time.")],
    profile: options.ProfileOption = "a100",
    routing: options.RoutingOption = None,
    p: options.POption = None,
    context: options.ContextOption = None,
    max_batch: options.MaxBatchOption = None,
    grid_ms: options.GridOption = None,
    slo: SloOption = None,
    reply_tokens: Annotated[
        str | None,
        typer.Option(
            "--reply-tokens",
            metavar="MEAN|FILE",
            help="Mean length of geometrically distributed replies, or a file of lengths to draw "
            "from. Default: the routing's own, or a mean of 1000.",
            rich_help_panel=options.SYSTEM,
        ),
    ] = None,
    thresholds: Annotated[
        str | None,
        typer.Option(
            "--thresholds",
            metavar="FILE",
            help="A table that 'trmodel tune -o FILE' wrote. Default: tuned now, for throughput.",
            rich_help_panel=options.SYSTEM,
        ),
    ] = None,
    B: Annotated[
        str | None,
        typer.Option(
            "--B",
            metavar="B0,B1,...",
            help="The same thresholds at any number of live requests; needs --hold-ms.",
            rich_help_panel=options.SYSTEM,
        ),
    ] = None,
    hold_ms: Annotated[
        float | None,
        typer.Option(
            "--hold-ms",
            metavar="MS",
            help="An idle model starts whatever waits once the oldest has waited so long.",
            rich_help_panel=options.SYSTEM,
        ),
    ] = None,
    precision: Annotated[
        float,
        typer.Option(
            "--precision",
            metavar="PERCENT",
            help="How closely to search, in percent of the capacity.",
            rich_help_panel=OBJECTIVES,
        ),
    ] = 1.0,
    replies: Annotated[
        int,
        typer.Option(
            "--replies",
            help="How many to simulate at each rate; up to 8 times as many where it is unclear "
            "whether an objective is met.",
            rich_help_panel=OBJECTIVES,
        ),
    ] = 4000,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Of the simulations.", rich_help_panel=OBJECTIVES)
    ] = 0,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    plot: options.PlotOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Find the largest rate of Poisson arrivals at which all objectives are met.

    Without objectives: at which the system keeps up. Thresholds follow the number of live requests.
    """
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "takes a whole table; use trmodel tune --format r2r")
    concurrency, tokens = whole_number(N, "--N"), context_of(context)
    if B is not None and thresholds is not None:
        raise UsageError("--B: --thresholds gives them already; leave one of the two out")
    fixed = None if B is None else vector(B, "--B")
    lengths = _lengths(reply_tokens)
    out.keep(profile, routing, thresholds, None if lengths is None else reply_tokens, plot=plot)
    check_plot(plot)
    from trmodel import api
    from trmodel.profile import load_profile

    loaded = load_profile(profile)
    out.note(f"profile: {loaded.origin}")
    with progress_bar(quiet, "steps") as progress:
        result = api.arrivals(
            loaded,
            concurrency,
            slo=slo or (),
            thresholds=fixed or thresholds,
            hold_ms=hold_ms,
            reply_tokens=lengths,
            seed=seed,
            replies=replies,
            precision_percent=precision,
            progress=progress,
            routing=routing,
            p=p,
            context=tokens,
            max_batch=max_batch,
            grid_ms=grid_ms,
        )
    out.emit(_view(result))
    if plot is not None:
        from trmodel.report import arrivals_figure

        save(arrivals_figure(result), plot, out)
    return 0


def _lengths(text: str | None) -> float | Sequence[float] | None:
    """Read ``--reply-tokens``: a mean, or the lengths of a file."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        from trmodel.simulate.lengths import load_lengths

        return load_lengths(text)


def _view(found: Arrivals) -> View:
    name = found.origin["profile"]["name"]
    title = f"{name}: Poisson arrivals, at most {found.N} at a time, of {', '.join(found.models)}"
    headings = (
        "requests/s",
        "load %",
        "tok/s",
        "live",
        "per request",
        "busy",
        "p99 itl ms",
        "p99 ttft ms",
        "reply s",
        "objectives",
    )
    upto = [load for load in found.loads if load.rate_per_s <= found.bracket_per_s[1]]
    grid = Grid(headings, [_cells(load) for load in upto], ("busy", "objectives"))
    blocks: list[str | Grid] = [title, grid, _answer(found), _how(found)]
    return View(
        found.to_dict(),
        [load.to_record() for load in found.loads],
        blocks,
        warnings=found.warnings,
    )


def _cells(load: Load) -> tuple[str, ...]:
    return (
        f"{load.rate_per_s:.4g}",
        f"{load.load_percent:.1f}",
        f"{load.throughput_tok_s.value:.1f}",
        f"{load.mean_live:.2f}",
        f"{load.request_speed_tok_s.value:.1f}",
        " ".join(f"{busy:.0%}" for busy in load.busy_fractions),
        f"{load.inter_token_ms.p99.value:.1f}",
        f"{load.first_token_ms.p99.value:.0f}",
        f"{load.reply_ms.mean.value / 1000.0:.1f}",
        "met" if load.meets else load.why_not,
    )


def _answer(found: Arrivals) -> str:
    largest, capacity = found.largest, found.capacity_per_s
    lines = [
        f"largest rate: {largest.rate_per_s:.4g} requests per second, "
        f"{largest.throughput_tok_s.value:.1f} tok/s; "
        f"capacity {_plus_minus(capacity)} requests per second",
    ]
    if largest.measured:
        lines.append("there: " + ", ".join(map(str, largest.measured)))
    lines.append(
        f"binds: {', '.join(found.binding)}; not for sure any more at "
        f"{found.bracket_per_s[1]:.4g}, surely not at {found.surely_too_much_per_s:.4g} per second"
    )
    return "\n".join(lines)


def _plus_minus(value: Estimate) -> str:
    return f"{value.value:.4g} ± {value.half_width:.2g}"


def _how(found: Arrivals) -> str:
    replies = [load.replies for load in found.loads]
    lengths = "replies end by the routing"
    if found.mean_reply_tokens is not None:
        mean = found.mean_reply_tokens
        shown = f"{mean:.3g}" if mean < 100.0 else f"{mean:,.0f}"
        lengths = f"replies of {shown} tokens on average"
    hold = "" if found.hold_ms is None else f"; held for at most {found.hold_ms:g} ms"
    return (
        f"{lengths}{hold};\nsimulated: {min(replies):,} to {max(replies):,} replies at each of "
        f"{len(replies)} rates, {found.confidence:.0%} intervals; '?': not sure, counts as missed"
    )
