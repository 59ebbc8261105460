"""Latency tables of the models' engines, each timed directly in a process of its own.

While one is timed the others wait, so that a table holds what a step takes by itself; then pairs
run together, which gives their slow-downs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from trmodel.arrays import FloatArray
from trmodel.errors import UsageError
from trmodel.runtime.bench.engine_process import EngineProcess
from trmodel.runtime.bench.engine_times import GROWTH, Times
from trmodel.runtime.bench.point import STALL

NEW_TOKENS = (2, 4, 8, 32)
SHORTEST_CONTEXT = 64
PASSES = 3
"""Over all entries of a table, so that what disturbs some seconds disturbs one of three times."""
PAIR_TRIES = 5
Cell = tuple[int, int, int]
"""Batch, context and new tokens of the steps of one entry."""
Factors = dict[tuple[int, int], list[float]]
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
    grown
        Those of them that are timed at the context above as well, in the middle batch.
    """

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    new_tokens: tuple[int, ...]
    grown: tuple[int, ...] = ()

    @property
    def middle(self) -> int:
        """The middle context."""
        return self.contexts[self._at]

    @property
    def above(self) -> int:
        """The context above the middle, if there is one; else the middle."""
        return self.contexts[min(self._at + 1, len(self.contexts) - 1)]

    @property
    def _at(self) -> int:
        return (len(self.contexts) - 1) // 2

    @property
    def middle_batch(self) -> int:
        """The middle batch size."""
        return self.batches[len(self.batches) // 2]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """What is timed of one model."""
        return (
            *((b, c, 1) for c in self.contexts for b in self.batches),
            *((b, self.middle, k) for k in self.new_tokens for b in self.batches),
            *((self.middle_batch, self.above, k) for k in self.grown),
        )


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
    growth
        For each of the grid's ``grown``: how many times as much as a decode such an extend grows
        with the context; none if decodes do not do so visibly.
    """

    grid: Grid
    decode: dict[tuple[int, int], Timing]
    extend: dict[tuple[int, int], Timing]
    growth: tuple[float, ...]

    @classmethod
    def of(cls, grid: Grid, passes: Mapping[Cell, Sequence[Times]]) -> Tables:
        """Summarise the passes over all entries."""
        timings = {cell: Timing.of(passes[cell]) for cell in grid.cells}
        return cls(
            grid,
            {(c, b): timing for (b, c, k), timing in timings.items() if k == 1},
            {(k, b): t for (b, c, k), t in timings.items() if k > 1 and c == grid.middle},
            _growth(grid, passes),
        )


def _growth(grid: Grid, passes: Mapping[Cell, Sequence[Times]]) -> tuple[float, ...]:
    """Compare within each pass, as machines drift, and take medians over them."""

    def longer(new: int) -> FloatArray:
        above, middle = (
            [Timing.of([times]).mean_ms for times in passes[grid.middle_batch, context, new]]
            for context in (grid.above, grid.middle)
        )
        return np.subtract(above, middle)

    if not grid.grown:
        return ()
    decode = longer(1)
    usual = float(np.median(decode))
    if usual <= 2.0 * decode.std(ddof=1) / len(decode) ** 0.5:
        return ()
    ratios = [float(np.median(longer(k))) / usual for k in grid.grown]
    # At most, every new token reads the context by itself.
    return tuple(min(max(ratio, 0.0), k) for ratio, k in zip(ratios, grid.grown, strict=True))


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
    new = NEW_TOKENS if new_tokens is None else tuple(sorted(set(new_tokens) - {1}))
    if contexts is None:
        most = max((k for k in new if 4 * k <= room), default=0)
        contexts = contexts_up_to(room - max(2 * most, 1))
    grid = Grid(tuple(batches), tuple(sorted(set(contexts))), new)
    if new_tokens is None:
        new = tuple(k for k in new if grid.middle + 2 * k <= room)
    grown = tuple(k for k in new if grid.middle < grid.above <= room - 2 * k)
    grid = replace(grid, new_tokens=new, grown=grown)
    needed = max(grid.contexts[-1] + 1, grid.middle + 2 * max(new, default=0)) + GROWTH
    if needed > longest:
        raise UsageError(
            f"contexts, new_tokens: {needed} tokens are needed for each of {max(batches)} "
            f"requests, there is room for {longest}; shorten them, or lower the largest batch"
        )
    return grid


def time_tables(
    engine: EngineProcess,
    grid: Grid,
    seconds: float,
    done: Callable[[], None],
    into: dict[Cell, list[Times]],
) -> None:
    """Time every entry of one model's tables, in `PASSES` over them.

    Parameters
    ----------
    seconds
        For each entry, all passes together; more where steps take long.
    done
        Called after each entry of each pass.
    into
        To which the passes are added.
    """
    for _ in range(PASSES):
        for cell in grid.cells:
            into.setdefault(cell, []).append(engine.time(*cell, seconds / PASSES))
            done()


def time_slow_downs(
    engines: Sequence[EngineProcess],
    grid: Grid,
    seconds: float,
    done: Callable[[], None],
    into: Factors,
) -> None:
    """Find how much longer steps of each model are while another runs.

    Decode steps at the middle batch and context: alone and beside the other in turns, so that a
    machine that drifts does not matter. ``into`` is what the tries are added to.
    """
    batch = grid.middle_batch
    for i, j in permutations(range(len(engines)), 2):
        for _ in range(PAIR_TRIES):
            alone = Timing.of([engines[i].time(batch, grid.middle, 1, seconds)])
            with engines[j].running(batch, grid.middle):
                beside = Timing.of([engines[i].time(batch, grid.middle, 1, seconds)])
            into.setdefault((i, j), []).append(beside.mean_ms / alone.mean_ms)
        done()
