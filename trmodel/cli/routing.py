"""``trmodel routing``: list and show routings, estimate one, and calibrate a policy's threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trmodel.cli import options
from trmodel.cli.options import examples
from trmodel.cli.output import DOCUMENT_FORMATS, Grid, View, output
from trmodel.cli.routing_calibrate import calibrate

if TYPE_CHECKING:
    from trmodel.routing import Routing
    from trmodel.routing.fit import RoutingFit

app = typer.Typer(
    help="List, show, estimate and calibrate routings: which model a request goes to after a step.",
    epilog=examples(
        "trmodel routing list",
        "trmodel routing show glimprouter",
        "trmodel routing fit trace.csv -o mine.json",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    epilog=examples(
        "trmodel routing calibrate --config scored.yaml --target-share 0.2 -o calibrated.yaml",
    )
)(calibrate)


@app.command("list", epilog=examples("trmodel routing list", "trmodel routing list --json"))
def list_routings(
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """List the presets."""
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds, not routings")
    from trmodel.routing import load_preset, routing_names

    routings = [load_preset(name) for name in routing_names()]
    entries = [
        {
            "name": routing.name,
            "models": list(routing.models),
            "phases": [phase.name for phase in routing.phases],
            "paper": routing.paper,
            "source": routing.source,
        }
        for routing in routings
    ]
    records = [
        {
            **{key: entry[key] for key in ("name", "paper", "source")},
            "models": ", ".join(entry["models"] or ()),
            "phases": ", ".join(entry["phases"] or ()),
        }
        for entry in entries
    ]
    columns = ("name", "models", "phases", "paper")
    rows = [tuple(str(record[column] or "-") for column in columns) for record in records]
    sources = "\n".join(f"{entry['name']}: {entry['source']}" for entry in entries)
    document = {"schema": "trmodel/routing-list", "schema_version": 1, "routings": entries}
    out.emit(View(document, records, [Grid(columns, rows, columns), sources]))
    return 0


@app.command(
    epilog=examples(
        "trmodel routing show glimprouter",
        "trmodel routing show fixed-length --json -o mine.json",
    )
)
def show(
    routing: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A preset or a JSON file.")],
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Show a routing: probabilities, committed tokens, where the numbers come from."""
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds, not routings")
    out.keep(routing)
    from trmodel.routing import load_routing

    out.emit(_routing_view(load_routing(routing)))
    return 0


@app.command(
    epilog=examples(
        "trmodel routing fit trace.csv",
        "trmodel routing fit trace.jsonl --name mine -o mine.json",
        "trmodel tune --routing mine.json --N 4",
    )
)
def fit(
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help="CSV with the columns request,model,committed, or JSON lines of such objects: a "
            "row for each step, those of a request in order.",
        ),
    ],
    name: Annotated[str, typer.Option("--name", help="Of the routing.")] = "fitted",
    level: Annotated[
        float,
        typer.Option(
            "--level", metavar="P", help="A p-value below this says that runs are not geometric."
        ),
    ] = 0.01,
    max_phases: Annotated[
        int, typer.Option("--max-phases", help="Most phases of a model; 1 for a plain routing.")
    ] = 16,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the routing to FILE, whole or not at all.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    quiet: options.QuietOption = False,
) -> int:
    """Estimate a routing from a trace, with intervals, and test whether runs are geometric.

    Models whose runs are not get several phases. stdout gets this report, -o the routing.
    """
    out, written = output(format, json, None, quiet), output(None, True, file, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds, not a routing")
    written.keep(trace)
    from trmodel.routing.fit import fit_routing

    found = fit_routing(trace, name=name, level=level, max_phases=max_phases)
    out.emit(_fit_view(found))
    if file is not None:
        written.emit_text(_routing_text(found.routing))
    return 0


def _routing_text(routing: Routing) -> str:
    from trmodel.documents import json_text

    return json_text(_document(routing)) + "\n"


def _document(routing: Routing) -> dict[str, object]:
    """Return a routing as it is kept in a file, without what is left at its default."""
    document = routing.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"schema": routing.schema_, "schema_version": routing.schema_version, **document}


def _routing_view(routing: Routing) -> View:
    names = [phase.name for phase in routing.all_phases]
    P, C = routing.transition_probability, routing.committed_tokens
    records = [
        {
            "from": source,
            "to": target,
            "model": routing.models[routing.phase_models[u]],
            "probability": P[u][v],
            "committed_tokens": C[u][v],
        }
        for u, source in enumerate(names)
        for v, target in enumerate(names)
        if P[u][v] > 0
    ]
    columns = ("from", "to", "model", "probability", "committed")
    rows = [
        (str(r["from"]), str(r["to"]), str(r["model"]), f"{r['probability']:g}",
         f"{r['committed_tokens']:g}")
        for r in records
    ]  # fmt: skip
    added = [
        f"{phase.name}: a step reads {phase.prompt_tokens} tokens for each request"
        if phase.prompt_tokens
        else f"{phase.name}: each request adds {phase.added_ms:g} ms to its step"
        for phase in routing.phases
        if phase.prompt_tokens or phase.added_ms
    ]
    facts = [
        f"{routing.name}: {', '.join(routing.models)}",
        f"requests start at {names[routing.entry_index]}"
        + (f"; entering {routing.restart} opens a new reply" if routing.restart else ""),
        *added,
    ]
    words = [
        f"{label}: {text}"
        for label, text in (
            ("source", routing.source),
            ("note", routing.note),
            ("paper", routing.paper),
        )
        if text
    ]
    blocks: list[str | Grid] = [
        "\n".join(facts),
        Grid(columns, rows, columns[:3]),
        "\n".join(words),
    ]
    return View(_document(routing), records, blocks)


def _fit_view(found: RoutingFit) -> View:
    document = found.to_dict()
    rows = [
        (
            move.source,
            move.target,
            f"{move.probability:.4f}",
            f"{move.low:.4f} to {move.high:.4f}",
            f"{move.count} of {move.steps}",
            f"{move.committed:.3f}",
        )
        for move in found.moves
    ]
    columns = ("from", "to", "probability", "95 % interval", "steps", "committed")
    trace = found.trace
    head = (
        f"{trace.origin}: {len(trace.model)} steps of {trace.requests} requests, "
        f"{found.reply_tokens:.1f} tokens per request (--reply-tokens, if they are whole replies)"
    )
    blocks: list[str | Grid] = [head, Grid(columns, rows, columns[:2]), "\n".join(found.readings())]
    return View(document, document["moves"], blocks, warnings=found.notes)
