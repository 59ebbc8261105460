"""The one interpolation of latency tables.

A decode table lists latencies by batch and context, an extend table by batch and new tokens.
Between listed values latency is linear in each of the two. Beyond the largest listed batch there
is no answer: steps may grow faster than the table. Outside the listed contexts (or new tokens) the
line through the two nearest is continued, and said: every value comes with a status (measured,
interpolated, extrapolated) and every table with notes in words. Small dips with batch are smoothed
first (:mod:`trmodel.profile.smooth`).

All of this is linear in the rows of a table, so that a row of weights says what is asked: for a
context that grows evenly over a reply, the weights are integrals of the piecewise-linear hats and
the average is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trmodel.arrays import FloatArray, IntArray
from trmodel.errors import InputError
from trmodel.profile.smooth import row_label, smooth_row, smoothing_note
from trmodel.profile.tables import DecodeTable, ExtendTable

STATUSES = ("measured", "interpolated", "extrapolated")
"""From best to worst: a value is as good as the worst of what it was made from."""
MEASURED, INTERPOLATED, EXTRAPOLATED = range(3)


@dataclass(frozen=True, eq=False)
class StepLatency:
    """Latencies read from a table.

    Parameters
    ----------
    latency_ms
        Milliseconds, of the shape of the batch sizes asked for.
    quality
        Place of each value's status in `STATUSES`, of the same shape.
    notes
        What a reader should know: smoothed dips, extrapolation; one line each.
    """

    latency_ms: FloatArray
    quality: IntArray
    notes: tuple[str, ...]

    @property
    def status(self) -> NDArray[np.str_]:
        """Return "measured", "interpolated" or "extrapolated" for each latency."""
        return np.array(STATUSES)[self.quality]


def decode_latency(
    batches: Sequence[int],
    latency_ms: Sequence[float],
    sizes: ArrayLike,
    *,
    where: str = "decode.batch",
    model: str = "the model",
) -> FloatArray:
    """Return the duration of a decode step for given batch sizes, linear between listed ones.

    Nothing is extrapolated: beyond the last listed size a step may grow faster than the table.

    Parameters
    ----------
    batches, latency_ms
        The table: strictly increasing batch sizes and the latency of each, in milliseconds.
    sizes
        Batch sizes to evaluate, any shape.
    where, model
        The field and the model to name if the table does not reach.

    Returns
    -------
    Latencies in milliseconds, of the shape of ``sizes``.

    Raises
    ------
    InputError
        If a size lies outside the table.
    """
    wanted = np.asarray(sizes, dtype=np.float64)
    _check_reach(batches, wanted, wanted, None, where, model)
    return np.asarray(np.interp(wanted, batches, latency_ms))


def step_latency(
    table: DecodeTable,
    sizes: ArrayLike,
    context: tuple[float, float],
    *,
    where: str = "decode.batch",
    model: str = "the model",
) -> StepLatency:
    """Return the duration of decode steps at a context.

    Parameters
    ----------
    table
        Latencies by batch and context.
    sizes
        Batch sizes, whole numbers of any shape. With ``padded_batches`` a batch takes as long as
        the next of those.
    context
        (low, high) in tokens: the average over contexts spread evenly from low to high.
    where, model
        The field and the model to name in errors and notes.

    Raises
    ------
    InputError
        If a batch, padded, is larger than the largest listed.
    """
    asked = np.asarray(sizes, dtype=np.int64)
    run = asked if table.padded_batches is None else _padded(asked, table.padded_batches)
    _check_reach(table.batch, asked, run, table.padded_batches, where, model)
    return _read(table, run, table.contexts, context, "context", model)


def extend_latency(
    table: ExtendTable,
    sizes: ArrayLike,
    new_tokens: float,
    context: tuple[float, float],
    *,
    where: str = "extend.batch",
    model: str = "the model",
) -> StepLatency:
    """Return the duration of steps in which every request brings some new tokens.

    Parameters
    ----------
    table
        Latencies by batch and new tokens.
    sizes
        Batch sizes, whole numbers of any shape; not padded, as graphs are made for decode steps.
    new_tokens
        New tokens of each request; a mean, so that it need not be whole.
    context
        (low, high) in tokens. The table holds at one context; at another its latencies are used
        unchanged, and the notes say so.
    where, model
        The field and the model to name in errors and notes.

    Raises
    ------
    InputError
        If a batch is larger than the largest listed.
    """
    asked = np.asarray(sizes, dtype=np.int64)
    _check_reach(table.batch, asked, asked, None, where, model)
    ends = (new_tokens, new_tokens)
    steps = _read(table, asked, table.new_tokens, ends, "new tokens", model)
    listed = table.context_tokens
    if listed is None or context == (listed, listed):
        return steps
    note = f"{model}: {_outside('context', (listed,), *context)}"
    quality = np.full_like(steps.quality, EXTRAPOLATED)
    return StepLatency(steps.latency_ms, quality, (*steps.notes, note))


def row_weights(listed: Sequence[float], low: float, high: float) -> FloatArray:
    """Weights with which the rows of a table enter its average from low to high.

    Parameters
    ----------
    listed
        Strictly increasing places of the rows, at least one.
    low, high
        The range, low <= high; a point if equal. Outside the listed places the outermost pair of
        rows is continued in a line; a single row holds everywhere.

    Returns
    -------
    array
        One weight for each row, with sum 1; negative where a line is continued.
    """
    x = np.asarray(listed, dtype=np.float64)
    if len(x) == 1:
        return np.ones(1)
    # The interpolant bends only at listed places: between these nodes the trapezoid is exact.
    nodes = np.array([low, *x[(x > low) & (x < high)], high])
    left = np.clip(np.searchsorted(x, nodes, side="right") - 1, 0, len(x) - 2)
    t = (nodes - x[left]) / (x[left + 1] - x[left])
    at_nodes = np.zeros((len(nodes), len(x)))
    at_nodes[np.arange(len(nodes)), left] = 1.0 - t
    at_nodes[np.arange(len(nodes)), left + 1] = t
    if low == high:
        return np.asarray(at_nodes[0])
    lengths = np.diff(nodes) / (high - low)
    return np.asarray(lengths @ (at_nodes[1:] + at_nodes[:-1]) / 2.0)


def _read(
    table: DecodeTable | ExtendTable,
    sizes: IntArray,
    listed: Sequence[int],
    ends: tuple[float, float],
    axis: str,
    model: str,
) -> StepLatency:
    # A table of unknown context holds at any.
    known, (low, high) = (listed, ends) if listed else ((0,), (0, 0))
    weights = row_weights(known, low, high)
    batch = np.asarray(table.batch)
    left = np.searchsorted(batch, sizes, side="right") - 1
    right = left + (batch[left] != sizes)

    latency = np.zeros(sizes.shape)
    quality = np.where(left == right, MEASURED, INTERPOLATED)
    largest = sizes.max(initial=1)
    dips = []
    for r in np.flatnonzero(weights).tolist():
        row, found = smooth_row(table.batch, table.rows[r], row_label(table, r))
        dips += [dip for dip in found if dip.first <= largest]
        latency += weights[r] * np.interp(sizes, batch, row)
        listed_quality = np.array([STATUSES.index(status) for status in table.status_rows[r]])
        quality = np.maximum(quality, np.maximum(listed_quality[left], listed_quality[right]))
    notes = [smoothing_note(model, dips)]
    if np.any(guessed := quality == EXTRAPOLATED):
        first, last = sizes[guessed].min(), sizes[guessed].max()
        notes.append(
            f"{model}: latencies of batches {first} to {last} rest on entries that the table "
            "marks as extrapolated"
        )
    if known[0] <= low and high <= known[-1]:
        listed_context = low == high and low in known
        quality = np.maximum(quality, MEASURED if listed_context else INTERPOLATED)
    else:
        quality = np.full_like(quality, EXTRAPOLATED)
        notes.append(f"{model}: {_outside(axis, known, low, high)}")
    if np.any(latency < 0):
        notes.append(f"{model}: latency extrapolated below 0 ms is taken as 0")
    return StepLatency(
        latency_ms=np.asarray(np.maximum(latency, 0.0)),
        quality=quality,
        notes=tuple(note for note in notes if note is not None),
    )


def _outside(axis: str, known: Sequence[float], low: float, high: float) -> str:
    asked = f"{low:.4g}" if low != int(low) else f"{low:.0f}"
    asked = asked if low == high else f"{asked} to {high:.0f}"
    if len(known) == 1:
        return f"{axis} {asked}: the latencies listed for {known[0]} are used unchanged"
    return (
        f"{axis} {asked} is outside the listed {known[0]} to {known[-1]}: latency is "
        "extrapolated linearly"
    )


def _padded(sizes: IntArray, padded: Sequence[int]) -> IntArray:
    """Return the next padded size of each batch; above the last one, its own size."""
    place = np.searchsorted(padded, sizes, side="left")
    return np.where(place < len(padded), np.append(padded, 0)[place], sizes)


def _check_reach(
    batches: Sequence[int],
    asked: NDArray[Any],
    run: NDArray[Any],
    padded: Sequence[int] | None,
    where: str,
    model: str,
) -> None:
    """Refuse batches outside the table; ``run`` are the sizes that ``asked`` are padded to."""
    if not run.size:
        return
    if run.max() > batches[-1]:
        fits = batches[-1]
        formed = f"batches of {asked.max():g}"
        if padded is not None:
            within = [size for size in padded if size <= fits]
            fits = fits if fits > padded[-1] else within[-1] if within else 0
            if run.max() != asked.max():
                formed += f", which run padded to {run.max():g},"
        bound = f", or bound them with max_batch (--max-batch {fits})" if fits else ""
        raise InputError(
            f"{where}: {model} has latencies for batches up to {batches[-1]}, but {formed} can "
            f"form; add larger batches, lower N{bound}"
        )
    if asked.min() < batches[0]:
        raise InputError(
            f"{where}: {model} has no latency for a batch of {asked.min():g}, the smallest is "
            f"{batches[0]}"
        )
