"""Policies that compare a score with a threshold.

The small model (place 0) goes on with a request until the score of a step passes the threshold.
The token just sampled is then dropped, and the large model (place 1) writes it anew. What the large
model samples is always kept; it returns the request after one token, or (`both_ways`) as soon as
the score of its own step does not pass.
"""

from __future__ import annotations

import operator
from typing import Any

from trmodel.runtime.policies.base import Policy
from trmodel.runtime.policies.options import number
from trmodel.runtime.request import Batch, Request, StepResult


class ThresholdPolicy(Policy):
    """A policy of two models by a scalar score.

    Parameters
    ----------
    threshold
        In units of the score.

    Attributes
    ----------
    compare
        ``compare(score, threshold)`` says where a score passes.
    both_ways
        Whether the large model's steps are scored too.

    Raises
    ------
    OptionError
        If the threshold is no finite number.
    """

    models = 2
    compare = staticmethod(operator.gt)
    both_ways: bool = False

    def __init__(self, threshold: float) -> None:
        self.threshold = number("threshold", threshold)

    @property
    def above(self) -> bool:
        """Whether high scores are those that pass."""
        return bool(self.compare(1.0, 0.0))

    def score(self, batch: Batch, result: StepResult) -> Any:
        """Return the score of each request's step, (b,), an array or a tensor.

        nan where nothing is decided.
        """
        raise NotImplementedError

    def scores(self, batch: Batch) -> bool:
        """Whether the score decides about this batch."""
        return batch.model == 0 or self.both_ways

    def route(self, batch: Batch, result: StepResult) -> Any:
        if not self.scores(batch):
            return [0] * len(batch)
        return 1 * self.compare(self.score(batch, result), self.threshold)

    def commit(
        self, request: Request, token_ids: list[int], source: int, destination: int
    ) -> list[int]:
        return [] if (source, destination) == (0, 1) else token_ids
