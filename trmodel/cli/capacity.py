"""``trmodel profile capacity``: the memory of every GPU, and how many requests fit into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trmodel.cli import options
from trmodel.cli.output import DOCUMENT_FORMATS, Grid, View, output
from trmodel.cli.ranges import context_of, whole_numbers

if TYPE_CHECKING:
    from trmodel.profile import Capacity, GpuBudget, LoadedProfile


def capacity(
    profile: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A built-in name or a JSON file.")
    ] = "a100",
    context: options.ContextOption = None,
    routing: options.RoutingOption = None,
    N: Annotated[
        str,
        typer.Option("--N", metavar="RANGE", help="Concurrencies for which to say what fits."),
    ] = "4,8,16,32,64",
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: options.FileOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Show the memory of every GPU, which one binds, and the largest N and context that fit.

    A context that grows counts with its largest value.
    """
    out = output(format, json, file, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds, not memory")
    wanted, tokens = whole_numbers(N, "--N"), context_of(context)
    out.keep(profile, routing)
    from trmodel.profile import load_profile
    from trmodel.profile.capacity import capacity as capacity_of

    loaded = load_profile(profile)
    out.note(f"profile: {loaded.origin}")
    out.emit(_view(loaded, capacity_of(loaded, routing, tokens), wanted))
    return 0


def _view(loaded: LoadedProfile, found: Capacity, wanted: Sequence[int]) -> View:
    name = loaded.profile.name
    gpus = [_gpu(budget) for budget in found.gpus]
    largest = [
        {"N": N, "context_tokens": found.largest_context(N), "fits": N <= found.largest_N}
        for N in wanted
    ]
    document = {
        "schema": "trmodel/capacity",
        "schema_version": 1,
        "profile": {"name": name, "origin": loaded.origin, "sha256": loaded.sha256},
        "models": list(found.models),
        "context_tokens": found.context_tokens,
        "gpus": gpus,
        "binding_gpu": found.binding_gpu,
        "tokens": found.tokens,
        "largest_N": found.largest_N,
        "largest_context": largest,
    }
    records = [gpu | {"binds": gpu["gpu"] == found.binding_gpu} for gpu in gpus]
    records = [
        {key: value for key, value in gpu.items() if key != "weights"}
        | {f"weight_bytes_{model}": size for model, size in gpu["weights"].items()}
        for gpu in records
    ]
    columns = list(dict.fromkeys(key for record in records for key in record))
    records = [{key: record.get(key, "") for key in columns} for record in records]
    every = f"N = {found.largest_N} requests of {found.context_tokens} tokens"
    blocks: list[str | Grid] = [
        f"{name}: memory for {', '.join(found.models)}, context of {found.context_tokens} tokens",
        _budgets(found),
        f"GPU {found.binding_gpu} binds: it holds {found.tokens:,} cached tokens, at most {every}",
        Grid(
            ("N", "largest context", f"{found.context_tokens} fits"),
            [
                (str(e["N"]), str(e["context_tokens"]), "yes" if e["fits"] else "no")
                for e in largest
            ],
        ),
    ]
    return View(document, records, blocks)


def _gpu(budget: GpuBudget) -> dict[str, Any]:
    return {
        "gpu": budget.gpu,
        "memory_bytes": budget.memory_bytes,
        "reserved_bytes": budget.reserved_bytes,
        "weight_bytes": round(sum(budget.weight_bytes.values())),
        "weights": {name: round(size) for name, size in budget.weight_bytes.items()},
        "free_bytes": round(budget.free_bytes),
        "kv_bytes_per_token": round(budget.kv_bytes_per_token),
        "tokens": budget.tokens,
    }


def _budgets(found: Capacity) -> Grid:
    def gigabytes(size: float) -> str:
        return f"{size / 1e9:.1f}"

    rows = [
        (
            str(gpu.gpu),
            gigabytes(gpu.memory_bytes),
            gigabytes(gpu.reserved_bytes),
            gigabytes(sum(gpu.weight_bytes.values())),
            gigabytes(gpu.free_bytes),
            f"{gpu.kv_bytes_per_token:,.0f}",
            "-" if gpu.tokens is None else f"{gpu.tokens:,}",
        )
        for gpu in found.gpus
    ]
    headings = ("GPU", "GB", "reserved", "weights", "for KV", "KV bytes per token", "tokens")
    return Grid(headings, rows)
