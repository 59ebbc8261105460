"""What an engine does: forward passes, and the KV cache behind them."""

from __future__ import annotations

from typing import Protocol

from trmodel.runtime.request import Batch, StepResult


class Engine(Protocol):
    """One model's engine; one thread calls it, and `step` blocks for as long as the pass takes."""

    @property
    def kv_tokens(self) -> int:
        """Tokens held in the cache, of all requests."""
        ...

    def step(self, batch: Batch) -> StepResult:
        """Read what each request's cache lacks and sample one token for each."""
        ...

    def release(self, request: int) -> None:
        """Free the cache of a request; of one that is not known, nothing."""
        ...
