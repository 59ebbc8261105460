"""Exact distributions of delays in small systems, by two methods of their own.

`FollowedRequests` is a chain in which every request has a name and a place in its queue: small, but
without any step of reasoning about who is where. `admission_delays` follows an arrival through the
chain of counts, as the mean is found in `trmodel.markov.admission`, and reaches larger systems.
"""

from collections import defaultdict
from itertools import product

import numpy as np
from scipy.sparse import coo_array, csr_array

NEGLIGIBLE = 1e-13


class FollowedRequests:
    """The chain of a plain system, under thresholds, with requests by name; times in grid units."""

    def __init__(self, system, B):
        self.system, self.B = system, B
        everyone = tuple(range(system.N))
        start = [() for _ in range(system.M)]
        start[system.entry] = everyone
        first = self._launch(start, [()] * system.M, [0] * system.M, [])
        self.states, self.number, self.moves = [first], {first: 0}, []
        for state in self.states:  # grows as it is walked through
            self.moves.append(self._moves(state))
            for _, _, _, target in self.moves[-1]:
                if target not in self.number:
                    self.number[target] = len(self.states)
                    self.states.append(target)
        self.pi = self._stationary()

    def _launch(self, queues, batches, left, ended):
        queues, batches, left = list(queues), list(batches), list(left)
        for i in range(self.system.M):
            if not batches[i] and len(queues[i]) >= self.B[i]:
                size = min(len(queues[i]), self.system.max_batch[i])
                batches[i], queues[i] = queues[i][:size], queues[i][size:]
                left[i] = int(self.system.latency_units[i, size - 1])
                left[i] += 0 if i in ended else int(self.system.wake_units[i])
        return tuple(queues), tuple(batches), tuple(left)

    def _moves(self, state):
        """All that can happen next: time, probability, {request: (destination, tokens)}, state."""
        queues, batches, left = state
        M, P = self.system.M, self.system.transition_probability
        time = min(left[i] for i in range(M) if batches[i])
        ended = [i for i in range(M) if batches[i] and left[i] == time]
        routed = [(r, i) for i in ended for r in batches[i]]
        moves = []
        for onward in product(range(M), repeat=len(routed)):
            probability = np.prod([P[i, j] for (_, i), j in zip(routed, onward, strict=True)])
            if probability == 0.0:
                continue
            after = list(queues)
            fate = {}
            for (r, i), j in zip(routed, onward, strict=True):
                after[j] = (*after[j], r)
                fate[r] = (j, float(self.system.committed_tokens[i, j]))
            running = [() if i in ended else batches[i] for i in range(M)]
            rest = [left[i] - time if running[i] else 0 for i in range(M)]
            moves.append((time, probability, fate, self._launch(after, running, rest, ended)))
        return moves

    def _stationary(self):
        S = len(self.states)
        A = np.zeros((S + 1, S))
        for s, moves in enumerate(self.moves):
            A[s, s] -= 1.0
            for _, probability, _, target in moves:
                A[self.number[target], s] += probability
        A[S] = 1.0
        right = np.zeros(S + 1)
        right[S] = 1.0
        pi, _, rank, _ = np.linalg.lstsq(A, right)
        assert rank == S, "several recurrent classes"
        return pi

    def inter_token(self):
        """{time: probability} between tokens of a request; those of one step are 0 apart."""
        found = defaultdict(float)
        for r in range(self.system.N):
            begun = np.zeros(len(self.states))
            for s, moves in enumerate(self.moves):
                for _, probability, fate, target in moves:
                    tokens = fate.get(r, (0, 0.0))[1]
                    if tokens > 0.0:
                        begun[self.number[target]] += self.pi[s] * probability
                        found[0] += self.pi[s] * probability * (tokens - 1.0)
            self._follow(begun, found, lambda fate, _, r=r: fate.get(r, (0, 0.0))[1] > 0.0)
        return _shares(found)

    def admission(self, i):
        """{time: probability} from joining the queue of model i to the start of the batch."""
        found = defaultdict(float)
        for r in range(self.system.N):
            begun = np.zeros(len(self.states))
            for s, moves in enumerate(self.moves):
                for _, probability, fate, target in moves:
                    if r in fate and fate[r][0] == i:
                        if r in target[1][i]:
                            found[0] += self.pi[s] * probability
                        else:
                            begun[self.number[target]] += self.pi[s] * probability
            self._follow(begun, found, lambda _, target, r=r: r in target[1][i])
        return _shares(found)

    def _follow(self, begun, found, ends):
        """Let time pass from weights over states until the end; add what ended when."""
        waiting = {0: begun}
        while waiting:
            now = min(waiting)
            weights = waiting.pop(now)
            if weights.sum() < NEGLIGIBLE:
                continue
            for s in np.flatnonzero(weights):
                for time, probability, fate, target in self.moves[s]:
                    weight = weights[s] * probability
                    if ends(fate, target):
                        found[now + time] += weight
                    else:
                        later = waiting.setdefault(now + time, np.zeros(len(self.states)))
                        later[self.number[target]] += weight


def admission_delays(chain, i):
    """{time in grid units: probability} from joining queue i to the start of the batch."""
    e, m = chain.enumeration, chain.system.max_batch[i]
    T = coo_array(chain.transition)
    source, target = T.coords
    weight = chain.pi[source] * T.data
    launches = ((e.b[source, i] == 0) | (chain.finished[source, i] > 0)) & (e.b[target, i] > 0)
    started = np.where(launches, e.b[target, i], 0)
    arrivals = e.k[target, i] + started - e.k[source, i]
    last, first = e.k[target, i], np.maximum(e.k[source, i] - started, 0)
    S, levels = chain.states, int(np.ceil(e.k[:, i].max() / m))
    time = np.rint(chain.holding_ms / chain.system.grid_ms).astype(int)
    found = defaultdict(float)
    # Row l: weights of those who start with the (l + 1)-th launch from now on.
    begun = np.zeros((max(levels, 1), S))
    for level in range(levels):
        low, high = level * m, (level + 1) * m
        joined = np.clip(last, low, high) - np.clip(first, low, high)
        np.add.at(begun[level], target, weight * joined)
    found[0] = float(weight @ arrivals) - begun.sum()
    # By holding time, transitions without and with a launch.
    steps = {
        t: [
            csr_array((T.data[k], (target[k], source[k])), (S, S))
            for k in ((time[source] == t) & ~launches, (time[source] == t) & launches)
        ]
        for t in np.unique(time)
    }
    waiting = {0: begun}
    while waiting:
        now = min(waiting)
        weights = waiting.pop(now)
        if weights.sum() < NEGLIGIBLE:
            continue
        for t, (stay, launch) in steps.items():
            launched = weights @ launch.T
            found[now + t] += launched[0].sum()
            later = weights @ stay.T
            later[:-1] += launched[1:]
            if later.any():
                waiting[now + t] = waiting.get(now + t, 0.0) + later
    return _shares(found)


def _shares(found):
    total = sum(found.values())
    return {t: weight / total for t, weight in sorted(found.items()) if weight > 0.0}


def quantile(shares, q):
    """The smallest time with at least a share q at or below."""
    below = np.cumsum(list(shares.values()))
    return list(shares)[int(np.searchsorted(below, q - 1e-12))]


def share_above(shares, limit):
    return sum(share for t, share in shares.items() if t > limit)


def mean(shares):
    return sum(t * share for t, share in shares.items())
