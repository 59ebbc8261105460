"""Breadth-first enumeration of the states that can occur, with their transitions.

A state is packed into one 64-bit integer (waiting and running requests of every phase and the
remaining work of every model side by side) and found again through an open-addressing hash table. Only residuals that really occur are
visited, which are far fewer than the full grid of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from trmodel.arrays import FloatArray, IndexArray, IntArray
from trmodel.compiled import compiled
from trmodel.errors import LimitError, UsageError
from trmodel.launch import shown_vector
from trmodel.markov.transitions import Splits, complete, launch, take_phases, totals
from trmodel.system import RoutedSystem

_ADVICE = "use a coarser grid (grid_ms), a smaller N, or fewer models"
_KEY_BITS = 62
_STATES, _TRANSITIONS = 1, 2


@dataclass(frozen=True)
class Limits:
    """How large a chain may grow before enumeration stops with a `LimitError`.

    The defaults keep the peak of an enumeration and its solution under 2 GB.
    """

    states: int = 3_000_000
    transitions: int = 30_000_000


@dataclass(frozen=True, eq=False)
class Enumeration:
    """The reachable states in breadth-first order and their transitions in CSR form.

    Attributes
    ----------
    k, b, r
        (S, M): waiting, running batch size, remaining work in grid units.
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
    _require_no_order(system)
    M, U, N = system.M, system.U, system.N
    shifts, masks = _layout(system)
    rule = (
        np.array(B, dtype=np.int64),
        np.array(system.max_batch, dtype=np.int64),
        system.latency_units,
        system.phase_model,
        system.latency_ms / system.grid_ms,
        system.added_ms / system.grid_ms,
        shifts,
        masks,
    )
    store = _Store(limits)
    _insert_start(N, system.entry, *rule, store.keys, store.table)
    moves = (system.slow_down, splits.first, splits.arrivals, splits.probability)
    while lacking := _expand(*rule, *moves, *store.arrays()):
        if exceeded := store.grow(lacking, limits):
            raise LimitError(
                f"N = {N}, B = {shown_vector(B)}: the exact chain outgrows the limit of "
                f"{exceeded}; {_ADVICE}"
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


def _require_no_order(system: RoutedSystem) -> None:
    """Refuse a largest batch that leaves requests of several phases waiting."""
    for i, size in enumerate(system.max_batch):
        inside = [u for u in system.reached_phases if system.phase_model[u] == i]
        if size < system.N and len(inside) > 1:
            raise UsageError(
                f"max_batch: {system.models[i]} has {len(inside)} phases and takes at most {size} "
                f"of N = {system.N} requests, so that the order of its queue matters, which the "
                "exact chain does not hold; simulate it instead"
            )


def _layout(system: RoutedSystem) -> tuple[IntArray, IntArray]:
    """Place the fields of a state in its key: shifts and masks, (2 U + M,).

    They are the waiting requests of the U phases, the running ones, and the work of M models.
    """
    units = system.latency_units.max(axis=1)
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
        """Return the arrays in the order in which `_expand` takes them."""
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
        if lacking == _STATES:
            old = len(self.keys)
            size = min(4 * old, limits.states)
            if size <= old:
                return f"{limits.states:,} states"
            for array in (self.keys, self.place, self.holding):
                array.resize(size, refcheck=False)
            self.place[old:] = -1
            self.indptr.resize(size + 1, refcheck=False)
            self.table = np.full(1 << (2 * size - 1).bit_length(), -1, np.int32)
            _insert_all(self.keys[: self.counts[1]], self.table)
            return None
        size = min(4 * len(self.indices), limits.transitions)
        if size <= len(self.indices):
            return f"{limits.transitions:,} transitions"
        self.indices.resize(size, refcheck=False)
        self.probability.resize(size, refcheck=False)
        return None


@compiled
def _slot(key: int, keys: IntArray, table: NDArray[np.int32]) -> int:
    """Position in the hash table of the key, or of the free place where it belongs."""
    mask = len(table) - 1
    h = key * -7046029254386353131  # 2^64 / golden ratio, as a signed odd number
    slot = (h ^ (h >> 29)) & mask
    while table[slot] >= 0 and keys[table[slot]] != key:
        slot = (slot + 1) & mask
    return slot


@compiled
def _insert_all(keys: IntArray, table: NDArray[np.int32]) -> None:
    for s in range(len(keys)):
        table[_slot(keys[s], keys, table)] = s


@compiled
def _pack(waiting: IntArray, running: IntArray, r: IntArray, shifts: IntArray) -> int:
    U = len(waiting)
    key = 0
    for u in range(U):
        key |= (waiting[u] << shifts[u]) | (running[u] << shifts[U + u])
    for i in range(len(r)):
        key |= r[i] << shifts[2 * U + i]
    return key


@compiled
def _insert_start(
    N: int,
    entry: int,
    B: IntArray,
    max_batch: IntArray,
    work: IntArray,
    phase_model: IntArray,
    alone: FloatArray,
    added: FloatArray,
    shifts: IntArray,
    masks: IntArray,
    keys: IntArray,
    table: NDArray[np.int32],
) -> None:
    """Make the state after the launches of N requests waiting at the entry the first one."""
    k, b, r = np.zeros_like(B), np.zeros_like(B), np.zeros_like(B)
    waiting, running = np.zeros_like(phase_model), np.zeros_like(phase_model)
    waiting[entry] = N
    totals(waiting, phase_model, k)
    launch(k, b, r, B, max_batch, work)
    take_phases(k, b, r, waiting, running, phase_model, alone, added)
    keys[0] = _pack(waiting, running, r, shifts)
    table[_slot(keys[0], keys, table)] = 0


@compiled
def _expand(
    B: IntArray,
    max_batch: IntArray,
    work: IntArray,
    phase_model: IntArray,
    alone: FloatArray,
    added: FloatArray,
    shifts: IntArray,
    masks: IntArray,
    slow_down: FloatArray,
    first: IntArray,
    arrivals: IntArray,
    split_probability: FloatArray,
    keys: IntArray,
    table: NDArray[np.int32],
    place: IntArray,
    holding: FloatArray,
    indptr: IntArray,
    indices: NDArray[np.int32],
    probability: FloatArray,
    counts: IntArray,
) -> int:
    """Expand states in order until all are done (0) or a row might not fit (what is lacking)."""
    M, U = len(B), len(phase_model)
    k, b, r = np.zeros_like(B), np.zeros_like(B), np.zeros_like(B)
    k2, b2, r2 = np.zeros_like(B), np.zeros_like(B), np.zeros_like(B)
    finished = np.zeros_like(B)
    # One phase per model that adds nothing: the totals are the phases, nothing is done twice.
    plain = U == M and np.all(phase_model == np.arange(M)) and np.all(added == 0.0)
    waiting = k if plain else np.zeros_like(phase_model)
    running = b if plain else np.zeros_like(phase_model)
    waiting2 = k2 if plain else np.zeros_like(phase_model)
    running2 = b2 if plain else np.zeros_like(phase_model)
    splitting = finished if plain else np.zeros_like(phase_model)
    cursor, last = np.zeros_like(phase_model), np.zeros_like(phase_model)
    s, states, transitions = counts
    lacking = 0
    while s < states:
        for u in range(U):
            waiting[u] = (keys[s] >> shifts[u]) & masks[u]
            running[u] = (keys[s] >> shifts[U + u]) & masks[U + u]
        for i in range(M):
            r[i] = (keys[s] >> shifts[2 * U + i]) & masks[2 * U + i]
        if not plain:
            totals(waiting, phase_model, k)
            totals(running, phase_model, b)
        tau = complete(b, r, slow_down, finished)
        outcomes = 1 if tau > 0 else 0
        for u in range(U):
            if not plain:
                splitting[u] = 0
                if finished[phase_model[u]] > 0:
                    splitting[u] = running[u]
                    running[u] = 0
            if splitting[u] > 0:
                cursor[u] = first[u, splitting[u]]
                last[u] = first[u, splitting[u] + 1]
                outcomes *= last[u] - cursor[u]
        if states + outcomes > len(keys):
            lacking = _STATES
            break
        if transitions + outcomes > len(indices):
            lacking = _TRANSITIONS
            break
        row = transitions
        for _ in range(outcomes):
            p = 1.0
            for i in range(M):
                k2[i] = k[i]
                b2[i] = b[i]
                r2[i] = r[i]
            if not plain:
                waiting2[:] = waiting
                running2[:] = running
            for u in range(U):
                if splitting[u] > 0:
                    p *= split_probability[cursor[u]]
                    for v in range(U):
                        waiting2[v] += arrivals[cursor[u], v]
            if not plain:
                totals(waiting2, phase_model, k2)
            launch(k2, b2, r2, B, max_batch, work)
            if not plain:
                take_phases(k2, b2, r2, waiting2, running2, phase_model, alone, added)
            key = _pack(waiting2, running2, r2, shifts)
            slot = _slot(key, keys, table)
            target = table[slot]
            if target < 0:
                target = states
                table[slot] = target
                keys[target] = key
                states += 1
            if place[target] >= row:
                # Models that complete together can reach one state by several splits.
                probability[place[target]] += p
            else:
                place[target] = transitions
                indices[transitions] = target
                probability[transitions] = p
                transitions += 1
            for u in range(U):
                if splitting[u] > 0:
                    cursor[u] += 1
                    if cursor[u] < last[u]:
                        break
                    cursor[u] = first[u, splitting[u]]
        holding[s] = tau
        s += 1
        indptr[s] = transitions
    counts[0] = s
    counts[1] = states
    counts[2] = transitions
    return lacking
