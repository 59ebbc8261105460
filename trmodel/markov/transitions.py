"""The transition rule of the delayed-batching chain, stated once.

The system is observed just after a batch completed and every launch that became possible was
made. A *state* holds for each model i

- k_i, requests waiting in its queue;
- b_i, size of its running batch, 0 when idle;
- r_i, remaining work of that batch in grid units; when idle w_i, the work of waking the model;

with sum_i (k_i + b_i) = N; b_i = 0 implies k_i < B_i and r_i = w_i; b_i > 0 implies
0 < r_i <= L_i(b_i) + w_i. So r_i is always work that must be done before a batch of model i can
complete, and starting one adds L_i(b_i) to it. One transition is

1. the *holding time* tau passes: while the set S of models runs, model i progresses at speed
   1 / s_i(S) (1 on GPUs of its own), so that tau = min_i r_i s_i(S) over the running models;
   the work that is left of the others is rounded to the grid, by half a unit at most;
2. the models with no work left complete, and each of their batches splits over destinations by
   Multinomial(b_i, p_i.), independently of the others;
3. the arrivals join the queues and the launch rule is applied to every idle model. One that has
   just completed has r_i = 0, so that nothing is added if it starts at once; if it does not, it
   falls idle: r_i = w_i.

With several phases (`trmodel.phases`) a state also says how many of the k_i waiting and of the b_i
running requests are in each phase. The rule above sees only the totals; beneath it,

- a launched batch takes all of the model's waiting requests, so that its composition is theirs,
  and its work is L_i(b_i) plus what its phases add, rounded to the grid, beside that of waking;
- when it completes, the requests of each phase split by the row of that phase, independently.

Where a largest batch leaves some of them waiting, which phases go first depends on the order of
the queue, which the state does not hold.

Source: arXiv:2610.12242, appendix D. A state in which nothing runs has no transition: it is a
deadlock, which live thresholds exclude.

The functions here are compiled and work in place on vectors of length M; they are also what the
symbolic and graph views of a chain call from Python, so that the rule has no second statement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from trmodel.arrays import FloatArray, IndexArray, IntArray
from trmodel.compiled import compiled
from trmodel.launch import launch_size
from trmodel.system import RoutedSystem

_launch_size = compiled(launch_size)


@compiled
def complete(b: IntArray, r: IntArray, slow_down: FloatArray, finished: IntArray) -> float:
    """Let time pass until the next completion; in place on b and r, each of shape (M,).

    ``slow_down[S, i]`` is s_i(S), S being the bit mask of the running models; (2^M, M).
    ``finished[i]`` becomes the size of the batch that model i completes, 0 if none.

    Returns
    -------
    float
        The holding time tau in grid units; 0 if nothing runs (a deadlock).
    """
    running = 0
    for i in range(len(b)):
        if b[i] > 0:
            running |= 1 << i
    tau = 0.0
    for i in range(len(b)):
        if b[i] > 0:
            alone = r[i] * slow_down[running, i]
            if tau == 0.0 or alone < tau:
                tau = alone
    for i in range(len(b)):
        finished[i] = 0
        if b[i] > 0:
            r[i] = int(np.floor(r[i] - tau / slow_down[running, i] + 0.5))
            if r[i] == 0:
                finished[i] = b[i]
                b[i] = 0
    return tau


@compiled
def completions(b: IndexArray, r: IndexArray, slow_down: FloatArray) -> FloatArray:
    """Sizes of the batches that complete at the end of each of S states; b and r are (S, M)."""
    finished = np.zeros(b.shape)
    b1 = np.zeros(b.shape[1], np.int64)
    r1, done = np.zeros_like(b1), np.zeros_like(b1)
    for s in range(len(b)):
        b1[:] = b[s]
        r1[:] = r[s]
        complete(b1, r1, slow_down, done)
        finished[s] = done
    return finished


@compiled
def launch(
    k: IntArray,
    b: IntArray,
    r: IntArray,
    B: IntArray,
    max_batch: IntArray,
    work: IntArray,
    wake: IntArray,
) -> None:
    """Apply the launch rule to all models in place.

    ``work[i, b - 1]`` is L_i(b) and ``wake[i]`` is w_i, in units. ``r[i]`` of an idle model is w_i,
    or 0 if it has completed in this moment.
    """
    for i in range(len(k)):
        size = _launch_size(k[i], b[i], B[i], max_batch[i])
        if size > 0:
            k[i] -= size
            b[i] = size
            r[i] += work[i, size - 1]
        elif b[i] == 0:
            r[i] = wake[i]


@compiled
def totals(by_phase: IntArray, phase_model: IntArray, total: IntArray) -> None:
    """Sum over the phases of each model, in place on ``total`` (M,); ``by_phase`` is (U,)."""
    total[:] = 0
    for u in range(len(by_phase)):
        total[phase_model[u]] += by_phase[u]


@compiled
def take_phases(
    k: IntArray,
    b: IntArray,
    r: IntArray,
    waiting: IntArray,
    running: IntArray,
    phase_model: IntArray,
    work: IntArray,
    alone: FloatArray,
    added: FloatArray,
) -> None:
    """After `launch`, give the new batches their phases and what these add; in place.

    Parameters
    ----------
    k, b, r
        (M,) as `launch` left them.
    waiting, running
        (U,) by phase: a new batch has none running yet.
    phase_model
        (U,) model of each phase.
    work
        (M, N) L_i(b) in grid units, as `launch` has added it.
    alone, added
        (M, N) L_i(b) and (U,) added time of a request in each phase, in grid units, not rounded.
    """
    for i in range(len(b)):
        composed = 0
        for u in range(len(running)):
            if phase_model[u] == i:
                composed += running[u]
        if b[i] == composed:
            continue
        takes = alone[i, b[i] - 1]
        for u in range(len(running)):
            if phase_model[u] == i:
                # Some are left over only where all are of one phase.
                running[u] = min(waiting[u], b[i])
                waiting[u] -= running[u]
                takes += running[u] * added[u]
        r[i] += int(np.rint(takes)) - work[i, b[i] - 1]


@dataclass(frozen=True, eq=False)
class Splits:
    """Every way in which the requests of a completed batch can split over their destinations.

    The splits of b requests of phase u are the rows ``first[u, b]`` up to ``first[u, b + 1]`` of
    ``arrivals`` (requests that go to each phase) and ``probability``. They depend on the routing
    alone, so that one table serves every threshold vector. In a plain system phases are models.
    """

    first: IntArray
    arrivals: IntArray
    probability: FloatArray


def split_table(system: RoutedSystem) -> Splits:
    """Tabulate the multinomial splits of 1..max_batch requests of every phase.

    Probabilities are exp of log-gamma terms, normalised over each batch; those that underflow
    to zero are dropped.
    """
    U, N = system.U, system.N
    first = np.zeros((U, N + 2), dtype=np.int64)
    arrivals: list[NDArray[np.int64]] = []
    probability: list[FloatArray] = []
    total = 0
    for i, row in enumerate(system.transition_probability):
        destinations = np.flatnonzero(row)
        for b in range(1, N + 2):
            first[i, b] = total
            if b > system.max_batch[system.phase_model[i]]:
                continue
            counts = compositions(b, len(destinations))
            log_p = gammaln(b + 1) - gammaln(counts + 1).sum(axis=1)
            p = np.exp(log_p + xlogy(counts, row[destinations]).sum(axis=1))
            p /= p.sum()
            counts, p = counts[p > 0.0], p[p > 0.0]
            spread = np.zeros((len(p), U), dtype=np.int64)
            spread[:, destinations] = counts
            arrivals.append(spread)
            probability.append(p)
            total += len(p)
    return Splits(first, np.concatenate(arrivals), np.concatenate(probability))


def compositions(total: int, parts: int) -> IntArray:
    """All vectors of non-negative integers that sum to ``total``; shape (count, parts)."""
    rows = np.array([[total]], dtype=np.int64)
    for _ in range(parts - 1):
        # Split the last column of each row into (kept, rest), for every value of kept.
        repeat = rows[:, -1] + 1
        starts = np.repeat(np.cumsum(repeat) - repeat, repeat)
        kept = np.arange(len(starts)) - starts
        rows = np.repeat(rows, repeat, axis=0)
        rows = np.column_stack([rows[:, :-1], kept, rows[:, -1] - kept])
    return rows
