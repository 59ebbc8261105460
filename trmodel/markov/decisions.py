"""The decisions that a launch rule can take: their states, actions and outcomes.

Thresholds look only at the queue of one model. A *launch rule* in general sees the whole server
each time a batch has completed and its requests have joined their queues. Such a moment is a
*decision state* (k, b, r): requests waiting, size and remaining work of the running batch of each
model, as in `trmodel.markov.transitions` but before any launch: r_i of an idle model is 0 if it has
just completed, and w_i if it has been idle. An *action* says for each idle
model how many of its k_i waiting requests start now:

- ``all``: none, or as many as one batch takes, m_i = min(k_i, largest batch);
- ``part``: any number from none to m_i.

At least one model must run. The action leads to a state of the chain; from there the same
completion and the same multinomial splits lead to the next decision state, with holding time tau
and the mean number of tokens that the completing batches commit.

Every decision state that some rule can reach from the start (all N requests waiting at the entry
model) is enumerated breadth first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from trmodel.arrays import FloatArray, IndexArray, IntArray
from trmodel.compiled import compiled
from trmodel.errors import LimitError
from trmodel.markov.enumeration import Limits
from trmodel.markov.expand import insert_all, slot_of
from trmodel.markov.transitions import Splits, complete
from trmodel.system import RoutedSystem

Actions = Literal["all", "part"]

_KEY_BITS = 62
_STATES, _ACTIONS, _OUTCOMES = 1, 2, 3
_ADVICE = "use a coarser grid (grid_ms, --grid-ms), a smaller N, or fewer models"


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decision states, the actions of each and the outcomes of each action.

    Attributes
    ----------
    k, b, r
        (S, M): waiting requests, running batch and its remaining work in grid units (of an idle
        model, what waking it will add), before any launch. State 0 is the start.
    first_action
        (S + 1,): the actions of state s are ``first_action[s]`` up to ``first_action[s + 1]``.
    launches
        (A, M): requests that each model starts.
    tau
        (A,): holding time in grid units.
    tokens
        (A,): mean number of tokens committed at its end.
    outcome
        (A, S): row a holds the next decision states of action a and their probabilities.
    """

    k: IndexArray
    b: IndexArray
    r: IndexArray
    first_action: IntArray
    launches: IndexArray
    tau: FloatArray
    tokens: FloatArray
    outcome: csr_array

    @property
    def states(self) -> int:
        """Number of decision states."""
        return len(self.k)

    @cached_property
    def state_of(self) -> IntArray:
        """The state to which each action belongs; (A,)."""
        return np.repeat(np.arange(self.states), np.diff(self.first_action))


def enumerate_decisions(
    system: RoutedSystem, splits: Splits, actions: Actions, limits: Limits
) -> Decisions:
    """Enumerate the decision states that can be reached from the start, with their actions.

    Raises
    ------
    LimitError
        If they outgrow ``limits`` or a state does not fit into 62 bits.
    """
    M, N = system.M, system.N
    work = system.latency_units.max(axis=1) + system.wake_units
    largest = [(N,) * M, system.max_batch, tuple(work)]
    sizes = [int(value) + 1 for row in largest for value in row]
    if prod(sizes).bit_length() > _KEY_BITS:
        raise LimitError(
            f"N = {N}: a state of {M} models on a {system.grid_ms:g} ms grid needs "
            f"{prod(sizes).bit_length()} bits, {_KEY_BITS} are supported; {_ADVICE}"
        )
    strides = np.cumprod([1, *sizes[:-1]]).reshape(3, M)
    store = _Store(M, limits)
    store.keys[0] = N * strides[0, system.entry] + strides[2] @ system.wake_units
    insert_all(store.keys[:1], store.table)
    rule = (
        np.array(sizes).reshape(3, M),
        strides,
        np.array(system.max_batch),
        actions == "part",
        system.latency_units,
        system.wake_units,
        system.slow_down,
        system.tokens_per_step,
        splits.first,
        splits.arrivals,
        splits.probability,
    )
    while lacking := _expand(*rule, *store.arrays()):
        if exceeded := store.grow(lacking, limits):
            raise LimitError(
                f"N = {N}: the decisions of launch rules outgrow the limit of {exceeded}; {_ADVICE}"
            )
    _, S, A, transitions = store.counts
    k, b, r = ((store.keys[:S, None] // strides[f] % rule[0][f]).astype(np.int32) for f in range(3))
    row = store.first_outcome[: A + 1].astype(np.int32)
    outcome = csr_array(
        (store.probability[:transitions], store.target[:transitions], row), shape=(A, S)
    )
    # Models that complete together can reach one state by several splits.
    outcome.sum_duplicates()
    return Decisions(
        k,
        b,
        r,
        store.first_action[: S + 1],
        store.launches[:A],
        store.tau[:A],
        store.tokens[:A],
        outcome,
    )


class _Store:
    """The arrays that the enumeration fills: compiled code fills them, Python enlarges them."""

    def __init__(self, M: int, limits: Limits) -> None:
        states, outcomes = min(1024, limits.states), min(8192, limits.transitions)
        self.counts = np.array([0, 1, 0, 0])
        """Expanded states, states, actions, outcomes."""
        self.keys = np.empty(states, np.int64)
        self.table = np.full(4096, -1, np.int32)
        self.first_action = np.zeros(states + 1, np.int64)
        self.launches = np.empty((outcomes, M), np.int32)
        self.tau = np.empty(outcomes)
        self.tokens = np.empty(outcomes)
        self.first_outcome = np.zeros(outcomes + 1, np.int64)
        self.target = np.empty(outcomes, np.int32)
        self.probability = np.empty(outcomes)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays in the order in which `_expand` takes them."""
        return (
            self.keys,
            self.table,
            self.first_action,
            self.launches,
            self.tau,
            self.tokens,
            self.first_outcome,
            self.target,
            self.probability,
            self.counts,
        )

    def grow(self, lacking: int, limits: Limits) -> str | None:
        """Enlarge what is lacking; return the limit that forbids it, if one does."""
        if lacking == _STATES:
            size = min(2 * len(self.keys), limits.states)
            if size == len(self.keys):
                return f"{limits.states:,} states"
            self.keys.resize(size, refcheck=False)
            self.first_action.resize(size + 1, refcheck=False)
            self.table = np.full(1 << (2 * size - 1).bit_length(), -1, np.int32)
            insert_all(self.keys[: self.counts[1]], self.table)
            return None
        # An action has an outcome at least, so that one limit bounds both.
        old = len(self.tau) if lacking == _ACTIONS else len(self.target)
        size = min(2 * old, limits.transitions)
        if size == old:
            return f"{limits.transitions:,} transitions"
        if lacking == _ACTIONS:
            self.launches.resize((size, self.launches.shape[1]), refcheck=False)
            self.tau.resize(size, refcheck=False)
            self.tokens.resize(size, refcheck=False)
            self.first_outcome.resize(size + 1, refcheck=False)
        else:
            self.target.resize(size, refcheck=False)
            self.probability.resize(size, refcheck=False)
        return None


@compiled
def _expand(
    sizes: IntArray,
    strides: IntArray,
    max_batch: IntArray,
    part: bool,
    work: IntArray,
    wake: IntArray,
    slow_down: FloatArray,
    tokens_per_step: FloatArray,
    first: IntArray,
    arrivals: IntArray,
    split_probability: FloatArray,
    keys: IntArray,
    table: NDArray[np.int32],
    first_action: IntArray,
    launches: IndexArray,
    tau: FloatArray,
    tokens: FloatArray,
    first_outcome: IntArray,
    target: IndexArray,
    probability: FloatArray,
    counts: IntArray,
) -> int:
    """Expand states in order until all are done (0) or one might not fit (what is lacking)."""
    M = len(max_batch)
    k, b, r = np.zeros_like(max_batch), np.zeros_like(max_batch), np.zeros_like(max_batch)
    k2, b2, r2 = np.zeros_like(max_batch), np.zeros_like(max_batch), np.zeros_like(max_batch)
    size, largest = np.zeros_like(max_batch), np.zeros_like(max_batch)
    finished, cursor, last = k.copy(), k.copy(), k.copy()
    lacking = 0
    while counts[0] < counts[1]:
        s = counts[0]
        _, states, a, o = counts
        for i in range(M):
            k[i] = keys[s] // strides[0, i] % sizes[0, i]
            b[i] = keys[s] // strides[1, i] % sizes[1, i]
            r[i] = keys[s] // strides[2, i] % sizes[2, i]
            largest[i] = min(k[i], max_batch[i]) if b[i] == 0 else 0
        size[:] = 0
        more = True
        while more and lacking == 0:
            for i in range(M):
                k2[i] = k[i] - size[i]
                b2[i] = b[i] + size[i]
                r2[i] = r[i]
                if size[i] > 0:
                    r2[i] += work[i, size[i] - 1]
                elif b[i] == 0:
                    r2[i] = wake[i]
            held = complete(b2, r2, slow_down, finished)
            outcomes = 1
            reward = 0.0
            for i in range(M):
                if finished[i] > 0:
                    reward += finished[i] * tokens_per_step[i]
                    cursor[i] = first[i, finished[i]]
                    last[i] = first[i, finished[i] + 1]
                    outcomes *= last[i] - cursor[i]
            if held == 0.0:
                outcomes = 0  # nothing would run: no action
            elif a + 1 > len(tau):
                lacking = _ACTIONS
                break
            if o + outcomes > len(target):
                lacking = _OUTCOMES
                break
            if states + outcomes > len(keys):
                lacking = _STATES
                break
            base = 0
            for i in range(M):
                base += k2[i] * strides[0, i] + b2[i] * strides[1, i] + r2[i] * strides[2, i]
            for _ in range(outcomes):
                p, key = 1.0, base
                for i in range(M):
                    if finished[i] > 0:
                        p *= split_probability[cursor[i]]
                        for j in range(M):
                            key += arrivals[cursor[i], j] * strides[0, j]
                slot = slot_of(key, keys, table)
                if table[slot] < 0:
                    table[slot] = states
                    keys[states] = key
                    states += 1
                target[o] = table[slot]
                probability[o] = p
                o += 1
                for i in range(M):
                    if finished[i] > 0:
                        cursor[i] += 1
                        if cursor[i] < last[i]:
                            break
                        cursor[i] = first[i, finished[i]]
            if outcomes > 0:
                for i in range(M):
                    launches[a, i] = size[i]
                tau[a] = held
                tokens[a] = reward
                a += 1
                first_outcome[a] = o
            more = False
            for i in range(M):
                if size[i] < largest[i]:
                    size[i] += 1 if part else largest[i]
                    more = True
                    break
                size[i] = 0
        counts[1] = states  # also of a state that is begun again: what it reached is reachable
        if lacking > 0:
            break
        counts[0] = s + 1
        counts[2] = a
        counts[3] = o
        first_action[s + 1] = a
    return lacking
