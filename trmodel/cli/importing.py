"""``trmodel profile import``: profiles from what others measured."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trmodel.cli import options
from trmodel.cli.options import examples
from trmodel.cli.output import Output, output
from trmodel.cli.ranges import whole_numbers

if TYPE_CHECKING:
    from trmodel.profile import DecodeTable, ExtendTable, Profile
    from trmodel.profile.plausible import Unit

app = typer.Typer(
    help="Make a profile of what others measured: NVIDIA's aiconfigurator, a plain table, a live "
    "SGLang server.",
    epilog=examples(
        "trmodel profile import csv steps.csv -o mine.json",
        "trmodel profile import sglang-metrics metrics.jsonl --model Qwen3-8B -o mine.json",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str | None, typer.Option("--name", help="Of the profile.")]
Description = Annotated[str | None, typer.Option("--description", help="Of the profile.")]
Routing = Annotated[
    str | None, typer.Option("--routing", metavar="PRESET", help="The profile's default routing.")
]
Gpu = Annotated[str, typer.Option("--gpu", metavar="GPU", help="GPU model of the profile.")]
File = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the profile to FILE, whole or not at all, and not to stdout.",
        rich_help_panel=options.OUTPUT,
    ),
]


@app.command(
    epilog=examples(
        "trmodel profile import aiconfigurator --system a100_sxm --backend sglang "
        "--model Qwen/Qwen3-0.6B:tp1 --model Qwen/Qwen3-32B:tp2 -o mine.json"
    )
)
def aiconfigurator(
    system: Annotated[
        str, typer.Option("--system", help="The package's name of a GPU, such as a100_sxm.")
    ],
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            metavar="NAME[:tpK]",
            help="A model that the package knows, or a folder with its config.json, on K GPUs; "
            "once for each.",
        ),
    ],
    backend: Annotated[str, typer.Option("--backend", help="Server that was measured.")] = "sglang",
    version: Annotated[
        str | None,
        typer.Option("--version", help="Version of the server. Default: the package's current."),
    ] = None,
    batches: Annotated[
        str | None, typer.Option("--batches", metavar="RANGE", help="Default: 1,2,4,...,256.")
    ] = None,
    contexts: Annotated[
        str | None, typer.Option("--contexts", metavar="RANGE", help="Default: 512,...,8192.")
    ] = None,
    new_tokens: Annotated[
        str | None,
        typer.Option("--new-tokens", metavar="RANGE", help="Default: 1,2,4,...,256,1024."),
    ] = None,
    context_tokens: Annotated[
        int | None,
        typer.Option(
            "--context-tokens",
            help="The profile's usual context, one of --contexts. Default: the closest to 2048.",
        ),
    ] = None,
    memory_fraction: Annotated[
        float,
        typer.Option("--memory-fraction", help="Share of each GPU for weights and KV."),
    ] = 0.88,
    name: Name = None,
    description: Description = None,
    routing: Routing = None,
    file: File = None,
    quiet: options.QuietOption = False,
) -> int:
    """Derive step latencies with NVIDIA's aiconfigurator-core; needs no GPU.

    pip install 'trmodel[aiconfigurator]' installs the package.
    """
    out = output(None, False, file, quiet)
    sizes = {"batches": batches, "contexts": contexts, "new_tokens": new_tokens}
    given = {
        key: whole_numbers(text, f"--{key.replace('_', '-')}")
        for key, text in sizes.items()
        if text is not None
    }
    from trmodel.profile.importers import import_aiconfigurator

    return _give(
        import_aiconfigurator(
            system,
            model,
            backend=backend,
            version=version,
            context_tokens=context_tokens,
            memory_fraction=memory_fraction,
            name=name,
            description=description,
            routing=routing,
            **given,
        ),
        out,
    )


@app.command("csv", epilog=examples("trmodel profile import csv steps.csv -o mine.json"))
def csv_table(
    table: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A table with the header model,batch,latency_ms,..."),
    ],
    name: Name = None,
    description: Description = None,
    gpu: Gpu = "unknown",
    source: Annotated[
        str | None, typer.Option("--source", help="Where the numbers come from. Default: the file.")
    ] = None,
    context_tokens: Annotated[
        int | None, typer.Option("--context-tokens", help="The profile's usual context.")
    ] = None,
    routing: Routing = None,
    file: File = None,
    quiet: options.QuietOption = False,
) -> int:
    """Import a plain table with a row for each model and batch size."""
    out = output(None, False, file, quiet)
    out.keep(table)
    from trmodel.profile.importers import import_csv

    return _give(
        import_csv(
            table,
            name=name or "imported",
            description=description,
            gpu=gpu,
            source=source,
            context_tokens=context_tokens,
            routing=routing,
        ),
        out,
    )


@app.command(
    epilog=examples(
        "trmodel profile import sglang-metrics metrics.jsonl --model Qwen3-8B -o mine.json"
    )
)
def sglang_metrics(
    metrics: Annotated[
        str, typer.Argument(metavar="FILE", help="Forward-pass metrics, a record a line.")
    ],
    model: Annotated[str, typer.Option("--model", help="What a routing calls the model.")],
    tensor_parallel: Annotated[
        int, typer.Option("--tensor-parallel", help="GPUs that it is spread over.")
    ] = 1,
    worker: Annotated[
        str | None, typer.Option("--worker", help="The worker_id to use of a file with several.")
    ] = None,
    warm_up: Annotated[
        int, typer.Option("--warm-up", help="Records to drop at the start, of each size.")
    ] = 5,
    min_samples: Annotated[
        int, typer.Option("--min-samples", help="Sizes with fewer records are left out.")
    ] = 10,
    name: Name = None,
    description: Description = None,
    gpu: Gpu = "unknown",
    sglang_version: Annotated[
        str | None, typer.Option("--sglang-version", help="Of the server, for the profile.")
    ] = None,
    routing: Routing = None,
    file: File = None,
    quiet: options.QuietOption = False,
) -> int:
    """Import the forward-pass metrics of a live SGLang server."""
    out = output(None, False, file, quiet)
    out.keep(metrics)
    from trmodel.profile.importers import import_sglang_metrics

    return _give(
        import_sglang_metrics(
            metrics,
            model,
            tensor_parallel=tensor_parallel,
            worker=worker,
            warm_up=warm_up,
            min_samples=min_samples,
            name=name or "imported",
            description=description,
            gpu=gpu,
            sglang_version=sglang_version,
            routing=routing,
        ),
        out,
        read_in="seconds",
    )


def _give(profile: Profile, out: Output, read_in: Unit = "milliseconds") -> int:
    """Say what was imported, from latencies in which unit, and write it."""
    from trmodel.profile import plausibility_warnings
    from trmodel.profile.importers import profile_text

    for model in profile.models:
        tables: list[tuple[str, Any]] = [("decode", model.decode), ("extend", model.extend)]
        said = [f"{kind} {_counted(table)}" for kind, table in tables if table is not None]
        out.note(f"{model.name}: {'; '.join(said)}")
    for warning in plausibility_warnings(profile, profile.model_names, read_in=read_in):
        out.note(f"trmodel: warning: {warning}")
    out.emit_text(profile_text(profile))
    return 0


def _counted(table: DecodeTable | ExtendTable) -> str:
    """Say how large a table is and how many entries have which status."""
    found = Counter(status for row in table.status_rows for status in row)
    counts = ", ".join(f"{number} {status}" for status, number in found.items())
    return f"{len(table.batch)} x {len(table.rows)}: {counts}"
