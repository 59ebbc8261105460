"""The latency tables of a profile as grids for people and as flat records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trmodel.cli.output import Grid

if TYPE_CHECKING:
    from trmodel.profile import DecodeTable, ExtendTable, ModelProfile

MARKS = {"measured": "", "interpolated": "~", "extrapolated": "*"}


def table_blocks(model: ModelProfile, table: DecodeTable | ExtendTable) -> list[str | Grid]:
    """Show a table: a row for each batch, a column for each context or number of new tokens.

    A decode table with one row of latencies shows decode, overhead and step beside each other.
    Entries that whoever made the table interpolated or extrapolated are marked.
    """
    from trmodel.profile import ExtendTable

    if isinstance(table, ExtendTable):
        cached = table.context_tokens
        after = "" if cached is None else f", after {cached} cached tokens"
        title = f"extend of {model.name}: ms by batch and new tokens of each request{after}"
        columns = table.new_tokens
    elif len(table.rows) > 1:
        title, columns = f"decode of {model.name}: ms by batch and context", table.contexts
    else:
        return [_one_row(model)]
    marked = [
        [f"{latency:g}{MARKS[status]}" for latency, status in zip(row, statuses, strict=True)]
        for row, statuses in zip(table.rows, table.status_rows, strict=True)
    ]
    rows = [(str(batch), *cells) for batch, *cells in zip(table.batch, *marked, strict=True)]
    used = {status for statuses in table.status_rows for status in statuses}
    said = [f"{mark} {status}" for status, mark in MARKS.items() if mark and status in used]
    rest = "; the others measured" if "measured" in used else ""
    legend = f"{', '.join(said)}{rest}" if said else "all measured"
    return [f"{title} ({legend})", Grid(("batch", *map(str, columns)), rows)]


def _one_row(model: ModelProfile) -> Grid:
    table = model.decode
    (row,), (statuses,) = table.rows, table.status_rows
    rows = [
        (
            str(batch),
            f"{latency:g}",
            *(f"{value:g}" for value in added_up(model, latency).values()),
            status,
        )
        for batch, latency, status in zip(table.batch, row, statuses, strict=True)
    ]
    headings = ("batch", "decode_ms", "overhead_ms", "step_ms", "status")
    return Grid(headings, rows, ("status",))


def records_of(model: ModelProfile) -> list[dict[str, Any]]:
    """Return a flat record for each listed latency, of decode steps and then of extend steps."""
    contexts = model.decode.contexts or ("",)
    records = [
        {"context": context, "new_tokens": "", **record}
        for context, row in zip(contexts, _rows(model, model.decode, "decode_ms"), strict=True)
        for record in row
    ]
    if model.extend is not None:
        cached = "" if model.extend.context_tokens is None else model.extend.context_tokens
        rows = _rows(model, model.extend, "extend_ms")
        records += [
            {"context": cached, "new_tokens": new, **record}
            for new, row in zip(model.extend.new_tokens, rows, strict=True)
            for record in row
        ]
    return [{"model": model.name, **record} for record in records]


def _rows(
    model: ModelProfile, table: DecodeTable | ExtendTable, kind: str
) -> list[list[dict[str, Any]]]:
    """Return a record for each entry of each row of a table; what is of the other kind is empty."""
    empty = {"decode_ms": "", "extend_ms": ""}
    return [
        [
            {"batch": batch}
            | (empty | {kind: round(latency, 9)})
            | added_up(model, latency)
            | {"status": status}
            for batch, latency, status in zip(table.batch, row, statuses, strict=True)
        ]
        for row, statuses in zip(table.rows, table.status_rows, strict=True)
    ]


def added_up(model: ModelProfile, latency: float) -> dict[str, float]:
    """Return the overhead, and the step that a latency makes with it."""
    overhead = model.overhead.value_ms if model.overhead else 0.0
    return {"overhead_ms": overhead, "step_ms": round(latency + overhead, 9)}
