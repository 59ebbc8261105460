"""Checks of a routed system's fields: each lists what is wrong, with the path to the field.

Fields that are sound come back as arrays of their own; for those that are not, the problems are
appended to a list, so that every error of a system is told at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trmodel.arrays import FloatArray

MAX_LATENCY_MS = 600_000.0
"""Ten minutes a step: anything longer is a unit mistake."""
MAX_SLOW_DOWN = 100.0
MAX_TOKENS = 1e6
"""Output tokens that one step of one request can commit."""
ROW_SUM_TOLERANCE = 1e-9
SlowDowns = Mapping[tuple[int, int], tuple[float, float]]


def slow_down_table(M: int, pairs: SlowDowns) -> FloatArray:
    """Tabulate s_i(S) for every set S of running models from the slow-downs of pairs.

    In larger sets the factors of the pairs multiply, an assumption: only pairs are measured.

    Parameters
    ----------
    M
        Number of models.
    pairs
        (i, j): (s_i, s_j) while both run.

    Returns
    -------
    array
        (2^M, M), indexed by the bit mask of S and the model.
    """
    table = np.ones((1 << M, M))
    masks = np.arange(1 << M)
    for (i, j), factors in pairs.items():
        both = (masks >> i & 1).astype(bool) & (masks >> j & 1).astype(bool)
        table[both, i] *= factors[0]
        table[both, j] *= factors[1]
    return table


def probability_problems(P: FloatArray) -> list[str]:
    """List what keeps P from being a transition matrix, each with the path to the entry."""
    problems = []
    for i, row in enumerate(P):
        bad = [j for j, p in enumerate(row) if not 0.0 <= p <= 1.0]
        problems += [
            f"transition_probability[{i}][{j}]: must be between 0 and 1, got {row[j]:g}"
            for j in bad
        ]
        if not bad and abs(row.sum() - 1.0) > ROW_SUM_TOLERANCE:
            problems.append(f"transition_probability[{i}]: must sum to 1, sums to {row.sum():.12g}")
    return problems


def token_problems(C: FloatArray) -> list[str]:
    """List the committed tokens that are negative or not finite, each with its path."""
    return [
        f"committed_tokens[{i}][{j}]: must be from 0 to {MAX_TOKENS:g}, got {C[i, j]:g}"
        for i, j in np.argwhere(~((C >= 0.0) & (C <= MAX_TOKENS)))
    ]


def latency_problem(value: float) -> str | None:
    """Say what is wrong with a step latency in milliseconds, if anything."""
    if np.isfinite(value) and 0.0 < value <= MAX_LATENCY_MS:
        return None
    return f"must be a latency above 0 and at most {MAX_LATENCY_MS:g} ms, got {value:g}"


def is_positive(value: Any) -> bool:
    """Say whether a value is a finite number above 0."""
    return is_number(value) and bool(np.isfinite(value) and value > 0)


def is_number(value: Any) -> bool:
    """Say whether a value is a real number, of Python or numpy."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_int(value: Any) -> bool:
    """Say whether a value is a whole number by its type, of Python or numpy."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def square_matrix(
    values: ArrayLike, M: int, path: str, problems: list[str], what: str = "models"
) -> FloatArray | None:
    """Return values as an (M, M) array of its own, or note why it is not one."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        problems.append(f"{path}: must be {M} rows of {M} numbers")
        return None
    if array.shape != (M, M):
        shape = " x ".join(str(n) for n in array.shape)
        problems.append(f"{path}: must be {M} x {M} for {M} {what}, is {shape or 'one number'}")
        return None
    return array


def max_batches(
    max_batch: int | Sequence[int] | None, M: int, N: int, problems: list[str]
) -> tuple[int, ...]:
    if max_batch is None:
        return (N,) * M
    values = [max_batch] * M if isinstance(max_batch, (int, np.integer)) else list(max_batch)
    if len(values) != M:
        problems.append(f"max_batch: one number or {M} are needed, got {len(values)}")
    problems += [
        f"max_batch[{i}]: must be a whole number of at least 1, got {value}"
        for i, value in enumerate(values)
        if not is_int(value) or value < 1
    ]
    return (N,) * M if problems else tuple(min(int(value), N) for value in values)


def latencies(
    latency_ms: Sequence[float | ArrayLike],
    sizes: tuple[int, ...],
    N: int,
    grid_ms: float,
    problems: list[str],
) -> FloatArray | None:
    """Return the (M, N) latency array, or note what is missing or wrong."""
    if len(latency_ms) != len(sizes):
        problems.append(
            f"latency_ms: one entry for each of {len(sizes)} models is needed, "
            f"got {len(latency_ms)}"
        )
        return None
    result = np.empty((len(sizes), N))
    before = len(problems)
    for i, (values, size) in enumerate(zip(latency_ms, sizes, strict=True)):
        row = np.asarray(values, dtype=np.float64)
        if row.ndim == 0:
            row = np.full(size, float(row))
        if len(row) < size:
            problems.append(
                f"latency_ms[{i}]: batches up to {size} can form, latencies end at {len(row)}; "
                "add the missing batch sizes or set max_batch"
            )
            continue
        for b, value in enumerate(row[:size]):
            if problem := latency_problem(value):
                problems.append(f"latency_ms[{i}][{b}]: {problem}")
            elif is_positive(grid_ms) and np.rint(value / grid_ms) < 1:
                problems.append(
                    f"latency_ms[{i}][{b}]: {value:g} ms vanishes on a grid of {grid_ms:g} ms; "
                    "use a finer grid_ms"
                )
        result[i, :size] = row[:size]
        result[i, size:] = row[size - 1]
    return result if len(problems) == before else None


def slow_downs(
    slow_down: SlowDowns | ArrayLike | None,
    M: int,
    problems: list[str],
) -> FloatArray:
    """Return the (2^M, M) table of slow-downs, or note what is wrong with them."""
    if slow_down is None:
        return np.ones((1 << M, M))
    if isinstance(slow_down, Mapping):
        for pair in slow_down:
            if not (0 <= pair[0] < M and 0 <= pair[1] < M and pair[0] != pair[1]):
                problems.append(f"slow_down[{pair}]: must be two different models below {M}")
                return np.ones((1 << M, M))
        slow_down = slow_down_table(M, slow_down)
    table = np.array(slow_down, dtype=np.float64)
    if table.shape != (1 << M, M):
        problems.append(f"slow_down: must be {1 << M} x {M} for {M} models")
    elif not np.all((table >= 1.0) & (table <= MAX_SLOW_DOWN)):
        problems.append(f"slow_down: factors must be between 1 and {MAX_SLOW_DOWN:g}")
    return table


def delays(handoff_ms: ArrayLike | None, M: int, problems: list[str]) -> FloatArray:
    """Return the (M, M) table of handoff delays, or note what is wrong with it."""
    if handoff_ms is None:
        return np.zeros((M, M))
    table = square_matrix(handoff_ms, M, "handoff_ms", problems)
    if table is None:
        return np.zeros((M, M))
    if not np.all((table >= 0.0) & (table <= MAX_LATENCY_MS)):
        problems.append(f"handoff_ms: delays must be from 0 to {MAX_LATENCY_MS:g} ms")
    elif np.any(np.diag(table)):
        problems.append("handoff_ms: a request that stays at its model is not handed over")
    return table


def wakes(wake_ms: ArrayLike | None, M: int, problems: list[str]) -> FloatArray:
    """Return the (M,) times that waking takes, or note what is wrong with them."""
    if wake_ms is None:
        return np.zeros(M)
    try:
        values = np.array(wake_ms, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (M,):
        problems.append(f"wake_ms: must be {M} numbers, one for each model")
        return np.zeros(M)
    problems += [
        f"wake_ms[{i}]: must be from 0 to {MAX_LATENCY_MS:g} ms, got {value:g}"
        for i, value in enumerate(values)
        if not 0.0 <= value <= MAX_LATENCY_MS
    ]
    return values


def entry_index(
    entry: int | str, names: Sequence[str], problems: list[str], path: str = "entry"
) -> int:
    if isinstance(entry, str):
        if entry in names:
            return list(names).index(entry)
        problems.append(f"{path}: {entry} is not one of {', '.join(names)}")
    elif is_int(entry) and 0 <= entry < len(names):
        return int(entry)
    else:
        problems.append(f"{path}: must be a name or an index below {len(names)}, got {entry}")
    return 0
