"""The compiled half of the enumeration: states as keys, their hash table, and their successors.

A key holds the waiting and the running requests of every phase and the remaining work of every
model side by side: field f is ``(key >> shifts[f]) & masks[f]``. The table is one of open
addressing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trmodel.arrays import FloatArray, IntArray
from trmodel.compiled import compiled
from trmodel.markov.transitions import complete, launch, take_phases, totals

LACKS_STATES, LACKS_TRANSITIONS = 1, 2
"""What has no room for the next row."""


@compiled
def slot_of(key: int, keys: IntArray, table: NDArray[np.int32]) -> int:
    """Position in the hash table of the key, or of the free place where it belongs."""
    mask = len(table) - 1
    h = key * -7046029254386353131  # 2^64 / golden ratio, as a signed odd number
    slot = (h ^ (h >> 29)) & mask
    while table[slot] >= 0 and keys[table[slot]] != key:
        slot = (slot + 1) & mask
    return slot


@compiled
def insert_all(keys: IntArray, table: NDArray[np.int32]) -> None:
    """Fill an empty table with the states of all keys."""
    for s in range(len(keys)):
        table[slot_of(keys[s], keys, table)] = s


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
def insert_start(
    N: int,
    entry: int,
    B: IntArray,
    max_batch: IntArray,
    work: IntArray,
    wake: IntArray,
    phase_model: IntArray,
    alone: FloatArray,
    added: FloatArray,
    shifts: IntArray,
    masks: IntArray,
    keys: IntArray,
    table: NDArray[np.int32],
) -> None:
    """Make the state after the launches of N requests waiting at the entry the first one."""
    k, b, r = np.zeros_like(B), np.zeros_like(B), wake.copy()
    waiting, running = np.zeros_like(phase_model), np.zeros_like(phase_model)
    waiting[entry] = N
    totals(waiting, phase_model, k)
    launch(k, b, r, B, max_batch, work, wake)
    take_phases(k, b, r, waiting, running, phase_model, work, alone, added)
    keys[0] = _pack(waiting, running, r, shifts)
    table[slot_of(keys[0], keys, table)] = 0


@compiled
def expand(
    B: IntArray,
    max_batch: IntArray,
    work: IntArray,
    wake: IntArray,
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
            lacking = LACKS_STATES
            break
        if transitions + outcomes > len(indices):
            lacking = LACKS_TRANSITIONS
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
            launch(k2, b2, r2, B, max_batch, work, wake)
            if not plain:
                take_phases(k2, b2, r2, waiting2, running2, phase_model, work, alone, added)
            key = _pack(waiting2, running2, r2, shifts)
            slot = slot_of(key, keys, table)
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
