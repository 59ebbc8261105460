"""How threshold tables and sweeps are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trmodel.cli.output import Grid, View, context_in_words, grid_in_words
from trmodel.launch import shown_vector
from trmodel.search import Row, ThresholdTable
from trmodel.search.sweep import Sweep

if TYPE_CHECKING:
    from trmodel.calibrate import Uncertainty
    from trmodel.cli.explain import Explanation

HEADINGS = ("N", "B", "tok/s", "per request", "eager", "gain %")
BOUND_HEADINGS = ("gap %",)
LAST_HEADINGS = ("runner-up", "notes")
LEFT = ("B", "runner-up", "notes")


def view_of(
    result: ThresholdTable | Sweep,
    every_row: bool,
    seed: int | None,
    explained: Mapping[int, Explanation] | None = None,
    sure: Mapping[int, Uncertainty] | None = None,
) -> View:
    """Show a table or a sweep: the rows asked for, or every one from n = 1."""
    if isinstance(result, Sweep):
        return _sweep_view(result, every_row, seed)
    return _table_view(result, every_row, seed, explained, sure)


def _table_view(
    table: ThresholdTable,
    every_row: bool,
    seed: int | None,
    explained: Mapping[int, Explanation] | None,
    sure: Mapping[int, Uncertainty] | None,
) -> View:
    document = table.to_dict(every_row) | {"seed": seed}
    records = table.to_records(every_row)
    rows: list[Any] = [((), plain) for plain in document["rows"]]
    blocks = [_title(table), *_grid(rows, ()), _how([table])]
    if explained is not None:
        for plain, record in zip(document["rows"], records, strict=True):
            found = explained.get(plain["N"])
            plain["explanation"] = None if found is None else found.to_dict()
            record["explanation"] = "" if found is None else "; ".join(found.lines)
        blocks += ["\n  ".join(found.lines) for found in explained.values()]
    if sure is not None:
        from trmodel.cli.uncertainty import uncertainty_blocks, uncertainty_in_words

        for plain, record in zip(document["rows"], records, strict=True):
            spread = sure.get(plain["N"])
            plain["uncertainty"] = None if spread is None else spread.to_dict()
            record["uncertainty"] = "" if spread is None else uncertainty_in_words(spread)
        blocks += uncertainty_blocks(sure)
    return View(
        document,
        records,
        blocks,
        r2r=r2r_arguments(table) if len(table.models) == 2 else "",
        warnings=table.warnings,
    )


def _sweep_view(sweep: Sweep, every_row: bool, seed: int | None) -> View:
    document = sweep.to_dict(every_row) | {"seed": seed}
    rows = [((f"{plain['p']:g}",), plain) for plain in document["rows"]]
    blocks = [_title(sweep.tables[0]), *_grid(rows, ("p",)), _how(sweep.tables)]
    return View(document, sweep.to_records(every_row), blocks, warnings=document["warnings"])


def r2r_arguments(table: ThresholdTable) -> str:
    """Return the lists that an R2R server takes, one threshold for every n = 1..max N.

    (It fails on a list shorter than its concurrency, so a table that was stopped is continued
    with its last row.)
    """
    thresholds = [table.thresholds.at(n) for n in range(1, max(table.wanted) + 1)]
    return "".join(
        f"{option} {shown_vector([B[i] for B in thresholds])}\n"
        for i, option in enumerate(("--slm-min-batch-size", "--llm-min-batch-size"))
    )


def _title(table: ThresholdTable) -> str:
    name = table.origin["profile"]["name"]
    return f"{name}: thresholds B of {', '.join(table.models)}"


def _grid(
    rows: Sequence[tuple[tuple[str, ...], Mapping[str, Any]]], before: tuple[str, ...]
) -> list[Any]:
    """Return the grid, and under it the notes that its last column refers to by number."""
    notes: dict[str, int] = {}
    cells = []
    bounded = any("bound_tok_s" in row for _, row in rows)
    for first, row in rows:
        marks = [str(notes.setdefault(note, len(notes) + 1)) for note in row["notes"]]
        cells.append((*first, *_cells(row, bounded), " ".join(marks)))
    numbered = "\n".join(f"{number}. {note}" for note, number in notes.items())
    headings = (*HEADINGS, *(BOUND_HEADINGS if bounded else ()), *LAST_HEADINGS)
    grid = Grid((*before, *headings), cells, LEFT)
    return [grid, numbered] if notes else [grid]


def _cells(row: Mapping[str, Any], bounded: bool) -> tuple[str, ...]:
    """The cells of a row's plain values; one that was not searched has thresholds only."""
    chosen = (str(row["N"]), shown_vector(row["B"]))
    if row["throughput_tok_s"] is None:
        return (*chosen, *[""] * (5 + bounded))
    throughput = f"{row['throughput_tok_s']:.1f}"
    if row["throughput_low_tok_s"] is not None:
        half = 0.5 * (row["throughput_high_tok_s"] - row["throughput_low_tok_s"])
        throughput += f" ± {half:.1f}"
    second = row["runner_up"]
    loss = "" if second is None else f"{-second['loss_percent']:+.2f} %"
    return (
        *chosen,
        throughput,
        f"{row['request_speed_tok_s']:.1f}",
        f"{row['eager_tok_s']:.1f}",
        f"{row['gain_percent']:.1f}",
        *([_gap(row)] if bounded else []),
        "" if second is None else f"{shown_vector(second['B'])} ({loss})",
    )


def _gap(row: Mapping[str, Any]) -> str:
    gap = row["gap_percent"]
    # Thresholds that are the best rule can miss the bound by rounding to either side.
    return "" if gap is None else f"{abs(gap):.2f}"


def _how(tables: Sequence[ThresholdTable]) -> str:
    """Say how the figures were obtained and how far to trust them."""
    rows = [row for table in tables for row in table.rows]
    system = tables[0].origin["system"]
    return (
        "".join(f"{line};\n" for line in (*_exactly(rows), *_by_racing(rows)))
        + context_in_words(system["context_tokens"])
        + grid_in_words(system["grid_ms"], system["grid_error_percent"])
    )


def _exactly(rows: Sequence[Row]) -> list[str]:
    """Describe the chains behind the rows, if there are any."""
    chains = sum(
        row.evaluated + (row.read is None and row.choice.eager not in row.candidates)
        for row in rows
        if row.search == "exhaustive"
    )
    found = [c for row in rows for c in (*row.candidates, row.choice.eager)]
    states = [c.states for c in found if c.states is not None]
    residuals = [c.residual for c in found if c.residual is not None]
    if not states:
        return []
    return [
        f"exact: {chains:,} chains of up to {max(states):,} states, "
        f"largest residual {max(residuals):.0e}"
    ]


def _by_racing(rows: Sequence[Row]) -> list[str]:
    """Describe the races behind the rows, if there are any."""
    raced = [row for row in rows if row.search == "racing"]
    if not raced:
        return []
    exact = sum(row.choice.best.method == "exact" for row in raced)
    confirmed = f", {exact} confirmed exactly" if exact else ""
    interval = "; ± is a 95 % interval" if exact < len(raced) else ""
    vectors = sum(row.evaluated for row in raced)
    return [f"racing: {vectors:,} vectors simulated for {len(raced)} rows{confirmed}{interval}"]
