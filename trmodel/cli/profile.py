"""``trmodel profile``: list, show and make profiles, and what fits into GPU memory."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trmodel.cli import options
from trmodel.cli.capacity import capacity
from trmodel.cli.fitting import fit
from trmodel.cli.importing import app as import_app
from trmodel.cli.measuring import measure
from trmodel.cli.options import Format, examples
from trmodel.cli.output import DOCUMENT_FORMATS, Grid, View, output
from trmodel.cli.plots import check_plot, save
from trmodel.cli.ranges import context_of
from trmodel.cli.streams import is_terminal
from trmodel.errors import UsageError

app = typer.Typer(
    help="List, show and make profiles: step latencies and where they come from.",
    epilog=examples(
        "trmodel profile list",
        "trmodel profile show a100",
        "trmodel profile capacity h100 --context 8192",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("list", epilog=examples("trmodel profile list", "trmodel profile list --json"))
def list_profiles(
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """List the built-in profiles."""
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds, not profiles")
    from trmodel.profile import load_profile, profile_names

    profiles = [load_profile(name).profile for name in profile_names()]
    records = [
        {
            "name": profile.name,
            "gpu": profile.hardware.gpu,
            "models": ", ".join(profile.model_names),
            "obtained": profile.obtained,
            "description": profile.description,
        }
        for profile in profiles
    ]
    entries = [
        record | {"models": profile.model_names}
        for record, profile in zip(records, profiles, strict=True)
    ]
    columns = ("name", "gpu", "models", "obtained")
    rows = [tuple(record[column] for column in columns) for record in records]
    blocks: list[str | Grid] = [
        Grid(columns, rows, columns),
        *(f"{record['name']}: {record['description']}" for record in records),
    ]
    document = {"schema": "trmodel/profile-list", "schema_version": 1, "profiles": entries}
    out.emit(View(document, records, blocks))
    return 0


@app.command(
    epilog=examples(
        "trmodel profile show a100",
        "trmodel profile show a100 --json -o mine.json",
        "trmodel profile show h100 --context 1024..3072 --chart",
        "trmodel profile show h100 --plot h100.png",
    )
)
def show(
    profile: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A built-in name or a JSON file.")
    ],
    context: options.ContextOption = None,
    chart: Annotated[
        bool,
        typer.Option(
            "--chart",
            help="Also draw step latency by batch size in text, as on a terminal anyway.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    plot: options.PlotOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Show a profile in full; --json gives the profile itself, to be edited and used."""
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds, not a profile")
    tokens = context_of(context)
    if tokens is not None and Format.json in out.formats:
        raise UsageError("--context: JSON is the profile itself, with every context it lists")
    if chart and out.format is not Format.table:
        raise UsageError("--chart: is for people; leave out the other format")
    out.keep(profile, plot=plot)
    check_plot(plot)
    from trmodel.cli.profile_views import profile_view
    from trmodel.profile import context_range, load_profile, plausibility_warnings

    loaded = load_profile(profile)
    out.note(f"profile: {loaded.origin}")
    told = [note for notes in loaded.smoothed.values() for note in notes]
    for warning in plausibility_warnings(loaded.profile) + told:
        out.note(f"trmodel: warning: {warning}")
    ends = None if tokens is None else context_range(loaded.profile, tokens)
    drawn = chart or (plot is None and out.format is Format.table and is_terminal(sys.stdout))
    out.emit(profile_view(loaded, ends, drawn), lambda: profile_view(loaded, ends))
    if plot is not None:
        from trmodel.report import profile_figure

        save(profile_figure(loaded.profile), plot, out)
    return 0


app.command(
    epilog=examples(
        "trmodel profile capacity h100",
        "trmodel profile capacity a100-imported --context 1024..8192 --N 16,32,64 --json",
    )
)(capacity)
app.command(
    epilog=examples(
        "trmodel profile fit --profile a100-imported --measurements paper-figure10 -o fitted.json",
    )
)(fit)
app.command(
    epilog=examples(
        "trmodel profile measure --config r2r.yaml -o measured.json",
        "trmodel profile measure --url http://127.0.0.1:8000 --like a100 -o measured.json",
    )
)(measure)
app.add_typer(import_app, name="import")


@app.command(epilog=examples("trmodel profile schema -o profile.schema.json"))
def schema(
    format: options.FormatOption = Format.json,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Print the JSON Schema of profile files."""
    out = output(format, json, file, quiet)
    out.require({Format.json}, "a JSON Schema is JSON")
    from trmodel.profile import profile_schema

    out.emit(View(profile_schema()))
    return 0
