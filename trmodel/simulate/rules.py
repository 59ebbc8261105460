"""What is simulated: a routed system, the rule by which batches start, and what arrives.

Everything the compiled event loop needs to know and does not change, as arrays. Times are in
*units*: milliseconds, or the system's grid where the chain's rounding is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from trmodel.arrays import FloatArray, IntArray
from trmodel.errors import UsageError
from trmodel.launch import require_live
from trmodel.launch_table import LaunchTable
from trmodel.system import RoutedSystem
from trmodel.system_checks import is_int, is_number, is_positive


class Strategy(IntEnum):
    """How the models take turns.

    ``delayed`` batching starts an idle model when its threshold is met (B = 1: eager, async).
    ``step_sync`` puts a barrier at each logical step: all that wait at the entry model take one
    step, then all that were routed away take one together, then the next round. ``model_sync``
    runs one model at a time until no request is left on it, then the next that has work.
    """

    delayed = 0
    step_sync = 1
    model_sync = 2


@dataclass(frozen=True)
class Options:
    """What is simulated beside the system; the defaults are the chain's own assumptions.

    Attributes
    ----------
    strategy
        See `Strategy`.
    on_grid
        Round latencies to the system's grid, and under contention the work left after every
        event, as the exact chain does.
    hold_ms
        An idle model starts whatever waits once the oldest has waited this long, though the
        threshold is not met.
    arrivals_per_s
        Rate of Poisson arrivals of requests, at most N of which are served at a time (the others
        wait outside, first come first served); None for the closed loop.
    reply_tokens
        Lengths of replies, drawn from evenly: a request that has committed so many tokens is
        finished. None where only the routing (``restart``) ends replies, or nothing does.
    step_factors
        For each model, measured over predicted step times, drawn from evenly and multiplied with
        the latency of each of its steps, waking apart. None for fixed latencies.
    """

    strategy: Strategy = Strategy.delayed
    on_grid: bool = False
    hold_ms: float | None = None
    arrivals_per_s: float | None = None
    reply_tokens: tuple[float, ...] | None = None
    step_factors: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        for name in ("hold_ms", "arrivals_per_s"):
            value = getattr(self, name)
            if value is not None and not is_positive(value):
                raise UsageError(f"{name}: must be a positive number, got {value}")
        if self.hold_ms is not None and self.strategy is not Strategy.delayed:
            raise UsageError("hold_ms: only delayed batching has a longest hold")
        if self.reply_tokens is not None and not (
            self.reply_tokens and all(is_positive(tokens) for tokens in self.reply_tokens)
        ):
            raise UsageError("reply_tokens: one or more positive lengths are needed")
        if self.step_factors is not None and not all(
            factors and all(is_positive(factor) for factor in factors)
            for factors in self.step_factors
        ):
            raise UsageError("step_factors: one or more positive factors for each model are needed")


class PackedTable(NamedTuple):
    """A rule that looks at the whole state (`trmodel.launch_table`), as the event loop reads it.

    Attributes
    ----------
    shifts
        (3, M): where k_i, b_i and r_i stand in a key.
    keys
        (S,) packed states just before the launches, ascending; none for a threshold rule.
    sizes
        (S, M) requests that each model starts.
    """

    shifts: IntArray
    keys: IntArray
    sizes: IntArray


def pack(table: LaunchTable | None, system: RoutedSystem, options: Options) -> PackedTable:
    """Pack a launch table for a system, or none.

    Raises
    ------
    UsageError
        If it was made for another system, or times are not on its grid.
    """
    M = system.M
    if table is None:
        empty = ((3, M), (0,), (0, M))
        return PackedTable(*(np.zeros(shape, np.int64) for shape in empty))
    made_for = (table.models, table.N, table.grid_ms)
    if made_for != (system.models, system.N, system.grid_ms):
        raise UsageError(
            f"launch table: made for {', '.join(table.models)} at N = {table.N} on a "
            f"{table.grid_ms:g} ms grid, not for this system"
        )
    if not options.on_grid or options.arrivals_per_s or np.any(system.handoff_ms):
        raise UsageError(
            "launch table: has states on the chain's grid, in a closed loop without handoff delay; "
            "simulate with on_grid and without arrivals_per_s and handoff_ms"
        )
    columns = [np.asarray(c, np.int64) for c in (table.waiting, table.running, table.remaining)]
    widths = np.array([[int(c[:, i].max()).bit_length() for i in range(M)] for c in columns])
    shifts = (np.cumsum(widths) - widths.ravel()).reshape(3, M)
    if widths.sum() > 62:
        raise UsageError(f"launch table: a state needs {widths.sum()} bits, 62 are supported")
    keys = sum((c << shifts[f]).sum(axis=1) for f, c in enumerate(columns))
    order = np.argsort(keys)
    return PackedTable(shifts, keys[order], np.asarray(table.launches, np.int64)[order])


class Rules(NamedTuple):
    """The constants of the event loop; times in units."""

    latency: FloatArray
    """(M, N): a step of model i with b requests, at b - 1."""
    added: FloatArray
    """(U,)"""
    slow_down: FloatArray
    """(2^M, M)"""
    cumulative: FloatArray
    """(U, U): running sums of the rows of the transition matrix."""
    tokens: FloatArray
    """(U, U)"""
    phase_model: IntArray
    max_batch: IntArray
    handoff: FloatArray
    """(M, M)"""
    wake: FloatArray
    """(M,): what a step takes longer if the model was idle."""
    thresholds: IntArray
    """(N + 1, M): B(n) in row n."""
    reply_tokens: FloatArray
    factors: FloatArray
    first_factor: IntArray
    """(M + 1,): model i draws from ``factors[first_factor[i] : first_factor[i + 1]]``."""
    table: PackedTable
    strategy: int
    round_work: bool
    hold: float
    mean_gap: float
    """Between arrivals; 0 for the closed loop."""
    entry: int
    opening: int
    """The phase in which a new reply begins."""
    restart: int
    """The phase whose entering ends a reply; -1 if none does."""
    seed: int


def make_rules(
    system: RoutedSystem,
    B: Sequence[int] | Sequence[Sequence[int]],
    options: Options,
    seed: int,
    table: LaunchTable | None = None,
) -> tuple[Rules, float]:
    """Return the rules of a simulation and the length of a time unit in milliseconds.

    Parameters
    ----------
    system
        Any; models that are never reached are kept.
    B
        One vector for every n, or the vectors B(1), B(2), ..., of which the last also holds for
        every larger n.

    Raises
    ------
    UsageError, InfeasibleError
        If thresholds are malformed or can deadlock.
    """
    if not (is_int(seed) and 0 <= seed < 1 << 63):
        raise UsageError(f"seed: must be a whole number of at least 0, got {seed}")
    M = system.M
    if options.step_factors is not None and len(options.step_factors) != M:
        raise UsageError(f"step_factors: {M} lists are needed, got {len(options.step_factors)}")
    if options.arrivals_per_s and system.restart is None and options.reply_tokens is None:
        raise UsageError(
            "arrivals_per_s: with arrivals replies must end; give reply_tokens "
            "(--reply-tokens) or a routing that completes replies"
        )
    if table is not None and options.hold_ms is not None:
        raise UsageError("hold_ms: a launch table says itself how long to wait")
    unit_ms = system.grid_ms if options.on_grid else 1.0
    times = system.latency_ms, system.added_ms, system.wake_ms
    latency, added, wake = (ms / unit_ms for ms in times)
    if options.on_grid:
        latency, added, wake = np.rint(latency), np.rint(added), np.rint(wake)
    cumulative = np.cumsum(system.transition_probability, axis=1)
    # The last outcome that can occur takes what rounding leaves of the row.
    for row, p in zip(cumulative, system.transition_probability, strict=True):
        row[np.flatnonzero(p)[-1] :] = 2.0
    factors = options.step_factors or ((1.0,),) * M
    opening = system.entry if system.restart is None else system.restart
    rules = Rules(
        latency=latency,
        added=added,
        slow_down=np.array(system.slow_down),
        cumulative=cumulative,
        tokens=np.array(system.committed_tokens),
        phase_model=system.phase_model,
        max_batch=np.array(system.max_batch, dtype=np.int64),
        handoff=system.handoff_ms / unit_ms,
        wake=wake,
        thresholds=_threshold_rows(system, B, options),
        reply_tokens=np.array(options.reply_tokens or (), dtype=np.float64),
        factors=np.concatenate([np.asarray(row, dtype=np.float64) for row in factors]),
        first_factor=np.cumsum([0, *map(len, factors)]),
        table=pack(table, system, options),
        strategy=int(options.strategy),
        round_work=bool(options.on_grid and np.any(system.slow_down != 1.0)),
        hold=np.inf if options.hold_ms is None else options.hold_ms / unit_ms,
        mean_gap=1000.0 / options.arrivals_per_s / unit_ms if options.arrivals_per_s else 0.0,
        entry=system.entry,
        opening=opening,
        restart=-1 if system.restart is None else system.restart,
        seed=int(seed),
    )
    return rules, unit_ms


def _threshold_rows(
    system: RoutedSystem, B: Sequence[int] | Sequence[Sequence[int]], options: Options
) -> IntArray:
    """Tabulate B(n) for n = 0..N, each proved live unless a hold time ends every wait."""
    several: Any = [B] if not len(B) or is_number(B[0]) else B
    vectors = [system.check_thresholds(vector) for vector in several]
    last = len(vectors)
    rows = [vectors[min(max(n, 1), last) - 1] for n in range(system.N + 1)]
    if options.strategy is Strategy.delayed and options.hold_ms is None:
        # In the closed loop n is N always.
        for n in range(1, system.N + 1) if options.arrivals_per_s else [system.N]:
            require_live(rows[n], n)
    return np.array(rows, dtype=np.int64)
