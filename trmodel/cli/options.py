"""Options that several commands share, declared once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How a result is printed."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"
    r2r = "r2r"


class MethodName(StrEnum):
    """The names of `trmodel.search.tune.Method`, which is not imported because that takes long."""

    auto = "auto"
    exact = "exact"
    simulated = "simulated"


class SolverName(StrEnum):
    """The names of `trmodel.markov.Solver`, which is not imported because that takes long."""

    auto = "auto"
    gauss_seidel = "gauss-seidel"
    arnoldi = "arnoldi"
    direct = "direct"
    gth = "gth"


OUTPUT = "Output"
SYSTEM = "System"
SIMULATION = "Simulation"

ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="NAME|FILE",
        help="Step latencies: a built-in name ('trmodel profile list') or a JSON file. A file "
        "that exists wins.",
        rich_help_panel=SYSTEM,
    ),
]
RoutingOption = Annotated[
    str | None,
    typer.Option(
        "--routing",
        metavar="NAME|FILE",
        help="Routing: a preset ('trmodel routing list') or a JSON file. Default: the profile's.",
        rich_help_panel=SYSTEM,
    ),
]
POption = Annotated[
    float | None,
    typer.Option(
        "--p",
        metavar="P",
        help="Probability that the first of two models hands over, in place of the routing's.",
        rich_help_panel=SYSTEM,
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="TOKENS",
        help="Context of every request, such as 2048, or 1024..3072 for one that grows over a "
        "reply (averaged). Default: the profile's.",
        rich_help_panel=SYSTEM,
    ),
]
ReplyTokensOption = Annotated[
    float | None,
    typer.Option(
        "--reply-tokens",
        metavar="MEAN",
        help="Let replies end, after this many tokens on average; the next one begins with a "
        "prefill.",
        rich_help_panel=SYSTEM,
    ),
]
PromptTokensOption = Annotated[
    int | None,
    typer.Option(
        "--prompt-tokens",
        metavar="TOKENS",
        help="Of --reply-tokens: length of a prompt, timed by the extend table of the profile.",
        rich_help_panel=SYSTEM,
    ),
]
PrefillOption = Annotated[
    float | None,
    typer.Option(
        "--prefill-ms",
        metavar="MS",
        help="Of --reply-tokens, instead of --prompt-tokens: what a prefill adds to its step.",
        rich_help_panel=SYSTEM,
    ),
]
MaxBatchOption = Annotated[
    int | None,
    typer.Option(
        "--max-batch",
        metavar="SIZE",
        help="The most requests in one step of any model.",
        rich_help_panel=SYSTEM,
    ),
]
GridOption = Annotated[
    float | None,
    typer.Option(
        "--grid-ms",
        metavar="MS",
        help="Time unit of the chain; latencies are rounded to it. Default: the profile's.",
        rich_help_panel=SYSTEM,
    ),
]
SolverOption = Annotated[
    SolverName,
    typer.Option(
        "--solver", help="Stationary solver; auto chooses by size.", rich_help_panel=SYSTEM
    ),
]
MaxStatesOption = Annotated[
    int | None,
    typer.Option(
        "--max-states",
        metavar="STATES",
        help="Largest chain to solve; a million states take 0.6 GB. Default: 3 million.",
        rich_help_panel=SYSTEM,
    ),
]
SweepOption = Annotated[
    str | None,
    typer.Option(
        "--sweep",
        metavar="p=RANGE",
        help="Repeat for several p, such as p=0.05..0.6:0.05.",
        rich_help_panel=SYSTEM,
    ),
]
BatchesOption = Annotated[
    int,
    typer.Option(
        "--batches",
        help="About how many batches to simulate, after a tenth of it as warm-up.",
        rich_help_panel=SIMULATION,
    ),
]
PrecisionOption = Annotated[
    float | None,
    typer.Option(
        "--precision",
        metavar="PERCENT",
        help="Go on, up to 64 times as long, until the throughput's half width is below this "
        "percentage of it.",
        rich_help_panel=SIMULATION,
    ),
]
SimulationSeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        help="Of the routing decisions, which are the same under every strategy.",
        rich_help_panel=SIMULATION,
    ),
]
ConfidenceOption = Annotated[
    float,
    typer.Option(
        "--confidence",
        metavar="SHARE",
        help="Of every interval, such as 0.95.",
        rich_help_panel=SIMULATION,
    ),
]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="What stdout gets. Default: table.",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Short for --format json.", rich_help_panel=OUTPUT)
]
FileOption = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Also write FILE, whole or not at all, in the format of its suffix (.json, .csv, "
        ".md, .txt for a table), else in that of --format.",
        rich_help_panel=OUTPUT,
    ),
]
PlotOption = Annotated[
    str | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        help="Also draw the result to FILE (.png, .svg or .pdf).",
        rich_help_panel=OUTPUT,
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        help="Nothing on stderr but errors; with -o nothing on stdout.",
        rich_help_panel=OUTPUT,
    ),
]


def examples(*commands: str) -> str:
    """Return an epilog that lists commands, one a line."""
    return "\n".join(["Examples:", *(f"  $ {command}" for command in commands)])
