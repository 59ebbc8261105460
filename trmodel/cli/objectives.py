"""``--slo``: how what objectives make of a threshold table is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trmodel.cli.output import View
from trmodel.cli.streams import complain
from trmodel.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from trmodel.search.constrained import Constrained

OBJECTIVES = "Objectives"

SloOption = Annotated[
    list[str] | None,
    typer.Option(
        "--slo",
        metavar="NAME=LIMIT",
        help="An objective to meet, such as p99-itl-ms=60, p99-admission-ms=40 or "
        "min-request-speed=12; may be given several times.",
        rich_help_panel=OBJECTIVES,
    ),
]


def check_slo(slo: Sequence[str] | None, **others: bool) -> None:
    """Refuse what makes no sense together with objectives.

    Raises
    ------
    UsageError
    """
    for option, given in others.items():
        if slo and given:
            raise UsageError(f"--slo: cannot be combined with --{option}")


def with_objectives(view: View, found: Constrained, every_row: bool) -> View:
    """Add to the view of a table what was found out about the objectives of each row."""
    rows = found.table.rows if every_row else found.table.wanted_rows
    documents: Any = view.document["rows"]
    records: list[dict[str, Any]] = [dict(record) for record in view.records]
    lines = []
    for row, plain, record in zip(rows, documents, records, strict=True):
        outcome = found.outcomes[row.N]
        plain["objectives"] = outcome.to_dict()
        record["objectives_met"] = outcome.chosen is not None
        record["binding"] = " ".join(outcome.binding)
        record["cost_percent"] = outcome.cost_percent
        record["objectives"] = "; ".join(outcome.lines)
        lines.append("\n  ".join(outcome.lines))
    return replace(view, records=records, blocks=[*view.blocks, *lines])


def end_of_objectives(found: Constrained) -> int:
    """Complain about rows where nothing meets the objectives and return the exit code."""
    for outcome in found.unmet:
        complain(outcome.lines[0] + "; the row holds the nearest miss")
    return InfeasibleError.exit_code if found.unmet else 0
