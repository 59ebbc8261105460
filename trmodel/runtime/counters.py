"""What a subserver counts: steps, waits and transitions, in totals since it started.

Totals and not differences are sent, so that a message that is late or missing loses nothing; the
reader takes differences of totals over the window that it looks at.
"""

from __future__ import annotations

from typing import Any

from trmodel.runtime.request import Batch


class Counters:
    """Counts of one model among M."""

    def __init__(self, M: int) -> None:
        self.batches: dict[int, list[float]] = {}
        """By batch size: batches, summed step time, summed squares of it; seconds."""
        self.threshold_wait_s = 0.0
        """Request-seconds in the queue while the model was idle."""
        self.batch_wait_s = 0.0
        """Request-seconds in the queue while it ran."""
        self.forward_s = 0.0
        """Request-seconds in running batches."""
        self.route_s = 0.0
        """Request-seconds from the end of a step to the handing on."""
        self.extended = 0
        """Tokens read beyond one for each request."""
        self.transitions = [0] * M
        self.committed = [0] * M
        """Tokens committed on the way to each model."""
        self.handoffs = 0
        self._idle_since = float("-inf")

    def started(self, batch: Batch) -> None:
        """Count the waits of a batch that starts."""
        for waited in batch.waited_s:
            idle = max(min(waited, batch.started_at - self._idle_since), 0.0)
            self.threshold_wait_s += idle
            self.batch_wait_s += waited - idle
        self.extended += sum(max(request.unseen - 1, 0) for request in batch.requests)

    def stepped(self, batch: Batch, ended_at: float, handed_on_at: float) -> None:
        """Count a step that ended."""
        took, size = ended_at - batch.started_at, len(batch)
        entry = self.batches.setdefault(size, [0, 0.0, 0.0])
        entry[0] += 1
        entry[1] += took
        entry[2] += took * took
        self.forward_s += size * took
        self.route_s += size * (handed_on_at - ended_at)
        self._idle_since = handed_on_at

    def moved(self, destination: int, tokens: int, *, away: bool) -> None:
        """Count a request that a step sent to a model."""
        self.transitions[destination] += 1
        self.committed[destination] += tokens
        self.handoffs += away

    def values(self, **now: Any) -> dict[str, Any]:
        """Return the totals as plain values, with what else is true now."""
        return {
            "batches": {str(size): entry for size, entry in sorted(self.batches.items())},
            "threshold_wait_s": self.threshold_wait_s,
            "batch_wait_s": self.batch_wait_s,
            "forward_s": self.forward_s,
            "route_s": self.route_s,
            "extended": self.extended,
            "transitions": self.transitions,
            "committed": self.committed,
            "handoffs": self.handoffs,
            **now,
        }
