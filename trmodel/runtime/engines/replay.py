"""The replay engine: a step takes as long as the profile says, tokens are made up.

Everything around it is the real executor. The token of a request depends on its seed, its
position and the model alone, so that a rebuilt request goes on as it would have.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from trmodel.runtime.policies.bernoulli import uniform
from trmodel.runtime.request import Batch, Request, StepResult

VOCABULARY = 256
"""Token ids are bytes; made-up ones are lower-case letters and spaces."""
_LETTERS = b"etaoin shrdlu etaoin shrdlu"


class ReplayEngine:
    """Waits instead of computing.

    Parameters
    ----------
    model
        Its place.
    latency_ms
        Of batches of 1, 2, ... requests; the last holds for larger ones.
    wake_ms
        Of a step before which the model was idle, so much more.
    added_ms_per_token
        For each token beyond the first that a request's cache lacks (an extend).
    """

    def __init__(
        self,
        model: int,
        latency_ms: Sequence[float],
        wake_ms: float = 0.0,
        added_ms_per_token: float = 0.0,
    ) -> None:
        self.model = model
        self.latency_s = [value / 1000.0 for value in latency_ms]
        self.wake_s = wake_ms / 1000.0
        self.added_s = added_ms_per_token / 1000.0
        self._held: dict[int, int] = {}

    @property
    def kv_tokens(self) -> int:
        """Tokens held, of all requests."""
        return sum(self._held.values())

    def step(self, batch: Batch) -> StepResult:
        end = batch.started_at + self.latency_s[min(len(batch), len(self.latency_s)) - 1]
        if batch.woken:
            end += self.wake_s
        if self.added_s:
            end += self.added_s * sum(max(request.unseen - 1, 0) for request in batch.requests)
        for request in batch.requests:
            self._held[request.id] = len(request.token_ids)
        # The clock is that of `batch.started_at`.
        while (left := end - time.monotonic()) > 0.0:
            time.sleep(left)
        return StepResult([self.token(request) for request in batch.requests])

    def occupy(self, requests: Sequence[Request]) -> None:
        """Hold what requests may hold, up to their anchors; for timing steps at a context."""
        self._held.update((request.id, request.anchor) for request in requests)

    def token(self, request: Request) -> int:
        """The made-up token at the end of a request."""
        draw = uniform(request.sampling.seed + 7 * self.model, len(request.token_ids))
        return _LETTERS[int(draw * len(_LETTERS))]

    def release(self, request: int) -> None:
        self._held.pop(request, None)
