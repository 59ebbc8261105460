"""What changes while a simulation runs: where the requests are, and what has been counted.

Requests live in *slots* 0..N-1. Both tuples hold nothing but arrays, which compiled code changes
in place; single numbers are arrays of one element.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trmodel.arrays import FloatArray, IntArray
from trmodel.simulate.distribution import BINS
from trmodel.simulate.draws import Streams, stream_start, uniform
from trmodel.simulate.rules import Rules

DELAYS = 3
"""Distributions beside the admission delay of each model: the three below, by their place."""
INTER_TOKEN, FIRST_TOKEN, REPLY = range(DELAYS)


class State(NamedTuple):
    """Where everything is; M models, N slots."""

    now: FloatArray
    next_arrival: FloatArray
    live: IntArray
    """Requests admitted and not finished."""
    k: IntArray
    b: IntArray
    r: FloatArray
    """(M,) waiting, running, work left in units; of an idle model, what waking it takes."""
    queue: IntArray
    """(M, N) ring of slots; ``head[i]`` is where the oldest stands."""
    head: IntArray
    batch: IntArray
    """(M, N) slots of the running batch."""
    phase: IntArray
    streams: Streams
    """(N,): each request's own random numbers."""
    arrived: FloatArray
    """(N,) when it joined the queue it stands in."""
    began: FloatArray
    """(N,) when its reply began, waiting outside included."""
    committed: FloatArray
    """(N,) when it last committed tokens; -1 before the first of a reply."""
    left: FloatArray
    """(N,) tokens until the reply ends, where lengths are given."""
    free: IntArray
    """(N,): a stack of slots, of which the first N - live are free."""
    moving: IntArray
    """(M * M, N) rings of the slots on their way from model to model."""
    due: FloatArray
    moving_head: IntArray
    moving_count: IntArray
    in_transit: IntArray
    model_streams: Streams
    """(M + 1,): of each model's step times, and of the arrivals."""
    arrivals: IntArray
    """Requests that have arrived."""
    turn: IntArray
    """Step-sync: the stage; model-sync: the model whose turn it is."""
    owed: IntArray
    """(M,) step-sync: requests that still take a step in this stage."""
    settled: NDArray[np.bool_]
    """Whether every launch that the present moment allows has been made."""
    row: IntArray
    """(M,) the timeline's row of the running batch; -1 if it began before the timeline."""
    scratch: FloatArray
    bits: IntArray


class Counts(NamedTuple):
    """What was counted since the counts were last cleared; times in units."""

    elapsed: FloatArray
    tokens: FloatArray
    replies: IntArray
    batches: IntArray
    """(M,) completed."""
    sizes: IntArray
    """(M, N + 1): batches completed, by size."""
    running: FloatArray
    """(M,): request-time in running batches."""
    waiting_idle: FloatArray
    waiting_busy: FloatArray
    """(M,): request-time in the queue while the model is idle, and while it runs."""
    busy: FloatArray
    """(M,): time that the model runs."""
    transit: FloatArray
    live: FloatArray
    """Request-time on the way between models, and altogether."""
    times: FloatArray
    time_sums: FloatArray
    """(M + DELAYS, BINS): distributions of the admission delay of each model and of the rest."""
    log_model: IntArray
    log_size: IntArray
    log_start: FloatArray
    log_end: FloatArray
    log_slots: IntArray
    """Timeline: a row for each batch, full when it is, empty where none is wanted; the end of a
    batch that still runs is nan; ``log_slots`` (rows, N) begins with its requests."""
    logged: IntArray


def initial_state(rules: Rules) -> State:
    """All N requests wait at the entry, or with arrivals none has come yet."""
    M, N = len(rules.latency), rules.latency.shape[1]
    scratch = np.zeros(1)

    def streams(first: int, count: int) -> NDArray[np.uint64]:
        return np.array([stream_start(rules.seed, first + n) for n in range(count)], np.uint64)

    state = State(
        now=np.zeros(1),
        next_arrival=np.full(1, np.inf),
        live=np.zeros(1, np.int64),
        k=np.zeros(M, np.int64),
        b=np.zeros(M, np.int64),
        r=rules.wake.copy(),
        queue=np.zeros((M, N), np.int64),
        head=np.zeros(M, np.int64),
        batch=np.zeros((M, N), np.int64),
        phase=np.full(N, rules.entry),
        streams=streams(M + 1, N),
        arrived=np.zeros(N),
        began=np.zeros(N),
        committed=np.full(N, -1.0),
        left=np.zeros(N),
        free=np.arange(N)[::-1].copy(),
        moving=np.zeros((M * M, N), np.int64),
        due=np.zeros((M * M, N)),
        moving_head=np.zeros(M * M, np.int64),
        moving_count=np.zeros(M * M, np.int64),
        in_transit=np.zeros(1, np.int64),
        model_streams=streams(0, M + 1),
        arrivals=np.zeros(1, np.int64),
        turn=np.zeros(1, np.int64),
        owed=np.zeros(M, np.int64),
        settled=np.zeros(1, np.bool_),
        row=np.full(M, -1),
        scratch=scratch,
        bits=scratch.view(np.int64),
    )
    if rules.mean_gap > 0.0:
        state.next_arrival[0] = -np.log1p(-uniform(state.model_streams, M)) * rules.mean_gap
        return state
    model = rules.phase_model[rules.entry]
    state.live[0] = state.k[model] = N
    state.queue[model] = np.arange(N)
    if len(rules.reply_tokens):
        for slot in range(N):
            lot = int(uniform(state.streams, slot) * len(rules.reply_tokens))
            state.left[slot] = rules.reply_tokens[lot]
    state.turn[0] = 0 if rules.strategy == 1 else model
    return state


def no_counts(M: int, N: int, timeline: int = 0) -> Counts:
    """Counts that are all zero, with room for so many batches of a timeline."""
    return Counts(
        elapsed=np.zeros(1),
        tokens=np.zeros(1),
        replies=np.zeros(1, np.int64),
        batches=np.zeros(M, np.int64),
        sizes=np.zeros((M, N + 1), np.int64),
        running=np.zeros(M),
        waiting_idle=np.zeros(M),
        waiting_busy=np.zeros(M),
        busy=np.zeros(M),
        transit=np.zeros(1),
        live=np.zeros(1),
        times=np.zeros((M + DELAYS, BINS)),
        time_sums=np.zeros((M + DELAYS, BINS)),
        log_model=np.zeros(timeline, np.int64),
        log_size=np.zeros(timeline, np.int64),
        log_start=np.zeros(timeline),
        log_end=np.zeros(timeline),
        log_slots=np.zeros((timeline, N), np.int64),
        logged=np.zeros(1, np.int64),
    )
