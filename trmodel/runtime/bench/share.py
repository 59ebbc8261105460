"""Find the threshold of a policy at which a stated share of the output comes from the large model.

What a request becomes depends on the threshold, so the share at one threshold cannot be computed
from the scores seen at another. Those scores say where to look, though. The *level* of a threshold
is the share of all scores seen so far that do not pass it: a policy that returns after one token
has a share of 1 - level, were the scores always the same. The search goes from level to level,
towards where a straight line between the levels that enclose the target meets it, and every
threshold is tried by a run. Levels of 0 and 1 have shares of 1 and 0 without a run.

All runs have the same requests with the same seeds, which makes their shares move together. The
interval of a share is that of a ratio of two sums over independent requests
(`trmodel.simulate.intervals`): it says what other requests of the same kind would give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmodel.arrays import FloatArray, IntArray
from trmodel.errors import TrmodelError, UsageError
from trmodel.simulate.intervals import Estimate, ratio

MIN_REQUESTS = 2
_NARROW = 0.9
"""A step that shrinks the bracket by less is followed by one to its middle."""


@dataclass(frozen=True, eq=False)
class Run:
    """What a run of a server at one threshold gave.

    Attributes
    ----------
    tokens
        (R, M): output tokens of each request by the model that wrote them.
    scores
        Of all steps about which the threshold decided, in any order.
    """

    tokens: IntArray
    scores: FloatArray


@dataclass(frozen=True)
class Tried:
    """One threshold and the share of the output that the large model wrote there."""

    threshold: float
    share: Estimate
    tokens: int


@dataclass(frozen=True)
class Calibration:
    """The outcome of a search.

    Attributes
    ----------
    tried
        In the order of the runs.
    reached
        Whether the best is within the tolerance.
    why
        Why the search ended if not.
    """

    target: float
    tolerance: float
    confidence: float
    requests: int
    tried: tuple[Tried, ...]
    reached: bool
    why: str = ""

    @property
    def best(self) -> Tried:
        """The threshold whose share is nearest to the target."""
        return min(self.tried, key=lambda tried: abs(tried.share.value - self.target))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "schema": "trmodel/threshold-calibration",
            "schema_version": 1,
            "target_share": self.target,
            "tolerance": self.tolerance,
            "confidence": self.confidence,
            "requests": self.requests,
            "reached": self.reached,
            "why": self.why,
            "threshold": self.best.threshold,
            "share": self.best.share.value,
            "share_interval": [self.best.share.low, self.best.share.high],
            "runs": [
                {
                    "threshold": tried.threshold,
                    "share": tried.share.value,
                    "share_interval": [tried.share.low, tried.share.high],
                    "tokens": tried.tokens,
                }
                for tried in self.tried
            ],
        }


def calibrate_share(
    run: Callable[[float], Run],
    target: float,
    first: float,
    *,
    above: bool = True,
    tolerance: float = 0.01,
    max_runs: int = 8,
    confidence: float = 0.95,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Search for the threshold with a share of output tokens by the large model, the last.

    Parameters
    ----------
    run
        Given a threshold, runs the requests, always the same ones.
    target
        The share, within 0 and 1.
    first
        Threshold of the first run, whose scores the search starts from.
    above
        Whether scores above the threshold go to the large model, or those below.
    tolerance
        The search ends at a share so near to the target.
    max_runs
        The most runs.
    progress
        Called with runs done and ``max_runs``.

    Raises
    ------
    UsageError
        If an argument makes no sense.
    TrmodelError
        If a run has no output, or too few requests or scores.
    """
    if not 0.0 < target < 1.0:
        raise UsageError(f"target share: must be above 0 and below 1, got {target:g}")
    if not tolerance > 0.0:
        raise UsageError(f"tolerance: must be above 0, got {tolerance:g}")
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence: must be above 0 and below 1, got {confidence:g}")
    if max_runs < 1:
        raise UsageError(f"max runs: must be at least 1, got {max_runs}")
    # Scores and thresholds with their signs turned where low ones pass: then high ones always do.
    sign = 1.0 if above else -1.0
    search = _Search(target)
    tried: list[Tried] = []
    threshold, why = sign * first, ""
    requests = 0
    while True:
        result = run(sign * threshold)
        share = _share(result, confidence)
        requests = len(result.tokens)
        tried.append(Tried(sign * threshold, share, int(result.tokens.sum())))
        if progress:
            progress(len(tried), max_runs)
        search.add(threshold, share.value, sign * np.asarray(result.scores, dtype=float))
        if abs(share.value - target) <= tolerance:
            break
        if len(tried) == max_runs:
            why = f"no share within the tolerance in {max_runs} runs"
            break
        following = search.next()
        if following is None:
            why = "the share jumps over the target between two neighbouring thresholds"
            break
        threshold = following
    return Calibration(target, tolerance, confidence, requests, tuple(tried), not why, why)


def _share(result: Run, confidence: float) -> Estimate:
    tokens = np.asarray(result.tokens, dtype=float)
    if len(tokens) < MIN_REQUESTS:
        raise TrmodelError(f"calibration: {MIN_REQUESTS} requests are needed, got {len(tokens)}")
    if tokens.sum() <= 0.0:
        raise TrmodelError("calibration: a run had no output")
    if not len(result.scores):
        raise TrmodelError("calibration: a run had no scores; does the policy decide by them?")
    found = ratio(tokens[:, -1], tokens.sum(axis=1), confidence)
    return Estimate(found.value, max(found.low, 0.0), min(found.high, 1.0))


class _Search:
    """The bracket of a threshold, and the scores seen. The share falls as the threshold rises."""

    def __init__(self, target: float) -> None:
        self.target = target
        self.low, self.high = -math.inf, math.inf
        self.low_share, self.high_share = 1.0, 0.0
        self.scores = np.empty(0)
        self._width = math.inf

    def add(self, threshold: float, share: float, scores: FloatArray) -> None:
        """Take in a run."""
        self.scores = np.sort(np.concatenate((self.scores, scores)))
        if share > self.target:
            self.low, self.low_share = threshold, share
        else:
            self.high, self.high_share = threshold, share

    def next(self) -> float | None:
        """Return where to try next; None if there is nothing between the ends of the bracket."""
        low, high = self._level(self.low), self._level(self.high)
        fall = self.low_share - self.high_share
        part = (self.low_share - self.target) / fall if fall > 0.0 else 0.5
        if high - low > _NARROW * self._width:
            part = 0.5
        self._width = high - low
        found = float(np.quantile(self.scores, min(max(low + part * (high - low), 0.0), 1.0)))
        if self.low < found < self.high:
            return found
        return self._between()

    def _level(self, threshold: float) -> float:
        """Return the share of the scores that a threshold keeps back."""
        return float(np.searchsorted(self.scores, threshold, side="right")) / len(self.scores)

    def _between(self) -> float | None:
        """Return a threshold within the bracket where no score seen is."""
        spread = float(np.ptp(self.scores)) or 1.0
        low = self.low if math.isfinite(self.low) else min(self.high, self.scores[0]) - spread
        high = self.high if math.isfinite(self.high) else max(self.low, self.scores[-1]) + spread
        middle = 0.5 * (low + high)
        return float(middle) if low < middle < high and high - low > 1e-9 * spread else None
