"""Breadth-first enumeration of the states that can occur, with their transitions.

A state is packed into one 64-bit integer and found again through a hash table
(`trmodel.markov.expand`). Only residuals that really occur are visited, which are far fewer than
the full grid of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from trmodel.arrays import FloatArray, IndexArray, IntArray
from trmodel.errors import LimitError, UsageError
from trmodel.launch import shown_vector
from trmodel.machine import memory_bytes
from trmodel.markov.expand import LACKS_STATES, expand, insert_all, insert_start
from trmodel.markov.transitions import Splits
from trmodel.system import RoutedSystem
from trmodel.system_checks import is_int

_ADVICE = "use a coarser grid (grid_ms, --grid-ms), a smaller N, or fewer models"
_BYTES_PER_STATE = 640
"""Peak of enumeration and solution, with ten transitions to a state."""
_MOST_STATES = 200_000_000
"""Transitions are numbered in 32 bits."""
_KEY_BITS = 62


@dataclass(frozen=True)
class Limits:
    """How large a chain may grow before enumeration stops with a `LimitError`.

    The defaults keep the peak of an enumeration and its solution under 2 GB.
    """

    states: int = 3_000_000
    transitions: int = 30_000_000

    @classmethod
    def up_to(cls, states: int) -> Limits:
        """Return limits of so many states and ten times as many transitions.

        Raises
        ------
        UsageError
            If the number makes no sense.
        LimitError
            If a chain of that size needs more memory than this machine has.
        """
        if not (is_int(states) and 1 <= states <= _MOST_STATES):
            raise UsageError(
                f"max_states: must be a whole number from 1 to {_MOST_STATES:,}, got {states}"
            )
        needed = states * _BYTES_PER_STATE / 1e9
        there = memory_bytes() / 1e9
        if needed > there:
            raise LimitError(
                f"max_states: a chain of {states:,} states needs about {needed:.1f} GB, this "
                f"machine has {there:.1f} GB; use a lower limit"
            )
        return cls(states, 10 * states)


@dataclass(frozen=True, eq=False)
class Enumeration:
    """The reachable states in breadth-first order and their transitions in CSR form.

    Attributes
    ----------
    k, b, r
        (S, M): waiting, running batch size, remaining work in grid units (of idle models, that of
        waking them).
    holding_units
        (S,): holding time in grid units; 0 marks a deadlock, which has no transitions.
    transition
        (S, S): row s holds the successors of state s and their probabilities.
    waiting, running
        (S, U): k and b by phase; k and b themselves in a plain system.
    """

    k: IndexArray
    b: IndexArray
    r: IndexArray
    holding_units: FloatArray
    transition: csr_array
    waiting: IndexArray
    running: IndexArray


def enumerate_states(
    system: RoutedSystem, B: tuple[int, ...], splits: Splits, limits: Limits
) -> Enumeration:
    """Enumerate the chain of a system under thresholds B from its start.

    At the start all N requests wait in the entry phase. Thresholds that can deadlock are
    accepted: their deadlocks are states with holding time 0.

    Raises
    ------
    LimitError
        If the chain outgrows ``limits`` or a state does not fit into 62 bits.
    UsageError
        If a model of several reached phases cannot take all N requests into one batch.
    """
    if reason := unordered(system):
        raise UsageError(reason)
    M, U, N = system.M, system.U, system.N
    shifts, masks = _layout(system)
    rule = (
        np.array(B, dtype=np.int64),
        np.array(system.max_batch, dtype=np.int64),
        system.latency_units,
        system.wake_units,
        system.phase_model,
        system.latency_ms / system.grid_ms,
        system.added_ms / system.grid_ms,
        shifts,
        masks,
    )
    store = _Store(limits)
    insert_start(N, system.entry, *rule, store.keys, store.table)
    moves = (system.slow_down, splits.first, splits.arrivals, splits.probability)
    while lacking := expand(*rule, *moves, *store.arrays()):
        if exceeded := store.grow(lacking, limits):
            raise LimitError(
                f"N = {N}, B = {shown_vector(B)}: the exact chain outgrows the limit of "
                f"{exceeded}; {_ADVICE}, or raise the limit (--max-states)"
            )
    _, states, transitions = store.counts
    keys = store.keys[:states, None]
    waiting, running, r = (
        ((keys >> shifts[part]) & masks[part]).astype(np.int32)
        for part in (slice(U), slice(U, 2 * U), slice(2 * U, 2 * U + M))
    )
    k, b = (_by_model(system, array) for array in (waiting, running))
    rows = store.indptr[: states + 1].astype(np.int32)
    T = csr_array(
        (store.probability[:transitions], store.indices[:transitions], rows),
        shape=(states, states),
    )
    return Enumeration(k, b, r, store.holding[:states], T, waiting, running)


def unordered(system: RoutedSystem) -> str | None:
    """Why the chain, which knows no order within a queue, does not hold a system; None if it does.

    It does not where a largest batch leaves requests of several phases waiting.
    """
    for i, size in enumerate(system.max_batch):
        inside = [u for u in system.reached_phases if system.phase_model[u] == i]
        if size < system.N and len(inside) > 1:
            return (
                f"max_batch: {system.models[i]} has {len(inside)} phases and takes at most {size} "
                f"of N = {system.N} requests, so that the order of its queue matters, which the "
                "exact chain does not hold; simulate it instead (trmodel simulate, or tune with "
                "--method simulated)"
            )
    return None


def _layout(system: RoutedSystem) -> tuple[IntArray, IntArray]:
    """Place the fields of a state in its key: shifts and masks, (2 U + M,).

    They are the waiting requests of the U phases, the running ones, and the work of M models.
    """
    units = system.latency_units.max(axis=1) + system.wake_units
    for i in range(system.M):
        most = system.added_ms[system.phase_model == i].max() / system.grid_ms
        units[i] += int(np.ceil(system.max_batch[i] * most))
    sizes = [system.max_batch[i] for i in system.phase_model]
    widths = np.array(
        [int(largest).bit_length() for largest in (*[system.N] * system.U, *sizes, *units)]
    )
    if widths.sum() > _KEY_BITS:
        of = f"{system.M} models" if system.plain else f"{system.U} phases of {system.M} models"
        raise LimitError(
            f"N = {system.N}: a state of {of} on a {system.grid_ms:g} ms grid needs "
            f"{widths.sum()} bits, {_KEY_BITS} are supported; {_ADVICE}"
        )
    return np.cumsum(widths) - widths, (1 << widths) - 1


def _by_model(system: RoutedSystem, by_phase: IndexArray) -> IndexArray:
    """Sum the columns of the phases of each model; the array itself in a plain system."""
    if system.plain:
        return by_phase
    columns = [by_phase[:, system.phase_model == i].sum(axis=1) for i in range(system.M)]
    return np.column_stack(columns).astype(np.int32)


class _Store:
    """The arrays that an enumeration fills: compiled code fills them, Python enlarges them.

    (Enlarging them inside the compiled loop makes every access to them ten times slower.)
    """

    def __init__(self, limits: Limits) -> None:
        states, transitions = min(1024, limits.states), min(8192, limits.transitions)
        self.counts = np.array([0, 1, 0])
        """Expanded states, states, transitions."""
        self.keys = np.empty(states, np.int64)
        self.table = np.full(4096, -1, np.int32)
        """Open-addressing hash table of state numbers, at most half full."""
        self.place = np.full(states, -1, np.int64)
        """Where the transition that last led to a state was written."""
        self.holding = np.empty(states, np.float64)
        self.indptr = np.zeros(states + 1, np.int64)
        self.indices = np.empty(transitions, np.int32)
        self.probability = np.empty(transitions, np.float64)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays in the order in which `expand` takes them."""
        return (
            self.keys,
            self.table,
            self.place,
            self.holding,
            self.indptr,
            self.indices,
            self.probability,
            self.counts,
        )

    def grow(self, lacking: int, limits: Limits) -> str | None:
        """Enlarge what is lacking; return the limit that forbids it, if one does."""
        if lacking == LACKS_STATES:
            old = len(self.keys)
            size = min(4 * old, limits.states)
            if size <= old:
                return f"{limits.states:,} states"
            for array in (self.keys, self.place, self.holding):
                array.resize(size, refcheck=False)
            self.place[old:] = -1
            self.indptr.resize(size + 1, refcheck=False)
            self.table = np.full(1 << (2 * size - 1).bit_length(), -1, np.int32)
            insert_all(self.keys[: self.counts[1]], self.table)
            return None
        size = min(4 * len(self.indices), limits.transitions)
        if size <= len(self.indices):
            return f"{limits.transitions:,} transitions"
        self.indices.resize(size, refcheck=False)
        self.probability.resize(size, refcheck=False)
        return None
