"""The event loop: the delayed-batching system, event by event and request by request.

This is the simulation's own statement of the transitions, independent of the chain's; only the
launch rule (`trmodel.launch`) is shared with it. An event is a completion of one or several
batches, an arrival, or the end of a handoff or a hold:

1. every model that may start does (`_start_batches`, by the strategy in force); those that do not
   are idle, and their next step takes longer by their waking;
2. time passes until the next event; while the set S of models runs, model i progresses at speed
   1 / s_i(S);
3. each request of a completed batch commits its tokens, is routed by a random number of its own,
   and joins a queue, at once or after the handoff delay.

Requests wait first come, first served. Batches that end within `_TIE` of each other end together:
what is due at the same time must not be torn apart by rounding.
"""

from __future__ import annotations

import numpy as np

from trmodel.compiled import borrowing, compiled
from trmodel.launch import launch_size, threshold_in_force
from trmodel.simulate.distribution import gather
from trmodel.simulate.draws import pick, stream_start, uniform
from trmodel.simulate.rules import Rules, Strategy
from trmodel.simulate.state import FIRST_TOKEN, INTER_TOKEN, REPLY, Counts, State

_launch_size = compiled(launch_size)
_threshold_in_force = compiled(threshold_in_force)

_TIE = 1e-7
"""Units within which events are one: far below any latency, far above rounding."""

_DELAYED, _STEP_SYNC = int(Strategy.delayed), int(Strategy.step_sync)
RUNNING, DEADLOCK, UNKNOWN_STATE, LOG_FULL = range(4)


@borrowing
def advance(rules: Rules, state: State, counts: Counts, batches: int, until: float) -> int:
    """Run until so many batches completed or the next event is after ``until``.

    Returns
    -------
    int
        ``RUNNING``; ``DEADLOCK`` if nothing can happen any more; ``UNKNOWN_STATE`` if a launch
        table does not have the state; ``LOG_FULL``.
    """
    M = len(state.k)
    done = 0
    while done < batches:
        if not state.settled[0]:
            if not _start_batches(rules, state, counts):
                return UNKNOWN_STATE
            state.settled[0] = True
            for i in range(M):
                if state.b[i] == 0:
                    state.r[i] = rules.wake[i]
        running = 0
        for i in range(M):
            if state.b[i] > 0:
                running |= 1 << i
        wait = np.inf
        for i in range(M):
            if state.b[i] > 0:
                wait = min(wait, state.r[i] * rules.slow_down[running, i])
        now = state.now[0]
        if state.in_transit[0] > 0 or rules.mean_gap > 0.0 or rules.hold < np.inf:
            wait = min(wait, max(_next_timer(rules, state) - now, 0.0))
        if wait == np.inf:
            return DEADLOCK
        if now + wait > until:
            return RUNNING
        _pass_time(rules, state, counts, running, wait)
        state.settled[0] = False
        for i in range(M):
            if state.b[i] > 0 and state.r[i] * rules.slow_down[running, i] <= _TIE:
                _complete(rules, state, counts, i)
                done += 1
        if state.in_transit[0] > 0:
            _end_handoffs(rules, state)
        if rules.mean_gap > 0.0:
            _admit(rules, state)
        if len(counts.log_model) > 0 and counts.logged[0] >= len(counts.log_model):
            return LOG_FULL
    return RUNNING


@borrowing
def _pass_time(rules: Rules, state: State, counts: Counts, running: int, wait: float) -> None:
    state.now[0] += wait
    counts.elapsed[0] += wait
    counts.live[0] += wait * state.live[0]
    counts.transit[0] += wait * state.in_transit[0]
    for i in range(len(state.k)):
        if state.b[i] > 0:
            left = state.r[i] - wait / rules.slow_down[running, i]
            state.r[i] = np.floor(left + 0.5) if rules.round_work else left
            counts.running[i] += wait * state.b[i]
            counts.waiting_busy[i] += wait * state.k[i]
            counts.busy[i] += wait
        else:
            counts.waiting_idle[i] += wait * state.k[i]


@borrowing
def _next_timer(rules: Rules, state: State) -> float:
    """When the next handoff ends, hold is over or request comes, whichever is first."""
    M, N = state.queue.shape
    first = np.inf
    for lane in range(M * M):
        if state.moving_count[lane] > 0:
            first = min(first, state.due[lane, state.moving_head[lane]])
    if rules.mean_gap > 0.0 and state.live[0] < N:
        first = min(first, state.next_arrival[0])
    if rules.hold < np.inf:
        for i in range(M):
            if state.b[i] == 0 and state.k[i] > 0:
                first = min(first, state.arrived[state.queue[i, state.head[i]]] + rules.hold)
    return first


@borrowing
def _join(rules: Rules, state: State, slot: int) -> None:
    """Let a request join the queue of the model that its phase belongs to."""
    model = rules.phase_model[state.phase[slot]]
    N = state.queue.shape[1]
    place = state.head[model] + state.k[model]
    state.queue[model, place - N if place >= N else place] = slot
    state.k[model] += 1
    state.arrived[slot] = state.now[0]


@borrowing
def _complete(rules: Rules, state: State, counts: Counts, i: int) -> None:
    """End the batch of model i: every request in it commits tokens and moves on."""
    M = len(state.k)
    size = state.b[i]
    state.b[i] = 0
    state.r[i] = 0.0
    counts.batches[i] += 1
    counts.sizes[i, size] += 1
    if len(counts.log_model) > 0 and state.row[i] >= 0:
        counts.log_end[state.row[i]] = state.now[0]
    for place in range(size):
        slot = state.batch[i, place]
        phase = state.phase[slot]
        onward = pick(rules.cumulative[phase], uniform(state.streams, slot))
        tokens = rules.tokens[phase, onward]
        if tokens > 0.0:
            _commit(state, counts, slot, tokens)
        finished = onward == rules.restart
        if len(rules.reply_tokens) > 0:
            state.left[slot] -= tokens
            if state.left[slot] <= 0.0:
                finished = True
                onward = rules.opening
        state.phase[slot] = onward
        if finished:
            counts.replies[0] += 1
            _gather(state, counts, M + REPLY, state.now[0] - state.began[slot], 1.0)
            if rules.mean_gap > 0.0:
                state.live[0] -= 1
                state.free[len(state.free) - state.live[0] - 1] = slot
                continue
            _begin(rules, state, slot, state.now[0])
        j = rules.phase_model[onward]
        if rules.handoff[i, j] > 0.0 and not finished:
            _hand_over(rules, state, slot, i, j)
        else:
            _join(rules, state, slot)


@borrowing
def _commit(state: State, counts: Counts, slot: int, tokens: float) -> None:
    """Count tokens of a request; those of one step come at once, without time between them."""
    M, now = len(state.k), state.now[0]
    counts.tokens[0] += tokens
    if state.committed[slot] < 0.0:
        _gather(state, counts, M + FIRST_TOKEN, now - state.began[slot], 1.0)
    else:
        _gather(state, counts, M + INTER_TOKEN, now - state.committed[slot], 1.0)
    if tokens > 1.0:
        _gather(state, counts, M + INTER_TOKEN, 0.0, tokens - 1.0)
    state.committed[slot] = now


@borrowing
def _gather(state: State, counts: Counts, which: int, value: float, weight: float) -> None:
    gather(counts.times[which], counts.time_sums[which], value, weight, state.scratch, state.bits)


@borrowing
def _begin(rules: Rules, state: State, slot: int, at: float) -> None:
    """Open a new reply in a slot, whose request came at a time."""
    state.began[slot] = at
    state.committed[slot] = -1.0
    if len(rules.reply_tokens) > 0:
        lot = int(uniform(state.streams, slot) * len(rules.reply_tokens))
        state.left[slot] = rules.reply_tokens[lot]


@borrowing
def _hand_over(rules: Rules, state: State, slot: int, i: int, j: int) -> None:
    """Send a request on its way; with one delay for each pair, lanes are first in, first out."""
    M, N = state.queue.shape
    lane = i * M + j
    place = (state.moving_head[lane] + state.moving_count[lane]) % N
    state.moving[lane, place] = slot
    state.due[lane, place] = state.now[0] + rules.handoff[i, j]
    state.moving_count[lane] += 1
    state.in_transit[0] += 1


@borrowing
def _end_handoffs(rules: Rules, state: State) -> None:
    N = state.queue.shape[1]
    for lane in range(len(state.moving_count)):
        while state.moving_count[lane] > 0:
            head = state.moving_head[lane]
            if state.due[lane, head] > state.now[0] + _TIE:
                break
            state.moving_head[lane] = (head + 1) % N
            state.moving_count[lane] -= 1
            state.in_transit[0] -= 1
            _join(rules, state, state.moving[lane, head])


@borrowing
def _admit(rules: Rules, state: State) -> None:
    """Admit those who have come, as long as a slot is free."""
    M, N = state.queue.shape
    while state.live[0] < N and state.next_arrival[0] <= state.now[0] + _TIE:
        slot = state.free[N - state.live[0] - 1]
        state.live[0] += 1
        # A request has one and the same stream whichever slot it gets.
        state.streams[slot] = stream_start(rules.seed, M + 1 + state.arrivals[0])
        state.arrivals[0] += 1
        state.phase[slot] = rules.opening
        _begin(rules, state, slot, state.next_arrival[0])
        _join(rules, state, slot)
        gap = -np.log1p(-uniform(state.model_streams, M)) * rules.mean_gap
        state.next_arrival[0] += gap


@borrowing
def _start_batches(rules: Rules, state: State, counts: Counts) -> bool:
    """Let every model start that may; False if a launch table does not know the state."""
    M = len(state.k)
    if rules.strategy != _DELAYED:
        _take_turns(rules, state, counts)
        return True
    if len(rules.table.keys) > 0:
        return _start_by_table(rules, state, counts)
    B = rules.thresholds[state.live[0]]
    for i in range(M):
        if state.b[i] > 0 or state.k[i] == 0:
            continue
        threshold = B[i]
        if rules.hold < np.inf:
            oldest = state.arrived[state.queue[i, state.head[i]]]
            waited = state.now[0] - oldest + _TIE
            threshold = _threshold_in_force(threshold, waited, rules.hold)
        size = _launch_size(state.k[i], state.b[i], threshold, rules.max_batch[i])
        if size > 0:
            _start(rules, state, counts, i, size)
    return True


@borrowing
def _start(rules: Rules, state: State, counts: Counts, i: int, size: int) -> None:
    """Start a batch of the oldest ``size`` requests that wait at model i."""
    N = state.queue.shape[1]
    now = state.now[0]
    work = rules.latency[i, size - 1]
    head = state.head[i]
    for place in range(size):
        slot = state.queue[i, head]
        head = head + 1 if head + 1 < N else 0
        state.batch[i, place] = slot
        work += rules.added[state.phase[slot]]
        _gather(state, counts, i, now - state.arrived[slot], 1.0)
    state.head[i] = head
    state.k[i] -= size
    state.b[i] = size
    first, last = rules.first_factor[i], rules.first_factor[i + 1]
    if last - first > 1:
        first += int(uniform(state.model_streams, i) * (last - first))
    work *= rules.factors[first]
    # What is left of an idle model is its waking, nothing in the moment of a completion.
    state.r[i] += max(np.rint(work), 1.0) if rules.round_work else work
    if len(counts.log_model) > 0:
        row = min(counts.logged[0], len(counts.log_model) - 1)
        counts.log_model[row], counts.log_size[row] = i, size
        counts.log_start[row], counts.log_end[row] = now, np.nan
        for place in range(size):
            counts.log_slots[row, place] = state.batch[i, place]
        state.row[i] = row
        counts.logged[0] += 1


@borrowing
def _start_by_table(rules: Rules, state: State, counts: Counts) -> bool:
    M = len(state.k)
    shifts = rules.table.shifts
    key = 0
    for i in range(M):
        key |= state.k[i] << shifts[0, i]
        key |= state.b[i] << shifts[1, i]
        key |= int(np.rint(state.r[i])) << shifts[2, i]
    row = np.searchsorted(rules.table.keys, key)
    if row == len(rules.table.keys) or rules.table.keys[row] != key:
        return False
    for i in range(M):
        size = rules.table.sizes[row, i]
        if size > 0:
            _start(rules, state, counts, i, size)
    return True


@borrowing
def _take_turns(rules: Rules, state: State, counts: Counts) -> None:
    """Start what is due under step-sync or model-sync."""
    M = len(state.k)
    if rules.strategy == _STEP_SYNC:
        if state.owed.sum() == 0 and state.b.sum() == 0 and state.in_transit[0] == 0:
            _next_stage(rules, state)
        for i in range(M):
            if state.owed[i] > 0 and state.b[i] == 0:
                size = min(state.owed[i], rules.max_batch[i])
                state.owed[i] -= size
                _start(rules, state, counts, i, size)
    elif state.b.sum() == 0:
        for _ in range(M):
            i = state.turn[0]
            if state.k[i] > 0:
                _start(rules, state, counts, i, min(state.k[i], rules.max_batch[i]))
                break
            state.turn[0] = (i + 1) % M


@borrowing
def _next_stage(rules: Rules, state: State) -> None:
    """Let all that wait at the entry model owe a step, or in the other stage all the others."""
    entry = rules.phase_model[rules.entry]
    for _ in range(2):
        for i in range(len(state.k)):
            if (i == entry) == (state.turn[0] == 0):
                state.owed[i] = state.k[i]
        state.turn[0] = 1 - state.turn[0]
        if state.owed.sum() > 0:
            return
