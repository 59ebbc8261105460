"""What a subserver counts: steps, waits and transitions, in totals since it started.

Totals and not differences are sent, so that a message that is late or missing loses nothing; the
reader takes differences of totals over the window that it looks at.
"""

from __future__ import annotations

from math import exp, floor, log, sqrt
from typing import Any

from trmodel.runtime.request import Batch

_BIN = log(1.005)
"""Width of the bins of times on a logarithmic scale, 0.5 %: few enough to be told often."""

Bins = dict[int, int]
"""How many times fell into each bin."""


class Counters:
    """Counts of one model among M."""

    def __init__(self, M: int) -> None:
        self.batches: dict[int, list[float]] = {}
        """By batch size: batches, summed step time, summed squares of it; seconds.

        A step lasts from its start until the model can start the next: handing on is in it.
        """
        self.step_bins: dict[int, Bins] = {}
        """By batch size: steps by the bin of their time; see `quantile_s`."""
        self.idle_starts: dict[int, int] = {}
        """By batch size: steps before which the model was idle, if only for a moment."""
        self.arrivals = [[0, 0.0] for _ in range(M)]
        """By source: handoffs taken in, and seconds since the end of the step that made them."""
        self.arrival_bins: list[Bins] = [{} for _ in range(M)]
        self.threshold_wait_s = 0.0
        """Request-seconds in the queue while the model was idle."""
        self.batch_wait_s = 0.0
        """Request-seconds in the queue while it ran."""
        self.forward_s = 0.0
        """Request-seconds in running batches, until the engine was done."""
        self.extend_s = 0.0
        """Those of them in batches that were no mere decodes: some request read several tokens."""
        self.route_s = 0.0
        """Request-seconds from the end of a step to the handing on."""
        self.extended = 0
        """Tokens read beyond one for each request."""
        self.context = 0
        """Tokens that requests had when a step on them began, summed over request-steps."""
        self.transitions = [0] * M
        self.committed = [0] * M
        """Tokens committed on the way to each model."""
        self.handoffs = 0
        self._idle_since = float("-inf")
        self._extends = False
        """Whether the running batch is an extend."""

    def started(self, batch: Batch) -> None:
        """Count the waits of a batch that starts, and tell it whether the model was idle."""
        for waited in batch.waited_s:
            idle = max(min(waited, batch.started_at - self._idle_since), 0.0)
            self.threshold_wait_s += idle
            self.batch_wait_s += waited - idle
        extended = sum(max(request.unseen - 1, 0) for request in batch.requests)
        self.extended += extended
        self._extends = extended > 0
        batch.woken = batch.started_at > self._idle_since
        self.context += sum(len(request.token_ids) for request in batch.requests)

    def stepped(self, batch: Batch, ended_at: float, handed_on_at: float) -> None:
        """Count a step that ended."""
        took, size = handed_on_at - batch.started_at, len(batch)
        entry = self.batches.setdefault(size, [0, 0.0, 0.0])
        entry[0] += 1
        entry[1] += took
        entry[2] += took * took
        _count(self.step_bins.setdefault(size, {}), took)
        if batch.woken:
            self.idle_starts[size] = self.idle_starts.get(size, 0) + 1
        forward_s = size * (ended_at - batch.started_at)
        self.forward_s += forward_s
        if self._extends:
            self.extend_s += forward_s
        self.route_s += size * (handed_on_at - ended_at)
        self._idle_since = handed_on_at

    def arrived(self, source: int, lag_s: float) -> None:
        """Count a handoff that joined the queue so long after the step that made it."""
        entry = self.arrivals[source]
        entry[0] += 1
        entry[1] += lag_s
        _count(self.arrival_bins[source], lag_s)

    def moved(self, destination: int, tokens: int, *, away: bool) -> None:
        """Count a request that a step sent to a model."""
        self.transitions[destination] += 1
        self.committed[destination] += tokens
        self.handoffs += away

    def values(self, **now: Any) -> dict[str, Any]:
        """Return the totals as plain values, with what else is true now."""
        return {
            "batches": {str(size): entry for size, entry in sorted(self.batches.items())},
            "step_bins": {str(size): _plain(bins) for size, bins in sorted(self.step_bins.items())},
            "idle_starts": _plain(self.idle_starts),
            "arrivals": self.arrivals,
            "arrival_bins": [_plain(bins) for bins in self.arrival_bins],
            "threshold_wait_s": self.threshold_wait_s,
            "batch_wait_s": self.batch_wait_s,
            "forward_s": self.forward_s,
            "extend_s": self.extend_s,
            "route_s": self.route_s,
            "extended": self.extended,
            "context": self.context,
            "transitions": self.transitions,
            "committed": self.committed,
            "handoffs": self.handoffs,
            **now,
        }


def _count(bins: Bins, seconds: float) -> None:
    place = floor(log(min(max(seconds, 1e-6), 600.0)) / _BIN)
    bins[place] = bins.get(place, 0) + 1


def _plain(bins: Bins) -> dict[str, int]:
    return {str(place): count for place, count in bins.items()}


def summary(bins: Bins, most: float) -> dict[str, float]:
    """Return count, mean, median and standard deviation of the times up to ``most`` medians.

    A step that takes much longer than its like was held up by something else on the machine; how
    many are, ``left_out`` says. Milliseconds, within 0.1 %; none of a count of 0.
    """
    median = quantile_s(bins, 0.5)
    times = [(exp((place + 0.5) * _BIN), count) for place, count in bins.items()]
    kept = [(time, count) for time, count in times if time <= most * median]
    held = sum(count for _, count in kept)
    if not held:
        return {"count": 0, "left_out": 0}
    mean = sum(count * time for time, count in kept) / held
    variance = sum(count * (time - mean) ** 2 for time, count in kept) / held
    return {
        "count": held,
        "mean_ms": 1000.0 * mean,
        "median_ms": 1000.0 * median,
        "deviation_ms": 1000.0 * sqrt(variance),
        "left_out": sum(bins.values()) - held,
    }


def late(bins: Bins, most: float) -> list[tuple[float, int]]:
    """Return for times above ``most`` medians by how much they exceed one, and how many do."""
    median = quantile_s(bins, 0.5)
    times = [(exp((place + 0.5) * _BIN), count) for place, count in bins.items()]
    return [(time - median, count) for time, count in times if time > most * median]


def quantile_s(bins: Bins, q: float) -> float:
    """Return a quantile of step times counted by bin, in seconds, to half a bin; nan if none."""
    wanted, seen = q * sum(bins.values()), 0
    for place, count in sorted(bins.items()):
        seen += count
        if seen >= wanted and count:
            return exp((place + 0.5) * _BIN)
    return float("nan")
