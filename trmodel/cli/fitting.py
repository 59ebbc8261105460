"""``trmodel profile fit``: overheads and slow-downs from measured throughputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trmodel.cli import options
from trmodel.cli.output import DOCUMENT_FORMATS, Grid, Output, View, context_in_words, output
from trmodel.cli.progress import progress_bar
from trmodel.cli.ranges import context_of
from trmodel.launch import shown_vector

if TYPE_CHECKING:
    from trmodel.calibrate import Estimate, Fit, Pick


def fit(
    measurements: Annotated[
        str,
        typer.Option(
            "--measurements",
            metavar="NAME|FILE",
            help="Measured throughputs: paper-figure10, or a JSON file.",
        ),
    ],
    profile: options.ProfileOption = "a100-imported",
    routing: options.RoutingOption = None,
    p: options.POption = None,
    context: options.ContextOption = None,
    allow_negative_overheads: Annotated[
        bool,
        typer.Option(
            "--allow-negative-overheads",
            help="Let overheads fall below 0, which shows that a table is too slow; such a fit "
            "makes no profile.",
        ),
    ] = False,
    grid_ms: Annotated[
        float | None,
        typer.Option(
            "--grid-ms",
            metavar="MS",
            help="Time unit of the chains. Default: 0.02.",
            rich_help_panel=options.SYSTEM,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the starts of the search.")] = 0,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Of the fitted profile. Default: the profile's, -fitted."),
    ] = None,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the fitted profile to FILE, whole or not at all.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    quiet: options.QuietOption = False,
) -> int:
    """Fit overheads and slow-downs to measured throughputs.

    Says how sure each is, which cannot be told, how far each measurement is missed, and what the
    fitted model would pick. stdout gets this report, -o the profile.
    """
    out, written = output(format, json, None, quiet), output(None, True, file, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds, not a fit")
    tokens = context_of(context)
    written.keep(profile, routing, measurements)
    from trmodel.calibrate import fit_profile, load_measurements
    from trmodel.profile import load_profile

    loaded, measured = load_profile(profile), load_measurements(measurements)
    out.note(f"profile: {loaded.origin}")
    out.note(f"measurements: {measured.origin}")
    with progress_bar(quiet, "fits") as progress:
        found = fit_profile(
            loaded,
            measured,
            routing=routing,
            p=p,
            context=tokens,
            allow_negative_overheads=allow_negative_overheads,
            grid_ms=grid_ms,
            seed=seed,
            progress=progress,
        )
    out.emit(_view(found))
    if file is not None:
        _write(found, name or f"{loaded.profile.name}-fitted", written)
    return 0


def _write(found: Fit, name: str, out: Output) -> None:
    from trmodel.profile.importers import profile_text

    out.emit_text(profile_text(found.to_profile(name)))


def _view(found: Fit) -> View:
    document = found.measurements.document
    blocks: list[str | Grid] = [
        f"{found.profile.profile.name} fitted to {document.name}: {document.source}",
        _parameters(found),
        *_remarks(found),
        _points(found),
        "\n".join([_errors(found), *map(_pick, found.picks), _starts(found)]),
        f"{context_in_words(found.context_tokens)}chains on a grid of {found.grid_ms:g} ms",
    ]
    return View(found.to_dict(), found.to_records(), blocks, warnings=found.warnings)


def _parameters(found: Fit) -> Grid:
    rows = [
        (
            each.parameter.name,
            f"{each.value:.2f} {each.parameter.unit}".rstrip(),
            _interval(each),
            each.status,
        )
        for each in found.estimates
    ]
    return Grid(("parameter", "estimate", "95 % interval", "status"), rows, ("parameter", "status"))


def _interval(each: Estimate) -> str:
    return "-" if each.interval is None else f"{each.interval[0]:.2f} to {each.interval[1]:.2f}"


def _remarks(found: Fit) -> list[str]:
    said = [f"{each.parameter.name}: {each.remark}" for each in found.estimates if each.remark]
    return ["\n".join(said)] if said else []


def _points(found: Fit) -> Grid:
    rows = [
        (
            str(point.N),
            shown_vector(point.B),
            point.placement,
            f"{point.measured_tok_s:.1f}",
            f"{point.fitted_tok_s:.1f}",
            f"{point.error_percent:+.1f}",
            _percent(point.left_out_error_percent),
        )
        for point in found.points
    ]
    headings = ("N", "B", "GPUs", "measured tok/s", "fitted", "error %", "left out %")
    return Grid(headings, rows, ("B", "GPUs"))


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{error:+.1f}"


def _errors(found: Fit) -> str:
    left_out, noise = found.left_out_mean_error_percent, found.measurements.document.noise_percent
    said = [
        f"mean absolute error {found.mean_error_percent:.1f} %, "
        f"largest {found.max_error_percent:.1f} %"
    ]
    if left_out is not None:
        said.append(f"each left out in turn, mean {left_out:.1f} %")
    if noise is not None:
        said.append(f"stated noise of the measurements {noise:g} %")
    return "; ".join(said)


def _pick(pick: Pick) -> str:
    picked = f"N = {pick.N} ({pick.placement}): the model picks B = {shown_vector(pick.picked)}"
    if not pick.differs:
        return f"{picked}, the measured optimum"
    return (
        f"{picked}, the measured optimum is {shown_vector(pick.best)}: regret "
        f"{pick.regret_percent:.1f} % of measured throughput"
    )


def _starts(found: Fit) -> str:
    return f"{found.agreeing} of {found.starts} starts ended at an optimum as good as this one"
