"""The vocabulary: what a token-level routing system is.

**System.** M models serve N requests in a closed loop: a finished request is replaced at once.
A *step* of model i runs one batch; when it completes, each of its requests commits tokens and is
routed to a model independently of the others.

- ``latency_ms[i, b - 1]``, L_i(b): duration of a step of model i with b requests.
- ``transition_probability[i, j]``, p_ij: after a step at i, the request goes to j (p_ii: stays).
- ``committed_tokens[i, j]``, c_ij: output tokens committed when that happens.
- ``entry``: the model where all N requests wait at the start.
- ``max_batch[i]``: the most requests one step of model i can take.
- ``grid_ms``: the time unit of the chain; a latency is rounded to a whole number of them.

A *threshold vector* B = (B_0, ..., B_{M-1}) says how many requests must wait at an idle model
before it starts; it is not part of the system but the thing to be chosen for it.

Source: arXiv:2610.12242, appendix D, whose notation (N, M, B, L, p, c) is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trmodel.errors import InputError, UsageError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DEFAULT_GRID_MS = 0.1
MAX_LATENCY_MS = 600_000.0
"""Ten minutes a step: anything longer is a unit mistake."""
MAX_CONCURRENCY = 65_536
ROW_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False, init=False)
class RoutedSystem:
    """A token-level routing system at concurrency N, validated once on construction.

    Parameters
    ----------
    models
        M distinct names.
    latency_ms
        For each model either one number (a step takes the same time whatever the batch) or the
        latencies of batch sizes 1, 2, ...; in milliseconds. Stored as an (M, N) array in which
        sizes above ``max_batch`` repeat the last usable one.
    transition_probability
        (M, M), rows summing to one.
    committed_tokens
        (M, M), non-negative.
    N
        Concurrent requests, at least 1.
    entry
        Index or name of the model at which all requests start.
    max_batch
        One number for all models, one per model, or None for no bound below N. Stored as a tuple
        of values in 1..N.
    grid_ms
        Time unit to which latencies are rounded.

    Raises
    ------
    InputError
        With every problem found, each naming the field.
    """

    models: tuple[str, ...]
    latency_ms: FloatArray
    transition_probability: FloatArray
    committed_tokens: FloatArray
    N: int
    entry: int = 0
    max_batch: tuple[int, ...] = ()
    grid_ms: float = DEFAULT_GRID_MS
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def __init__(
        self,
        models: Sequence[str],
        latency_ms: Sequence[float | ArrayLike],
        transition_probability: ArrayLike,
        committed_tokens: ArrayLike,
        N: int,
        *,
        entry: int | str = 0,
        max_batch: int | Sequence[int] | None = None,
        grid_ms: float = DEFAULT_GRID_MS,
        warnings: Sequence[str] = (),
    ) -> None:
        problems: list[str] = []
        names = tuple(models)
        M = len(names)
        if M == 0:
            raise InputError("models: at least one model is needed")
        if len(set(names)) < M:
            problems.append(f"models: names must be distinct, got {', '.join(names)}")
        if not _is_int(N) or not 1 <= N <= MAX_CONCURRENCY:
            raise InputError(f"N: must be a whole number from 1 to {MAX_CONCURRENCY}, got {N}")
        P = _square(transition_probability, M, "transition_probability", problems)
        C = _square(committed_tokens, M, "committed_tokens", problems)
        if P is not None:
            problems += probability_problems(P)
        if C is not None:
            problems += token_problems(C)
        sizes = _max_batches(max_batch, M, N, problems)
        if not (np.isfinite(grid_ms) and grid_ms > 0):
            problems.append(f"grid_ms: must be a positive number of milliseconds, got {grid_ms}")
        latency = _latencies(latency_ms, sizes, N, grid_ms, problems)
        entry_index = _entry_index(entry, names, problems)
        if problems or P is None or C is None or latency is None:
            raise InputError(problems)
        for array in (P, C, latency):
            array.setflags(write=False)
        values = {
            "models": names,
            "latency_ms": latency,
            "transition_probability": P,
            "committed_tokens": C,
            "N": int(N),
            "entry": entry_index,
            "max_batch": sizes,
            "grid_ms": float(grid_ms),
            "warnings": tuple(warnings),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def M(self) -> int:
        """Number of models."""
        return len(self.models)

    @cached_property
    def latency_units(self) -> IntArray:
        """Step latencies as whole multiples of ``grid_ms``, shape (M, N)."""
        return np.rint(self.latency_ms / self.grid_ms).astype(np.int64)

    @property
    def grid_error_percent(self) -> float:
        """Largest relative change, in percent, that rounding to the grid makes to a latency."""
        rounded = self.latency_units * self.grid_ms
        return float(np.max(np.abs(rounded / self.latency_ms - 1.0)) * 100.0)

    @cached_property
    def tokens_per_step(self) -> FloatArray:
        """Mean tokens that one request commits in a step of model i: sum_j c_ij p_ij; (M,)."""
        return np.asarray((self.committed_tokens * self.transition_probability).sum(axis=1))

    @cached_property
    def reached(self) -> tuple[int, ...]:
        """Models that a request can visit when it starts at the entry model."""
        seen = [self.entry]
        for i in seen:
            onward = np.flatnonzero(self.transition_probability[i])
            seen += [int(j) for j in onward if j not in seen]
        return tuple(sorted(seen))

    @property
    def unreached_names(self) -> list[str]:
        """Names of the models that routing never reaches from the entry."""
        return [name for i, name in enumerate(self.models) if i not in self.reached]

    def restricted(self) -> RoutedSystem:
        """Return the system without the models that routing never reaches, and say so."""
        keep = list(self.reached)
        if len(keep) == self.M:
            return self
        warning = (
            f"routing never reaches {', '.join(self.unreached_names)} from "
            f"{self.models[self.entry]}: left out, threshold 1"
        )
        return replace(
            self,
            models=tuple(self.models[i] for i in keep),
            latency_ms=self.latency_ms[keep],
            transition_probability=self.transition_probability[np.ix_(keep, keep)],
            committed_tokens=self.committed_tokens[np.ix_(keep, keep)],
            entry=keep.index(self.entry),
            max_batch=tuple(self.max_batch[i] for i in keep),
            warnings=(*self.warnings, warning),
        )

    def with_N(self, N: int) -> RoutedSystem:
        """Return the same system at a smaller concurrency.

        Raises
        ------
        UsageError
            If N is larger: the latencies and largest batches held here end at the present one.
        """
        if N > self.N:
            raise UsageError(f"N: must be at most the system's own, {self.N}, got {N}")
        return self if N == self.N else replace(self, N=N)

    def with_p(self, p: float) -> RoutedSystem:
        """Return a two-model system whose first model hands over with probability p.

        Raises
        ------
        UsageError
            If there are not two models or p is not in [0, 1].
        """
        if self.M != 2:
            raise UsageError(f"p: applies to systems of two models, this one has {self.M}")
        if not 0.0 <= p <= 1.0:
            raise UsageError(f"p: must be between 0 and 1, got {p}")
        P = np.vstack([[1.0 - p, p], self.transition_probability[1]])
        return replace(self, transition_probability=P)

    def check_thresholds(self, B: Sequence[int]) -> tuple[int, ...]:
        """Return B as a tuple of whole numbers, one per model, each at least 1.

        Raises
        ------
        UsageError
            If the length is not M or an entry is not a whole number of at least 1.
        """
        if len(B) != self.M:
            raise UsageError(
                f"B: {self.M} thresholds are needed ({', '.join(self.models)}), got {len(B)}"
            )
        for i, b in enumerate(B):
            if not _is_int(b) or b < 1:
                raise UsageError(f"B[{i}]: must be a whole number of at least 1, got {b}")
        return tuple(int(b) for b in B)


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
        f"committed_tokens[{i}][{j}]: must be a number of at least 0, got {C[i, j]:g}"
        for i, j in np.argwhere(~(np.isfinite(C) & (C >= 0.0)))
    ]


def latency_problem(value: float) -> str | None:
    """Say what is wrong with a step latency in milliseconds, if anything."""
    if np.isfinite(value) and 0.0 < value <= MAX_LATENCY_MS:
        return None
    return f"must be a latency above 0 and at most {MAX_LATENCY_MS:g} ms, got {value:g}"


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _square(values: ArrayLike, M: int, path: str, problems: list[str]) -> FloatArray | None:
    """Return values as an (M, M) array of its own, or note why it is not one."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        problems.append(f"{path}: must be {M} rows of {M} numbers")
        return None
    if array.shape != (M, M):
        shape = " x ".join(str(n) for n in array.shape)
        problems.append(f"{path}: must be {M} x {M} for {M} models, is {shape or 'one number'}")
        return None
    return array


def _max_batches(
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
        if not _is_int(value) or value < 1
    ]
    return (N,) * M if problems else tuple(min(int(value), N) for value in values)


def _latencies(
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
            elif grid_ms > 0 and value < grid_ms / 2:
                problems.append(
                    f"latency_ms[{i}][{b}]: {value:g} ms vanishes on a grid of {grid_ms:g} ms; "
                    "use a finer grid_ms"
                )
        result[i, :size] = row[:size]
        result[i, size:] = row[size - 1]
    return result if len(problems) == before else None


def _entry_index(entry: int | str, names: tuple[str, ...], problems: list[str]) -> int:
    if isinstance(entry, str):
        if entry in names:
            return names.index(entry)
        problems.append(f"entry: {entry} is not one of the models {', '.join(names)}")
    elif _is_int(entry) and 0 <= entry < len(names):
        return int(entry)
    else:
        problems.append(f"entry: must be a model's name or index below {len(names)}, got {entry}")
    return 0
