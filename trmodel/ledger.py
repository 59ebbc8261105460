"""The cost ledger: where the time between committed tokens goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CostLedger:
    """Request-time per committed token, in milliseconds, by what it is spent on.

    Attributes
    ----------
    forward_ms
        In a running batch.
    threshold_wait_ms
        In the queue of an idle model, until its threshold is met.
    batch_wait_ms
        In the queue of a model that runs a batch.
    handoff_ms
        On the way between models; the exact chain has none.
    """

    forward_ms: float
    threshold_wait_ms: float
    batch_wait_ms: float
    handoff_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        """The sum of the parts; over all models it is N / T."""
        return self.forward_ms + self.threshold_wait_ms + self.batch_wait_ms + self.handoff_ms
