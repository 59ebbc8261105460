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
BOUND_HEADINGS = ("bound", "gap %")
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
    rows = list(table.rows) if every_row else table.wanted_rows
    document = table.to_dict(every_row) | {"seed": seed}
    records = table.to_records(every_row)
    blocks = [_title(table), *_grid([((), row) for row in rows], ()), _how([table])]
    if explained is not None:
        for row, plain, record in zip(rows, document["rows"], records, strict=True):
            found = explained.get(row.N)
            plain["explanation"] = None if found is None else found.to_dict()
            record["explanation"] = "" if found is None else "; ".join(found.lines)
        blocks += ["\n  ".join(found.lines) for found in explained.values()]
    if sure is not None:
        from trmodel.cli.uncertainty import uncertainty_blocks, uncertainty_in_words

        for row, plain, record in zip(rows, document["rows"], records, strict=True):
            spread = sure.get(row.N)
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
    rows = [
        ((f"{p:g}",), row) for p, table in sweep for row in (table.rows if every_row else table)
    ]
    blocks = [_title(sweep.tables[0]), *_grid(rows, ("p",)), _how(sweep.tables)]
    document = sweep.to_dict(every_row) | {"seed": seed}
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


def _grid(rows: Sequence[tuple[tuple[str, ...], Row]], before: tuple[str, ...]) -> list[Any]:
    """Return the grid, and under it the notes that its last column refers to by number."""
    notes: dict[str, int] = {}
    cells = []
    for first, row in rows:
        marks = [str(notes.setdefault(note, len(notes) + 1)) for note in row.notes]
        cells.append((*first, *_cells(row), _runner_up(row), " ".join(marks)))
    numbered = "\n".join(f"{number}. {note}" for note, number in notes.items())
    bounded = BOUND_HEADINGS if any(row.bound for _, row in rows) else ()
    grid = Grid((*before, *HEADINGS, *bounded, *LAST_HEADINGS), cells, LEFT)
    return [grid, numbered] if notes else [grid]


def _cells(row: Row) -> tuple[str, ...]:
    figures = (
        str(row.N),
        shown_vector(row.B),
        f"{row.throughput_tok_s:.1f}",
        f"{row.throughput_tok_s / row.N:.1f}",
        f"{row.choice.eager.throughput_tok_s:.1f}",
        f"{row.gain_percent:.1f}",
    )
    if row.bound is None:
        return figures
    bound, gap = row.bound.bound_tok_s, row.bound.gap_percent
    if bound is None or gap is None:
        return (*figures, "", "")
    # Thresholds that are the best rule can miss the bound by rounding to either side.
    return (*figures, f"{bound:.1f}", f"{abs(gap):.2f}")


def _runner_up(row: Row) -> str:
    second = row.choice.runner_up
    return "" if second is None else f"{shown_vector(second.B)} ({-second.loss_percent:+.2f} %)"


def _how(tables: Sequence[ThresholdTable]) -> str:
    """Say how the figures were obtained and how far to trust the arithmetic."""
    chains = [
        chain
        for table in tables
        for row in table.rows
        for chain in {c.B: c for c in (*row.candidates, row.choice.eager)}.values()
    ]
    system = tables[0].origin["system"]
    return (
        f"exact: {len(chains):,} chains of up to {max(c.states for c in chains):,} states, "
        f"largest residual {max(c.residual for c in chains):.0e};\n"
        + context_in_words(system["context_tokens"])
        + grid_in_words(system["grid_ms"], system["grid_error_percent"])
    )
