"""The fluid limit: what delayed batching does when requests are many.

With N requests and thresholds that grow with N, the split of a batch over its destinations comes
ever closer to its mean: of b requests in phase u, p_uv b go to phase v. In the limit requests are
masses, splits are exact, and the system is a deterministic one of batch completions:

1. an idle model i starts when the mass that waits for it is above B_i - 1, and takes all of it up
   to its largest batch (of several phases in equal shares);
2. a batch of mass b takes L_i(b): linear between whole batches, L_i(1) below one; contention and
   the waking of a model that was idle as in the simulation;
3. its mass is split by the transition matrix and waits at once.

For whole requests "above B_i - 1" is "at least B_i"; for masses it keeps the condition
sum_i (B_i - 1) < N under which some model can always start. So the limit is exact where routing is
deterministic, and the rule needs no rounding of thresholds.

The throughput is that of the second half of a run that is doubled until its halves agree. It
depends on N and B nearly through B / N alone; its error against the simulated system falls as N
grows, and is several percent at N = 16. Handoff delays, holds and arrivals are left out.

Source: the mean-field analysis of batch service by Kar, Rehrmann, Mukhopadhyay, Alt, Ciucu,
Koeppl, Binnig and Rizk, arXiv:2009.09433, which has one queue and exponential times; here service
is deterministic and several batch servers feed each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trmodel.arrays import FloatArray, IntArray
from trmodel.compiled import borrowing
from trmodel.errors import InputError
from trmodel.launch import require_live
from trmodel.system import RoutedSystem

_TIE = 1e-7
"""Masses, and times in ms, within which values are one: far above rounding."""
_FIRST_EVENTS, _MOST_EVENTS = 512, 1 << 16
_AGREE = 1e-4


@dataclass(frozen=True)
class Fluid:
    """The answer of the fluid limit.

    Attributes
    ----------
    change_percent
        Throughput of the last quarter of the run against that of the quarter before: 0 where the
        limit has become periodic.
    """

    N: int
    B: tuple[int, ...]
    throughput_tok_s: float
    change_percent: float
    simulated_ms: float
    method: str = "fluid"


class _Rules(NamedTuple):
    latency: FloatArray
    """(M, N)"""
    added: FloatArray
    wake: FloatArray
    slow_down: FloatArray
    transition: FloatArray
    tokens: FloatArray
    """(U,): tokens that one request in a phase commits per step."""
    phase_model: IntArray
    max_batch: FloatArray
    above: FloatArray
    """(M,): the mass that must be exceeded."""


class _State(NamedTuple):
    waiting: FloatArray
    running: FloatArray
    """(U,)"""
    left: FloatArray
    """(M,): work left; below 0 while idle."""
    waking: FloatArray
    """(M,): what waking adds to the next batch; 0 in the moment of a completion."""
    done: FloatArray
    """Milliseconds passed and tokens committed."""


def fluid(system: RoutedSystem, B: Sequence[int]) -> Fluid:
    """Compute the throughput of a system in the fluid limit.

    Parameters
    ----------
    system
        Any; handoff delays are left out.
    B
        One threshold for each model.

    Raises
    ------
    UsageError, InfeasibleError
        If thresholds are malformed or can deadlock.
    InputError
        If nothing is committed.
    """
    thresholds = system.check_thresholds(B)
    require_live(thresholds, system.N)
    rules = _Rules(
        latency=np.array(system.latency_ms),
        added=np.array(system.added_ms),
        wake=np.array(system.wake_ms),
        slow_down=np.array(system.slow_down),
        transition=np.array(system.transition_probability),
        tokens=system.tokens_per_step,
        phase_model=system.phase_model,
        max_batch=np.array(system.max_batch, dtype=np.float64),
        above=np.array(thresholds, dtype=np.float64) - 1.0,
    )
    state = _State(
        waiting=np.where(np.arange(system.U) == system.entry, float(system.N), 0.0),
        running=np.zeros(system.U),
        left=np.full(system.M, -1.0),
        waking=np.array(system.wake_ms),
        done=np.zeros(2),
    )
    events = _FIRST_EVENTS * system.M
    _advance(rules, state, 2 * events)
    while True:
        before, middle = _stretch(rules, state, events), _stretch(rules, state, events)
        change = float(abs(middle[1] * before[0] / max(middle[0] * before[1], 1e-300) - 1.0))
        if change < _AGREE or events >= _MOST_EVENTS:
            break
        events *= 2
    ms, tokens = before + middle
    if not tokens > 0.0:
        raise InputError("committed_tokens: no token is committed")
    return Fluid(
        N=system.N,
        B=thresholds,
        throughput_tok_s=float(tokens / ms * 1000.0),
        change_percent=100.0 * change,
        simulated_ms=float(state.done[0]),
    )


def _stretch(rules: _Rules, state: _State, events: int) -> FloatArray:
    """Milliseconds and tokens of the next so many completions."""
    start = state.done.copy()
    _advance(rules, state, events)
    return np.asarray(state.done - start)


@borrowing
def _advance(rules: Any, state: Any, events: int) -> None:
    M = len(state.left)
    for _ in range(events):
        for i in range(M):
            if state.left[i] < 0.0:
                _start(rules, state, i)
                if state.left[i] < 0.0:
                    state.waking[i] = rules.wake[i]
        running = 0
        for i in range(M):
            if state.left[i] >= 0.0:
                running |= 1 << i
        wait = np.inf
        for i in range(M):
            if state.left[i] >= 0.0:
                wait = min(wait, state.left[i] * rules.slow_down[running, i])
        state.done[0] += wait
        for i in range(M):
            if state.left[i] >= 0.0:
                slow = rules.slow_down[running, i]
                state.left[i] -= wait / slow
                if state.left[i] * slow <= _TIE:
                    _complete(rules, state, i)


@borrowing
def _start(rules: Any, state: Any, i: int) -> None:
    mass = 0.0
    for u in range(len(state.waiting)):
        if rules.phase_model[u] == i:
            mass += state.waiting[u]
    if mass <= rules.above[i] + _TIE:
        return
    size = min(mass, rules.max_batch[i])
    work = _latency(rules.latency[i], size)
    for u in range(len(state.waiting)):
        if rules.phase_model[u] == i:
            taken = state.waiting[u] * (size / mass)
            state.waiting[u] -= taken
            state.running[u] = taken
            work += rules.added[u] * taken
    state.left[i] = work + state.waking[i]


@borrowing
def _latency(latency: FloatArray, size: float) -> float:
    whole = int(size)
    if whole < 1:
        return float(latency[0])
    if whole >= len(latency):
        return float(latency[len(latency) - 1])
    return float(latency[whole - 1] + (size - whole) * (latency[whole] - latency[whole - 1]))


@borrowing
def _complete(rules: Any, state: Any, i: int) -> None:
    state.left[i] = -1.0
    state.waking[i] = 0.0
    for u in range(len(state.waiting)):
        if rules.phase_model[u] == i and state.running[u] > 0.0:
            mass = state.running[u]
            state.running[u] = 0.0
            state.done[1] += mass * rules.tokens[u]
            for v in range(len(state.waiting)):
                state.waiting[v] += mass * rules.transition[u, v]
