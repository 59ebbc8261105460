"""Dips: a larger batch that seems to take less time than a smaller one.

More work does not take less time, so a small dip is noise of the measurement. Isotonic regression
(the non-decreasing values closest to the measured ones in least squares, all weighted equally)
pools neighbouring values that are out of order into blocks of their mean. A block whose dip is
under 5 % is smoothed in this way. In a block with a larger dip the listed values stay as they are:
something else is going on there (another kernel, a mistake), and whoever reads the profile should
know. Block means increase, so one kind of block does not disturb the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from trmodel.arrays import FloatArray
from trmodel.profile.schema import ModelProfile
from trmodel.profile.tables import DecodeTable, ExtendTable

LARGE_DIP = 0.05
"""Relative drop from which a dip is no longer taken for measurement noise."""
VISIBLE_DIP = 0.0005
"""A dip that would be printed as 0.0 % is smoothed without a word."""
DECIMALS = 6
"""Of milliseconds, in what smoothing writes: means of timings have no more."""

AnyTable = TypeVar("AnyTable", DecodeTable, ExtendTable)


@dataclass(frozen=True)
class Dip:
    """A block of batch sizes whose latencies are out of order.

    Parameters
    ----------
    first, last
        Smallest and largest batch size of the block.
    batch
        Where the latency is furthest below that of a smaller batch of the block.
    drop
        By what fraction of it.
    where
        Which row of the table, as words to append; empty if it has one.
    """

    first: int
    last: int
    batch: int
    drop: float
    where: str = ""

    @property
    def large(self) -> bool:
        """Whether the dip is too large for noise, so that the values are kept."""
        return self.drop >= LARGE_DIP

    def __str__(self) -> str:
        return f"dip of {100 * self.drop:.1f} % at batch {self.batch}{self.where}"


def smooth_row(
    batch: Sequence[int], latency_ms: ArrayLike, where: str = ""
) -> tuple[FloatArray, list[Dip]]:
    """Smooth the small dips of latencies by batch, and list all dips.

    Parameters
    ----------
    batch, latency_ms
        Increasing batch sizes and the latency of each.
    where
        Words that say which row of a table this is.

    Returns
    -------
    tuple
        Latencies, non-decreasing where there is no large dip, and the dips by batch.
    """
    row = np.array(latency_ms, dtype=np.float64)
    if np.all(np.diff(row) >= 0):
        return row, []
    from scipy.optimize import isotonic_regression  # late: profiles without dips load no scipy

    regression = isotonic_regression(row)
    dips = []
    for a, b in zip(regression.blocks[:-1], regression.blocks[1:], strict=True):
        drops = 1.0 - row[a:b] / np.maximum.accumulate(row[a:b])
        worst = int(drops.argmax())
        if drops[worst] <= 0:
            continue
        dip = Dip(batch[a], batch[b - 1], batch[a + worst], float(drops[worst]), where)
        dips.append(dip)
        if not dip.large:
            row[a:b] = regression.x[a:b]
    return row, dips


def row_label(table: DecodeTable | ExtendTable, row: int) -> str:
    """Say which row of a table is meant, in words to append; nothing if it has only one."""
    if isinstance(table, ExtendTable):
        return f" at new_tokens {table.new_tokens[row]}"
    return f" at context {table.contexts[row]}" if len(table.rows) > 1 else ""


def table_dips(table: DecodeTable | ExtendTable) -> list[Dip]:
    """List the dips of a table, row by row."""
    return [
        dip
        for r, row in enumerate(table.rows)
        for dip in smooth_row(table.batch, row, row_label(table, r))[1]
    ]


def smoothing_note(model: str, dips: Sequence[Dip]) -> str | None:
    """Say in one line which dips of a model's table were smoothed; None if none worth a word."""
    small = [dip for dip in dips if not dip.large and dip.drop >= VISIBLE_DIP]
    if not small:
        return None
    largest = max(small, key=lambda dip: dip.drop)
    if len(small) == 1:
        return f"{model}: {largest} smoothed"
    return f"{model}: {len(small)} dips with batch smoothed, the largest a {largest}"


def smoothed(table: AnyTable, model: str) -> AnyTable:
    """Return a table with its small dips smoothed, and its provenance saying so.

    Used when a profile is loaded, and by tools that write profiles: the file then states what was
    done, and reading it needs no warning. Large dips stay.

    Parameters
    ----------
    table
        A decode or extend table.
    model
        Name of the model in the note.
    """
    dips = table_dips(table)
    note = smoothing_note(model, dips)
    if note is None:
        return table
    rows = tuple(
        tuple(np.round(smooth_row(table.batch, row)[0], DECIMALS).tolist()) for row in table.rows
    )
    single = isinstance(table, DecodeTable) and not isinstance(table.context_tokens, tuple)
    before = table.provenance.note
    told = f"{note} (isotonic regression)."
    provenance = table.provenance.model_copy(
        update={"note": told if before is None else f"{before} {told}"}
    )
    return table.model_copy(
        update={"latency_ms": rows[0] if single else rows, "provenance": provenance}
    )


def smoothed_model(model: ModelProfile) -> tuple[ModelProfile, tuple[str, ...]]:
    """Return a model with its tables smoothed, and lines that say what was; none if nothing."""
    tables: dict[str, Any] = {}
    notes = []
    listed: list[tuple[str, Any, str]] = [
        ("decode", model.decode, model.name),
        ("extend", model.extend, f"{model.name}, extend"),
    ]
    for field, table, name in listed:
        if table is not None and (note := smoothing_note(name, table_dips(table))):
            tables[field] = smoothed(table, name)
            notes.append(note)
    return (model.model_copy(update=tables) if notes else model), tuple(notes)
