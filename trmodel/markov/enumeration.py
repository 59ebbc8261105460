"""Breadth-first enumeration of the states that can occur, with their transitions.

A state is packed into one 64-bit integer (the fields k_i, b_i, r_i of every model side by side)
and found again through an open-addressing hash table. Only residuals that really occur are
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
from trmodel.errors import LimitError
from trmodel.launch import shown_vector
from trmodel.markov.transitions import Splits, complete, launch
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
    """

    k: IndexArray
    b: IndexArray
    r: IndexArray
    holding_units: FloatArray
    transition: csr_array


def enumerate_states(
    system: RoutedSystem, B: tuple[int, ...], splits: Splits, limits: Limits
) -> Enumeration:
    """Enumerate the chain of a system under thresholds B from its start.

    At the start all N requests wait at the entry model. Thresholds that can deadlock are
    accepted: their deadlocks are states with holding time 0.

    Raises
    ------
    LimitError
        If the chain outgrows ``limits`` or a state does not fit into 62 bits.
    """
    M, N = system.M, system.N
    largest = [(N,) * M, system.max_batch, system.latency_units.max(axis=1)]
    widths = np.array([[int(value).bit_length() for value in row] for row in largest])
    if widths.sum() > _KEY_BITS:
        raise LimitError(
            f"N = {N}: a state of {M} models on a {system.grid_ms:g} ms grid needs "
            f"{widths.sum()} bits, {_KEY_BITS} are supported; {_ADVICE}"
        )
    shifts = (np.cumsum(widths) - widths.ravel()).reshape(widths.shape)
    masks = (1 << widths) - 1
    rule = (
        np.array(B, dtype=np.int64),
        np.array(system.max_batch, dtype=np.int64),
        system.latency_units,
        system.slow_down,
        splits.first,
        splits.arrivals,
        splits.probability,
        shifts,
        masks,
    )
    store = _Store(limits)
    _insert_start(N, system.entry, *rule[:3], shifts, store.keys, store.table)
    while lacking := _expand(*rule, *store.arrays()):
        if exceeded := store.grow(lacking, limits):
            raise LimitError(
                f"N = {N}, B = {shown_vector(B)}: the exact chain outgrows the limit of "
                f"{exceeded}; {_ADVICE}"
            )
    _, states, transitions = store.counts
    keys = store.keys[:states]
    k, b, r = (((keys[:, None] >> shifts[f]) & masks[f]).astype(np.int32) for f in range(3))
    rows = store.indptr[: states + 1].astype(np.int32)
    T = csr_array(
        (store.probability[:transitions], store.indices[:transitions], rows),
        shape=(states, states),
    )
    return Enumeration(k, b, r, store.holding[:states], T)


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
def _pack(k: IntArray, b: IntArray, r: IntArray, shifts: IntArray) -> int:
    key = 0
    for i in range(len(k)):
        key |= (k[i] << shifts[0, i]) | (b[i] << shifts[1, i]) | (r[i] << shifts[2, i])
    return key


@compiled
def _insert_start(
    N: int,
    entry: int,
    B: IntArray,
    max_batch: IntArray,
    work: IntArray,
    shifts: IntArray,
    keys: IntArray,
    table: NDArray[np.int32],
) -> None:
    """Make the state after the launches of N requests waiting at the entry the first one."""
    k, b, r = np.zeros_like(B), np.zeros_like(B), np.zeros_like(B)
    k[entry] = N
    launch(k, b, r, B, max_batch, work)
    keys[0] = _pack(k, b, r, shifts)
    table[_slot(keys[0], keys, table)] = 0


@compiled
def _expand(
    B: IntArray,
    max_batch: IntArray,
    work: IntArray,
    slow_down: FloatArray,
    first: IntArray,
    arrivals: IntArray,
    split_probability: FloatArray,
    shifts: IntArray,
    masks: IntArray,
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
    M = len(B)
    k, b, r = np.zeros_like(B), np.zeros_like(B), np.zeros_like(B)
    k2, b2, r2 = np.zeros_like(B), np.zeros_like(B), np.zeros_like(B)
    finished, cursor, last = np.zeros_like(B), np.zeros_like(B), np.zeros_like(B)
    s, states, transitions = counts
    lacking = 0
    while s < states:
        for i in range(M):
            k[i] = (keys[s] >> shifts[0, i]) & masks[0, i]
            b[i] = (keys[s] >> shifts[1, i]) & masks[1, i]
            r[i] = (keys[s] >> shifts[2, i]) & masks[2, i]
        tau = complete(b, r, slow_down, finished)
        outcomes = 1 if tau > 0 else 0
        for i in range(M):
            if finished[i] > 0:
                cursor[i] = first[i, finished[i]]
                last[i] = first[i, finished[i] + 1]
                outcomes *= last[i] - cursor[i]
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
            for i in range(M):
                if finished[i] > 0:
                    p *= split_probability[cursor[i]]
                    for j in range(M):
                        k2[j] += arrivals[cursor[i], j]
            launch(k2, b2, r2, B, max_batch, work)
            key = _pack(k2, b2, r2, shifts)
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
            for i in range(M):
                if finished[i] > 0:
                    cursor[i] += 1
                    if cursor[i] < last[i]:
                        break
                    cursor[i] = first[i, finished[i]]
        holding[s] = tau
        s += 1
        indptr[s] = transitions
    counts[0] = s
    counts[1] = states
    counts[2] = transitions
    return lacking
