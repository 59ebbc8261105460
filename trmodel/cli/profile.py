"""``trmodel profile``: the built-in profiles, one profile in full, and the format's JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trmodel.cli import options
from trmodel.cli.options import Format, examples
from trmodel.cli.output import DOCUMENT_FORMATS, Grid, View, output

if TYPE_CHECKING:
    from trmodel.profile import LoadedProfile, ModelProfile, Provenance

app = typer.Typer(
    help="List and show profiles: step latencies and where they come from.",
    epilog=examples(
        "trmodel profile list",
        "trmodel profile show a100",
        "trmodel profile schema -o profile.schema.json",
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
    epilog=examples("trmodel profile show a100", "trmodel profile show a100 --json -o mine.json")
)
def show(
    profile: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A built-in name or a JSON file.")
    ],
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Show a profile in full; --json gives the profile itself, to be edited and used."""
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds, not a profile")
    out.keep(profile)
    from trmodel.profile import load_profile

    loaded = load_profile(profile)
    out.note(f"profile: {loaded.origin}")
    out.emit(_profile_view(loaded))
    return 0


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


def _profile_view(loaded: LoadedProfile) -> View:
    profile = loaded.profile
    blocks: list[str | Grid] = [
        f"{profile.name}: {profile.description}",
        _facts(loaded),
    ]
    records: list[dict[str, Any]] = []
    for model in profile.models:
        steps = _steps(model)
        records += [{"model": model.name, **step} for step in steps]
        blocks.append(_model_title(model))
        blocks.append(
            Grid(tuple(steps[0]), [tuple(f"{v:g}" for v in step.values()) for step in steps])
        )
        blocks.append(_sources(model))
    document = profile.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return View(document, records, blocks)


def _facts(loaded: LoadedProfile) -> str:
    profile = loaded.profile
    software = ", ".join(f"{name} {version}" for name, version in profile.software.items())
    routing = profile.routing
    facts = {
        "hardware": f"{profile.hardware.gpus} x {profile.hardware.gpu}",
        "note": profile.hardware.note,
        "software": software,
        "obtained": profile.obtained,
        "routing": routing if routing is None or isinstance(routing, str) else routing.name,
        "grid": f"{profile.grid_ms:g} ms",
        "sha256": loaded.sha256,
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items() if value)


def _steps(model: ModelProfile) -> list[dict[str, float]]:
    """Return the step latency by batch size, and by context if several are listed, added up."""
    overhead = model.overhead.value_ms if model.overhead else 0.0
    table = model.decode
    contexts = table.contexts if len(table.rows) > 1 else ()
    return [
        {
            **({"context": contexts[r]} if contexts else {}),
            "batch": batch,
            "decode_ms": latency,
            "overhead_ms": overhead,
            "step_ms": round(latency + overhead, 9),
        }
        for r, row in enumerate(table.rows)
        for batch, latency in zip(table.batch, row, strict=True)
    ]


def _model_title(model: ModelProfile) -> str:
    bound = "" if model.max_batch is None else f", at most {model.max_batch} requests a step"
    contexts = [f"{context}" for context in model.decode.contexts]
    tokens = f", context {', '.join(contexts)} tokens" if contexts else ""
    return f"{model.name}: tensor parallel {model.tensor_parallel}{bound}{tokens}"


def _sources(model: ModelProfile) -> str:
    lines = [f"decode: {_source(model.decode.provenance)}"]
    if model.overhead:
        lines.append(f"overhead: {_source(model.overhead.provenance)}")
    return "\n".join(lines)


def _source(provenance: Provenance) -> str:
    note = f" ({provenance.note})" if provenance.note else ""
    return f"{provenance.method}; {provenance.source}{note}"
