"""``trmodel routing calibrate``: the threshold of a policy for a share of the large model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trmodel.cli import options
from trmodel.cli.output import DOCUMENT_FORMATS, Grid, View, output
from trmodel.cli.progress import progress_bar
from trmodel.cli.serving import read_config
from trmodel.errors import LimitError

if TYPE_CHECKING:
    from trmodel.runtime.bench.share import Calibration

RUNS = "Runs"
REQUESTS = 32


def calibrate(
    config: Annotated[
        str,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A server's file whose policy has a threshold; it is started for every run.",
        ),
    ],
    target_share: Annotated[
        float,
        typer.Option(
            "--target-share",
            metavar="SHARE",
            help="Of the output tokens that the large model is to write, such as 0.2.",
        ),
    ],
    tolerance: Annotated[
        float, typer.Option("--tolerance", metavar="SHARE", help="End at a share so near to it.")
    ] = 0.01,
    max_runs: Annotated[
        int, typer.Option("--max-runs", min=1, help="The most runs.", rich_help_panel=RUNS)
    ] = 8,
    prompts: Annotated[
        str | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help="A text a line, or .jsonl: texts, lists of tokens, or objects with such a prompt. "
            "Default: random tokens, which are unlike any real text.",
            rich_help_panel=RUNS,
        ),
    ] = None,
    prompt_tokens: Annotated[
        int,
        typer.Option(
            "--prompt-tokens", min=1, help="Of random prompts: length.", rich_help_panel=RUNS
        ),
    ] = 32,
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests",
            min=2,
            help=f"Of every run. Default: one for each prompt of the file, or {REQUESTS}.",
            rich_help_panel=RUNS,
        ),
    ] = None,
    reply_tokens: Annotated[
        int,
        typer.Option("--reply-tokens", min=1, help="Of every reply.", rich_help_panel=RUNS),
    ] = 128,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", min=0, help="Of the first request, in every run.", rich_help_panel=RUNS
        ),
    ] = 0,
    confidence: options.ConfidenceOption = 0.95,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the server's file with the threshold found to FILE, whole or not at all.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    quiet: options.QuietOption = False,
) -> int:
    """Find the threshold at which the large model writes a stated share of the output.

    stdout gets the runs, -o the settings. If no run comes near enough, the nearest is given, with
    exit code 5.
    """
    out, written = output(format, json, None, quiet), output(None, False, file, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds of batches, not of policies")
    written.keep(config, prompts)
    settings = read_config(config)
    from trmodel.runtime.bench.prompts import random_prompts, read_prompts, repeated
    from trmodel.runtime.bench.share import calibrate_share
    from trmodel.runtime.bench.share_runs import ServerRuns, threshold_policy, with_threshold
    from trmodel.runtime.server.tokenizer import tokenizer_of

    policy, tokenizer = threshold_policy(settings), tokenizer_of(settings)
    if prompts is None:
        count = requests or REQUESTS
        asked = random_prompts(count, prompt_tokens, tokenizer.vocabulary, seed)
    else:
        read = read_prompts(prompts, tokenizer)
        asked = repeated(read, requests or len(read))
    with progress_bar(quiet, "runs") as progress:
        found = calibrate_share(
            ServerRuns(settings, asked, reply_tokens, seed),
            target_share,
            policy.threshold,
            above=policy.above,
            tolerance=tolerance,
            max_runs=max_runs,
            confidence=confidence,
            progress=progress,
        )
    out.emit(calibration_view(found))
    if file is not None:
        is_json = Path(file).suffix.lower() == ".json"
        written.emit_text(with_threshold(config, found.best.threshold, is_json))
    return 0 if found.reached else LimitError.exit_code


def calibration_view(found: Calibration) -> View:
    """Show the runs of a calibration and the threshold found."""
    document = found.to_dict()
    rows = [
        (
            f"{tried.threshold:.6g}",
            f"{tried.share.value:.4f}",
            f"{tried.share.low:.4f} to {tried.share.high:.4f}",
            str(tried.tokens),
        )
        for tried in found.tried
    ]
    best = found.best
    level = f"{100.0 * found.confidence:g} % interval"
    head = (
        f"threshold {best.threshold:.6g}: the large model writes {best.share.value:.4f} of the "
        f"output, for a target of {found.target:g} ({found.requests} requests)"
    )
    warnings = [] if found.reached else [f"{found.why}; the nearest is given"]
    if best.share.half_width > found.tolerance:
        warnings.append(
            f"other requests may give shares from {best.share.low:.3f} to {best.share.high:.3f}; "
            "more requests, or longer replies, tell more exactly"
        )
    grid = Grid(("threshold", "share", level, "tokens"), rows)
    return View(document, document["runs"], [head, grid], warnings=warnings)
