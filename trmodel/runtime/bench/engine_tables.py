"""Latency tables of the models' engines, each timed directly in a process of its own.

While one is timed the others wait, so that a table holds what a step takes by itself; then pairs
run together, which gives their slow-downs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from trmodel.errors import UsageError
from trmodel.runtime.bench.engine_process import EngineProcess
from trmodel.runtime.bench.engine_times import GROWTH, Times
from trmodel.runtime.bench.point import STALL

NEW_TOKENS = (2, 4, 8, 32)
SHORTEST_CONTEXT = 64
PASSES = 3
"""Over all entries of a table, so that what disturbs some seconds disturbs one of three times."""
PAIR_TRIES = 5
Factors = Mapping[tuple[int, int], Sequence[float]]
"""By models (i, j): how many times as long steps of i took while j ran, once for each try."""


@dataclass(frozen=True)
class Grid:
    """What is timed.

    Attributes
    ----------
    batches, contexts
        Of decode steps: every batch at every context.
    new_tokens
        Of extends, from 2 on, in every batch at the middle context. A step that reads one token is
        a decode.
    """

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    new_tokens: tuple[int, ...]

    @property
    def middle(self) -> int:
        """The middle context."""
        return self.contexts[(len(self.contexts) - 1) // 2]

    @property
    def middle_batch(self) -> int:
        """The middle batch size."""
        return self.batches[len(self.batches) // 2]

    @property
    def cells(self) -> int:
        """Entries of all tables of one model."""
        return len(self.batches) * (len(self.contexts) + len(self.new_tokens))


@dataclass(frozen=True)
class Timing:
    """Steps of one kind, in milliseconds.

    Attributes
    ----------
    count, left_out
        Steps that count, and those of over twice the median, which the machine held up.
    mean_ms
        Median over the passes of their means.
    median_ms, deviation_ms
        Of all steps that count.
    device_ms
        Mean between events on the GPU; None without one.
    """

    count: int
    left_out: int
    mean_ms: float
    median_ms: float
    deviation_ms: float
    route_ms: float
    device_ms: float | None

    @classmethod
    def of(cls, passes: Sequence[Times]) -> Timing:
        """Summarise the steps of some passes."""
        steps = [np.asarray(times.step_ms) for times in passes]
        kept = [each <= STALL * np.median(each) for each in steps]
        good = [each[those] for each, those in zip(steps, kept, strict=True)]
        pooled = np.concatenate(good)
        on_device = [
            np.asarray(times.device_ms)[those].mean()
            for times, those in zip(passes, kept, strict=True)
            if times.device_ms
        ]
        return cls(
            count=len(pooled),
            left_out=sum(map(len, steps)) - len(pooled),
            mean_ms=float(np.median([each.mean() for each in good])),
            median_ms=float(np.median(pooled)),
            deviation_ms=float(pooled.std()),
            route_ms=float(np.median(np.concatenate([times.route_ms for times in passes]))),
            device_ms=float(np.median(on_device)) if on_device else None,
        )


@dataclass(frozen=True)
class Tables:
    """What one model's engine takes.

    Attributes
    ----------
    decode
        By context and batch.
    extend
        By new tokens and batch, at the grid's middle context.
    """

    grid: Grid
    decode: dict[tuple[int, int], Timing]
    extend: dict[tuple[int, int], Timing]


def contexts_up_to(most: int) -> tuple[int, ...]:
    """Return the largest context and powers of two below, no more than a factor of 4 apart.

    Raises
    ------
    UsageError
        If there is no room for any.
    """
    if most < 1:
        raise UsageError("max_context: has no room for a context to time")
    found, below = [most], 1 << (max(most // 2, 1).bit_length() - 1)
    while below >= SHORTEST_CONTEXT:
        found.append(below)
        below //= 4
    return tuple(reversed(found))


def batches_up_to(largest: int) -> tuple[int, ...]:
    """Return 1, 2, 3, 4, 6, 8, 12, 16, ... and the largest itself."""
    powers = [1 << k for k in range(largest.bit_length())]
    between = [3 * power // 2 for power in powers[1:]]
    return tuple(size for size in sorted({*powers, *between, largest}) if size <= largest)


def choose_grid(
    batches: Sequence[int],
    longest: int,
    contexts: Sequence[int] | None = None,
    new_tokens: Sequence[int] | None = None,
) -> Grid:
    """Return what to time.

    Parameters
    ----------
    batches
        Sizes.
    longest
        Tokens that a request may hold, with the largest batch.
    contexts, new_tokens
        In place of those chosen: contexts as far as there is room, `NEW_TOKENS`.

    Raises
    ------
    UsageError
        If a request would have to hold more.
    """
    room = longest - GROWTH
    chosen = contexts_up_to(room - 2 * NEW_TOKENS[0]) if contexts is None else sorted(set(contexts))
    grid = Grid(tuple(batches), tuple(chosen), ())
    fitting = [k for k in NEW_TOKENS if grid.middle + 2 * k <= room]
    new = fitting if new_tokens is None else new_tokens
    grid = replace(grid, new_tokens=tuple(sorted(set(new) - {1})))
    needed = max(chosen[-1] + 1, grid.middle + 2 * max(grid.new_tokens, default=0)) + GROWTH
    if needed > longest:
        raise UsageError(
            f"contexts, new_tokens: {needed} tokens are needed for each of {max(batches)} "
            f"requests, there is room for {longest}; shorten them, or lower the largest batch"
        )
    return grid


def time_tables(
    engine: EngineProcess, grid: Grid, seconds: float, done: Callable[[], None]
) -> Tables:
    """Time every entry of one model's tables, in `PASSES` over them.

    Parameters
    ----------
    seconds
        For each entry, all passes together; more where steps take long.
    done
        Called after each entry of each pass.
    """
    cells = [(b, c, 1) for c in grid.contexts for b in grid.batches]
    cells += [(b, grid.middle, k) for k in grid.new_tokens for b in grid.batches]
    found: dict[tuple[int, int, int], list[Times]] = {cell: [] for cell in cells}
    for _ in range(PASSES):
        for cell in cells:
            found[cell].append(engine.time(*cell, seconds / PASSES))
            done()
    timings = {cell: Timing.of(passes) for cell, passes in found.items()}
    return Tables(
        grid,
        {(c, b): timing for (b, c, k), timing in timings.items() if k == 1},
        {(k, b): timing for (b, _, k), timing in timings.items() if k > 1},
    )


def slow_downs(
    engines: Sequence[EngineProcess], grid: Grid, seconds: float, done: Callable[[], None]
) -> Factors:
    """Return how much longer steps of each model are while another runs.

    Decode steps at the middle batch and context: alone and beside the other in turns, so that a
    machine that drifts does not matter.
    """
    batch = grid.middle_batch
    found: dict[tuple[int, int], list[float]] = {}
    for i, j in permutations(range(len(engines)), 2):
        for _ in range(PAIR_TRIES):
            alone = Timing.of([engines[i].time(batch, grid.middle, 1, seconds)])
            with engines[j].running(batch, grid.middle):
                beside = Timing.of([engines[i].time(batch, grid.middle, 1, seconds)])
            found.setdefault((i, j), []).append(beside.mean_ms / alone.mean_ms)
        done()
    return found
