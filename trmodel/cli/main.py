"""The command ``trmodel``: its subcommands, and what becomes of errors."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from trmodel._version import __version__
from trmodel.cli.arrivals import arrivals
from trmodel.cli.bench import bench
from trmodel.cli.best_rule import best_rule
from trmodel.cli.compare import compare
from trmodel.cli.keys import keys
from trmodel.cli.options import examples
from trmodel.cli.pareto import pareto
from trmodel.cli.predict import predict
from trmodel.cli.profile import app as profile_app
from trmodel.cli.routing import app as routing_app
from trmodel.cli.serve import serve
from trmodel.cli.simulate import simulate
from trmodel.cli.streams import complain, flush_out, print_out
from trmodel.cli.subserver import subserver
from trmodel.cli.tune import tune
from trmodel.cli.validate import validate
from trmodel.errors import InputError, LimitError, TrmodelError, UsageError

EXIT_CODES = """Exit codes:
  0    an answer was given
  1    internal error
  2    wrong usage
  3    nothing feasible, the thresholds given can deadlock, or memory does not suffice
  4    bad profile, routing or other file
  5    a limit was reached; the best answer so far was given, if any
  130  interrupted"""

app = typer.Typer(
    name="trmodel",
    help="Model and tune token-level routing LLM servers: thresholds for delayed batching, from "
    "step latencies alone, by an exact Markov chain.",
    epilog=examples(
        "trmodel tune --profile a100.json --N 4..16",
        "trmodel predict --profile a100-paper --N 4 --B 1,3",
        "trmodel best-rule --profile a100-paper --N 8",
        "trmodel simulate --N 8 --B 2,6 --strategy all",
        "trmodel profile list",
        "trmodel profile capacity h100 --context 8192",
        "trmodel routing list",
    )
    + "\n\n"
    + EXIT_CODES,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    epilog=examples(
        "trmodel predict --N 4 --B 1,3",
        "trmodel predict --profile a100-paper --N 4 --B 1,3 --json",
        "trmodel predict --profile h100 --N 4 --B 1,3 --context 1024..3072 --check-grid",
        "trmodel predict --N 8 --B 1,4 --sweep p=0.05..0.6:0.05 --format csv",
        "trmodel predict --profile a100-paper --N 2 --B 1,2 --symbolic",
    )
)(predict)
app.command(
    epilog=examples(
        "trmodel tune --profile a100.json --N 4..16",
        "trmodel tune --profile a100-paper --N 4,8,16 -o thresholds.json",
        "trmodel tune --N 8 --B0 1 --p 0.2 --explain",
        "trmodel tune --N 4..8 --sweep p=0.1..0.5:0.1 --format csv --plot sweep.png",
        "trmodel tune --profile h100 --N 4,60 --context 1024..8192 --clip",
        "trmodel tune --profile h100 --N 4 --uncertainty",
        "trmodel tune --N 16 --format r2r",
        "trmodel tune --profile a100-paper --N 4..8 --bound",
        "trmodel tune --N 8 --slo p99-itl-ms=70 --slo min-request-speed=12",
    )
)(tune)
app.command(
    "best-rule",
    epilog=examples(
        "trmodel best-rule --profile a100-paper --N 8",
        "trmodel best-rule --N 8 --B 2,6 --actions part -o rule.json",
    ),
)(best_rule)
app.command(
    epilog=examples(
        "trmodel simulate --N 8 --B 2,6",
        "trmodel simulate --N 64 --B 8,30 --precision 0.1 --json",
        "trmodel simulate --profile a100-paper --N 8 --B 1,5 --strategy all --plot strategies.svg",
        "trmodel simulate --N 8 --B 2,6 --strategy all --timeline timeline.png",
        "trmodel simulate --N 8 --B 2,6 --timeline trace.json --timeline-ms 1000",
        "trmodel simulate --N 16 --B 4,10 --hold-ms 100 --arrivals 1.5 --reply-tokens 200",
        "trmodel simulate --profile a100-paper --N 8 --B 1,5 --on-grid --exact",
    )
)(simulate)
app.command(
    epilog=examples(
        "trmodel compare --N 8",
        "trmodel compare --profile a100-paper --N 8 --B 1,5 --share 26 --plot compare.png",
        "trmodel compare --N 8 --B 2,6 --keep-overhead --json",
    )
)(compare)
app.command(
    epilog=examples(
        "trmodel pareto --profile a100-paper --N 4",
        "trmodel pareto --N 8 --plot pareto.png",
        "trmodel pareto --N 6 --delay p99-admission-ms --all --format csv",
    )
)(pareto)
app.command(
    epilog=examples(
        "trmodel arrivals --profile a100-paper --N 4 --slo p99-itl-ms=90 --reply-tokens 100 "
        "--replies 500",
        "trmodel arrivals --N 6 --reply-tokens 200 --replies 500 --plot arrivals.png",
        "trmodel arrivals --N 4 --B 1,2 --hold-ms 50 --reply-tokens 100 --replies 500 --json",
    )
)(arrivals)
app.command(
    epilog=examples(
        "trmodel serve --profile a100-paper",
        "trmodel serve --config r2r.yaml",
        "trmodel serve --config r2r.yaml --thresholds thresholds.json --port 0",
    )
)(serve)
app.command(epilog=examples("trmodel subserver --config r2r.yaml --model Qwen3-32B"))(subserver)
app.command(epilog=examples("trmodel keys r2r.keys"))(keys)
app.command(
    epilog=examples(
        "trmodel bench --url http://127.0.0.1:8000 --N 4,8 --thresholds thresholds.json",
        "trmodel bench --config r2r.yaml --N 4 --B 1,3 --B 1,4 --seconds 30 -o results.jsonl",
    )
)(bench)
app.command(
    epilog=examples(
        "trmodel validate results.jsonl --profile measured.json",
        "trmodel validate results.jsonl --profile a100-paper --plot errors.png",
    )
)(validate)
app.add_typer(profile_app, name="profile")
app.add_typer(routing_app, name="routing")


def _show_version(wanted: bool) -> None:
    if wanted:
        print_out(f"trmodel {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors become lines on stderr.

    With ``TRMODEL_DEBUG=1`` in the environment they are raised, for their traceback.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    _print_what_stdout_can_encode()
    try:
        command = typer.main.get_command(app)
        code = command.main(given or ["--help"], prog_name="trmodel", standalone_mode=False)
        flush_out()
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        if os.environ.get("TRMODEL_DEBUG") == "1":
            raise
        return _report(_of_stdout(error) or error)
    return code if isinstance(code, int) else 0


def _of_stdout(error: Exception) -> InputError | None:
    """Return what is wrong with stdout if that is why somebody else's writing to it failed."""
    if isinstance(error, OSError):
        try:
            flush_out()
        except InputError as found:
            return found
    return None


def _print_what_stdout_can_encode() -> None:
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure:
        reconfigure(errors="backslashreplace")


def _report(error: Exception) -> int:
    """Print an error, a line for each problem, and return the exit code."""
    lines, code = _in_words(error)
    for line in lines:
        complain(line)
    return code


def _in_words(error: Exception) -> tuple[list[str], int]:
    if isinstance(error, InputError):
        return error.problems, error.exit_code
    if isinstance(error, UsageError):
        return [_with_option(str(error))], error.exit_code
    if isinstance(error, TrmodelError):
        text = _with_option(str(error)).replace("clip=True", "--clip")
        return text.splitlines(), error.exit_code
    if isinstance(error, MemoryError):
        return [
            "out of memory; ask for less at once: a smaller N, fewer sizes or samples"
        ], LimitError.exit_code
    if hasattr(error, "format_message"):  # click's errors, whose home depends on typer's version
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "trmodel"
        message = " ".join(str(error.format_message()).split()).rstrip(".")
        message = message.replace("Value error, ", "")
        return [f"{message}; see '{path} --help'"], UsageError.exit_code
    return [
        f"internal error: {type(error).__name__}: {error}; this is a bug, please report it "
        "(TRMODEL_DEBUG=1 shows the traceback)"
    ], 1


def _with_option(message: str) -> str:
    """Name the option instead of the Python argument: ``--max-batch: ...``."""
    return re.sub(
        r"^(N|B|B\d|p|max_batch|grid_ms|solver|context|method|resume|system|backend|version"
        r"|strategy|seed|confidence|precision_percent|hold_ms|arrivals_per_s|reply_tokens"
        r"|share_percent|timeline_from|timeline_ms|exact"
        r"|model|batches|contexts|new_tokens|context_tokens|memory_fraction|worker|warm_up"
        r"|min_samples|tensor_parallel|samples|actions|prompt_tokens|prefill_ms|max_phases|level"
        r"|max_states|slo|delay|replies|precision)(?=[:\[])",
        lambda match: "--" + _OPTIONS.get(match[0], match[0]).replace("_", "-"),
        message,
    )


_OPTIONS = {
    "arrivals_per_s": "arrivals",
    "precision_percent": "precision",
    "share_percent": "share",
}
"""Options that are not called what the Python argument is."""
