"""``trmodel bench``: measure a running server under closed loops."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trmodel.cli import options
from trmodel.cli.output import DOCUMENT_FORMATS, Grid, Output, View, output
from trmodel.cli.ranges import vector, whole_numbers
from trmodel.cli.serving import read_config, require_extra
from trmodel.errors import UsageError
from trmodel.launch import is_live, shown_vector

if TYPE_CHECKING:
    from trmodel.runtime.config import ServerConfig

MEASURING = "Measuring"

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="A running server, such as http://127.0.0.1:8000. Its thresholds are changed while "
        "it is measured.",
        rich_help_panel=MEASURING,
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Or a server's file: it is started for the measurement, without its HTTP face.",
        rich_help_panel=MEASURING,
    ),
]
AdminKeyOption = Annotated[
    str | None,
    typer.Option(
        "--admin-key",
        metavar="KEY",
        envvar="TRMODEL_ADMIN_KEY",
        help="Of --url: the key that changes of thresholds need.",
        rich_help_panel=MEASURING,
    ),
]
WarmUpOption = Annotated[
    float,
    typer.Option(
        "--warm-up",
        metavar="SECONDS",
        min=0.0,
        help="What is not counted at the start of every setting.",
        rich_help_panel=MEASURING,
    ),
]


def bench(
    N: Annotated[str, typer.Option("--N", metavar="RANGE", help="Concurrent requests.")],
    url: UrlOption = None,
    config: ServerOption = None,
    B: Annotated[
        list[str] | None,
        typer.Option(
            "--B",
            metavar="B0,B1,...",
            help="Thresholds, for every N at which they are live; may be repeated.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    thresholds: Annotated[
        list[str] | None,
        typer.Option(
            "--thresholds",
            metavar="FILE|eager|tune",
            help="Instead: a file of 'trmodel tune -o', eager launching, or (with --config) those "
            "that tune finds; may be repeated. Default: eager.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            min=0.1,
            help="Length of the window of every setting.",
            rich_help_panel=MEASURING,
        ),
    ] = 20.0,
    warm_up: WarmUpOption = 3.0,
    reply_tokens: Annotated[
        int,
        typer.Option(
            "--reply-tokens",
            min=1,
            help="Length of every reply; a worker asks anew when its reply ends.",
            rich_help_panel=MEASURING,
        ),
    ] = 4096,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            help="Of the first reply; settings with the same seed draw the same routing decisions.",
            rich_help_panel=MEASURING,
        ),
    ] = 0,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Also keep when every token came.",
            rich_help_panel=MEASURING,
        ),
    ] = False,
    results: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Append every setting to FILE as soon as it is measured, one JSON object a line; "
            "what is there already is not measured again.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    admin_key: AdminKeyOption = None,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> int:
    """Measure throughput, delays, batches and routing of a server at several N and thresholds."""
    out = output(format, json, None, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds, not measurements")
    sizes = whole_numbers(N, "--N")
    settings = server_settings(url, config, max(sizes))
    from trmodel.runtime.bench.point import measure_point
    from trmodel.runtime.bench.results import append_point, read_points
    from trmodel.runtime.bench.running import running

    points = read_points(results) if results and os.path.exists(results) else []
    there = {_key(point) for point in points}
    measured = []
    with running(settings, url, admin_key) as target:
        models = target.stats().models
        wanted = _wanted(sizes, B or [], thresholds or [], models, settings)
        for N_, B_ in wanted:
            key = (N_, B_, seed, reply_tokens)
            if key in there:
                measured.append(next(point for point in points if _key(point) == key))
                continue
            point = measure_point(
                target,
                N_,
                B_,
                seconds=seconds,
                warm_up=warm_up,
                reply_tokens=reply_tokens,
                seed=seed,
                record=record,
            )
            if results:
                append_point(results, point)
            measured.append(point)
            _say(out, point)
    if results:
        out.note(f"wrote {results}")
    out.emit(points_view(measured))
    return 0


def server_settings(url: str | None, config: str | None, max_live: int) -> ServerConfig | None:
    """Return the settings of the server to start; None if there is one behind the URL.

    Raises
    ------
    UsageError
        If not one of the two is given.
    """
    require_extra()
    if (url is None) == (config is None):
        raise UsageError("--url, --config: one of the two is needed, a running server or a file")
    if config is None:
        return None
    return read_config(config).model_copy(update={"max_live": max_live})


def _key(point: dict[str, Any]) -> tuple[Any, ...]:
    return point["N"], tuple(point["B"]), point.get("seed"), point.get("reply_tokens")


def _wanted(
    sizes: Sequence[int],
    B: Sequence[str],
    thresholds: Sequence[str],
    models: Sequence[str],
    settings: ServerConfig | None,
) -> list[tuple[int, tuple[int, ...]]]:
    """List the settings, each once."""
    found: dict[tuple[int, tuple[int, ...]], None] = {}
    vectors = [vector(text, "--B") for text in B]
    for one in vectors:
        if len(one) != len(models):
            raise UsageError(f"--B: {len(models)} thresholds are needed, got {shown_vector(one)}")
        if not any(is_live(one, N) for N in sizes):
            raise UsageError(f"--B: {shown_vector(one)} can deadlock at every N asked for")
    tables = [_table(name, models, settings) for name in thresholds]
    if not vectors and not tables:
        tables = [((1,) * len(models),)]
    for N in sizes:
        for one in vectors:
            if is_live(one, N):
                found[N, one] = None
        for table in tables:
            found[N, table[min(N, len(table)) - 1]] = None
    return list(found)


def _table(
    name: str, models: Sequence[str], settings: ServerConfig | None
) -> tuple[tuple[int, ...], ...]:
    from trmodel.runtime.plan import first_vectors, read_vectors

    if name == "eager":
        return ((1,) * len(models),)
    if name != "tune":
        return read_vectors(name, models)
    if settings is None:
        raise UsageError("--thresholds tune: needs --config; give a file of 'trmodel tune -o'")
    return first_vectors(settings.model_copy(update={"thresholds": "tune"}))


def _say(out: Output, point: dict[str, Any]) -> None:
    told = point["throughput_tok_s"], point["committed_tok_s"]
    if abs(told[0] / told[1] - 1.0) > 0.02:
        out.note(
            f"trmodel: warning: N = {point['N']}: clients counted {told[0]:.1f} tokens a second, "
            f"the models {told[1]:.1f}; the stream may hold several tokens in one piece"
        )
    out.note(f"N = {point['N']}, B = {shown_vector(point['B'])}: {told[0]:.1f} tok/s")


def points_view(points: Sequence[dict[str, Any]]) -> View:
    """Show measured points."""
    records = []
    for point in points:
        low, high = point["throughput_interval_tok_s"]
        records.append(
            {
                "N": point["N"],
                "B": shown_vector(point["B"]),
                "throughput_tok_s": point["throughput_tok_s"],
                "low_tok_s": low,
                "high_tok_s": high,
                **{f"inter_token_{k}_ms": v for k, v in point["inter_token_ms"].items()},
                "first_token_p50_ms": point["first_token_ms"]["p50"],
                **{
                    f"{what}_{model['name']}": model[what]
                    for model in point["per_model"]
                    for what in ("mean_batch", "admission_delay_ms")
                },
                **{f"step_share_{m}": s for m, s in _shares(point)},
                **{f"{part}": ms for part, ms in point["ledger"].items()},
            }
        )
    headings = ("N", "B", "tok/s", "± %", "token p50", "p90", "p99 ms", "batches", "shares %")
    rows = [
        (
            str(point["N"]),
            record["B"],
            f"{record['throughput_tok_s']:.1f}",
            f"{_half_width_percent(point):.1f}",
            *(_shown(point["inter_token_ms"][q]) for q in ("p50", "p90", "p99")),
            " ".join(_shown(model["mean_batch"]) for model in point["per_model"]),
            " ".join(f"{100.0 * share:.0f}" for share in point["step_share"]),
        )
        for point, record in zip(points, records, strict=True)
    ]
    document = {"schema": "trmodel/measured-points", "schema_version": 1, "points": list(points)}
    models = ", ".join(points[0]["models"]) if points else ""
    return View(document, records, [f"measured: {models}", Grid(headings, rows, ("B",))])


def _half_width_percent(point: dict[str, Any]) -> float:
    low, high = point["throughput_interval_tok_s"]
    return 50.0 * float(high - low) / float(point["throughput_tok_s"])


def _shares(point: dict[str, Any]) -> list[tuple[str, float]]:
    return list(zip(point["models"], point["step_share"], strict=True))


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
