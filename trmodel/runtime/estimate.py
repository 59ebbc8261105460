"""Estimating the routing and the step times of a running server from what its models count.

Totals come in from time to time; their differences are kept for a sliding window. The routing may
change at any moment, and then what was counted before is of no use. So with every sample a
likelihood-ratio test asks of each way to cut the window in two whether both parts have the same
p_ij: for the counts a_ij and b_ij of the parts,

    G = 2 sum_ij (a_ij log(a_ij / A_ij) + b_ij log(b_ij / B_ij)),

where A and B are what both would hold if all were alike; without a change it follows about a
chi-squared law with sum_i (destinations of i - 1) degrees of freedom. Where G is largest and above
its quantile (divided among all cuts), the window begins anew. Requests differ in more than chance,
so that the test can find changes that are none: that shortens the window and does no other harm.

Intervals of p_ij are Jeffreys': quantiles of Beta(a_ij + 1/2, a_i - a_ij + 1/2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlogy
from scipy.stats import beta, chi2

from trmodel.arrays import FloatArray

FALSE_ALARM = 1e-4
"""Chance, for each test, to find a change where there is none."""
FEWEST_STEPS = 200
"""Request-steps in either part before a cut is considered."""

Steps = tuple[float, float, float]


@dataclass(frozen=True)
class Sample:
    """What was counted between two moments.

    Attributes
    ----------
    ended_at
        Seconds.
    transitions, committed
        (M, M) request-steps from i to j, and tokens committed on the way.
    steps
        By model and batch size: steps, their summed time in seconds, and those of them before which
        the model was idle.
    arrivals
        (M, M, 2) handoffs from i taken in by j, and the summed seconds since the engine of i was
        done; without those between machines.
    route_s
        (M,) request-seconds from the end of the engine's work to the handing on.
    n
        Live requests.
    """

    ended_at: float
    transitions: FloatArray
    committed: FloatArray
    steps: tuple[Mapping[int, Steps], ...]
    arrivals: FloatArray
    route_s: FloatArray
    n: float


@dataclass(frozen=True)
class Estimated:
    """What the window holds, added up.

    Attributes
    ----------
    transitions, committed, steps, arrivals, route_s
        As in `Sample`.
    mean_n
        Mean number of live requests while there were any.
    """

    seconds: float
    transitions: FloatArray
    committed: FloatArray
    steps: tuple[dict[int, Steps], ...]
    arrivals: FloatArray
    route_s: FloatArray
    mean_n: float

    def transition_probability(self, otherwise: FloatArray) -> FloatArray:
        """Return p_ij; rows of models that made no step are those of ``otherwise``."""
        return _rows(self.transitions, self.transitions.sum(axis=1, keepdims=True), otherwise)

    def committed_tokens(self, otherwise: FloatArray) -> FloatArray:
        """Return c_ij; of pairs that did not occur, those of ``otherwise``."""
        return _rows(self.committed, self.transitions, otherwise)

    def handoff_ms(self, otherwise: FloatArray) -> FloatArray:
        """Return d_ij; of pairs of which no handoff was timed, those of ``otherwise``.

        Handing on is in the steps, as the model has it, and not in these.
        """
        count, lag_s = self.arrivals[..., 0], self.arrivals[..., 1]
        route_s = self.route_s / np.maximum(self.transitions.sum(axis=1), 1.0)
        delay_s = np.maximum(lag_s / np.maximum(count, 1.0) - route_s[:, None], 0.0)
        return np.where(count > 0.0, 1000.0 * delay_s, otherwise)

    def intervals(self, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return Jeffreys intervals of p_ij: lower and upper ends, (M, M)."""
        tail = (1.0 - confidence) / 2.0
        rest = self.transitions.sum(axis=1, keepdims=True) - self.transitions
        low = beta.ppf(tail, self.transitions + 0.5, rest + 0.5)
        high = beta.isf(tail, self.transitions + 0.5, rest + 0.5)
        return np.where(self.transitions > 0.0, low, 0.0), np.where(rest > 0.0, high, 1.0)


def _rows(counts: FloatArray, of: FloatArray, otherwise: FloatArray) -> FloatArray:
    return np.asarray(np.where(of > 0.0, counts / np.maximum(of, 1.0), otherwise))


class Estimator:
    """The sliding window.

    Parameters
    ----------
    M
        Number of models.
    window_s
        What is older is forgotten.
    warm_up_s
        What a model counts so soon after its start is not used.
    """

    def __init__(self, M: int, window_s: float = 120.0, warm_up_s: float = 3.0) -> None:
        self.M, self.window_s, self.warm_up_s = M, window_s, warm_up_s
        self.changes = 0
        """Changes of the routing found so far."""
        self._samples: deque[Sample] = deque()
        self._last: dict[int, Mapping[str, Any]] = {}
        self._met_at: dict[int, float] = {}
        self._began_at = 0.0

    def add(self, now: float, counted: Mapping[int, Mapping[str, Any]], n: float) -> bool:
        """Take in totals; return whether the routing has changed.

        Parameters
        ----------
        now
            Seconds.
        counted
            The latest totals of each model, see `trmodel.runtime.counters`.
        n
            Live requests.
        """
        transitions, committed = np.zeros((self.M, self.M)), np.zeros((self.M, self.M))
        arrivals, route_s = np.zeros((self.M, self.M, 2)), np.zeros(self.M)
        steps: list[dict[int, Steps]] = [{} for _ in range(self.M)]
        for model, values in counted.items():
            last = self._last.get(model)
            self._last[model] = values
            if last is None or last["pid"] != values["pid"]:  # started, or started anew
                self._met_at[model] = now
                continue
            if now - self._met_at[model] <= self.warm_up_s:
                continue
            transitions[model] = np.subtract(values["transitions"], last["transitions"])
            committed[model] = np.subtract(values["committed"], last["committed"])
            arrivals[:, model] = np.subtract(values["arrivals"], last["arrivals"])
            route_s[model] = values["route_s"] - last["route_s"]
            for size, (count, took_s, *_) in values["batches"].items():
                before = last["batches"].get(size, (0, 0.0))
                idle = values["idle_starts"].get(size, 0) - last["idle_starts"].get(size, 0)
                if count > before[0]:
                    steps[model][int(size)] = (count - before[0], took_s - before[1], idle)
        if not self._samples:
            self._began_at = now
        self._samples.append(
            Sample(now, transitions, committed, tuple(steps), arrivals, route_s, n)
        )
        while self._samples[0].ended_at < now - self.window_s:
            self._began_at = self._samples.popleft().ended_at
        return self._cut_at_change()

    def _cut_at_change(self) -> bool:
        counts = np.array([sample.transitions for sample in self._samples])
        before = np.cumsum(counts, axis=0)[:-1]
        after = counts.sum(axis=0) - before
        enough = (before.sum(axis=(1, 2)) >= FEWEST_STEPS) & (
            after.sum(axis=(1, 2)) >= FEWEST_STEPS
        )
        if not enough.any():
            return False
        G = np.where(enough, likelihood_ratio(before, after), 0.0)
        cut = int(np.argmax(G))
        both = (counts.sum(axis=0) > 0.0).sum(axis=1)
        freedom = int(np.maximum(both - 1, 0).sum())
        if freedom == 0 or G[cut] <= chi2.isf(FALSE_ALARM / int(enough.sum()), freedom):
            return False
        for _ in range(cut + 1):
            self._began_at = self._samples.popleft().ended_at
        self.changes += 1
        return True

    def estimate(self) -> Estimated:
        """Add up the window."""
        zero = np.zeros((self.M, self.M))
        steps: tuple[dict[int, Steps], ...] = tuple({} for _ in range(self.M))
        for sample in self._samples:
            for pooled, found in zip(steps, sample.steps, strict=True):
                for size, (count, took_s, idle) in found.items():
                    held = pooled.get(size, (0.0, 0.0, 0.0))
                    pooled[size] = (held[0] + count, held[1] + took_s, held[2] + idle)
        busy = [sample.n for sample in self._samples if sample.n > 0]
        return Estimated(
            self._samples[-1].ended_at - self._began_at if self._samples else 0.0,
            sum((sample.transitions for sample in self._samples), zero),
            sum((sample.committed for sample in self._samples), zero),
            steps,
            sum((sample.arrivals for sample in self._samples), np.zeros((self.M, self.M, 2))),
            sum((sample.route_s for sample in self._samples), np.zeros(self.M)),
            float(np.mean(busy)) if busy else 0.0,
        )


def likelihood_ratio(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return G of the hypothesis that two tables of counts have the same p_ij.

    Parameters
    ----------
    a, b
        (..., M, M) transitions from i to j.
    """
    both = a + b
    whole = np.maximum(both.sum(axis=-1, keepdims=True), 1.0)
    G = np.zeros(both.shape)
    for part in (a, b):
        expected = part.sum(axis=-1, keepdims=True) * both / whole
        G = G + 2.0 * (xlogy(part, part) - xlogy(part, np.where(expected > 0.0, expected, 1.0)))
    return np.asarray(np.sum(G, axis=(-1, -2)))
