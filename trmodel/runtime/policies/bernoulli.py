"""Routing at random with fixed probabilities, for experiments."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate

from trmodel.runtime.policies.base import Policy
from trmodel.runtime.request import Batch, Request, StepResult

_MASK = (1 << 64) - 1


class Bernoulli(Policy):
    """After a step at model i a request goes to model j with probability p_ij.

    The decision depends on the request's seed and the number of its step alone: the same request
    is routed the same way whatever else is served, and again after a rebuild.

    Parameters
    ----------
    transition_probability, committed_tokens
        p_ij and c_ij; a step's one token is committed where c_ij is at least 1.
    """

    takes_routing = True

    def __init__(
        self,
        transition_probability: Sequence[Sequence[float]],
        committed_tokens: Sequence[Sequence[float]],
    ) -> None:
        self._keeps = [[tokens >= 1 for tokens in row] for row in committed_tokens]
        self._ends = [_inner_ends(row) for row in transition_probability]

    def route(self, batch: Batch, result: StepResult) -> list[int]:
        ends = self._ends[batch.model]
        return [
            bisect(ends, uniform(request.sampling.seed, request.steps))
            for request in batch.requests
        ]

    def commit(
        self, request: Request, token_ids: list[int], source: int, destination: int
    ) -> list[int]:
        return token_ids if self._keeps[source][destination] else []


def uniform(seed: int, step: int, stream: int = 0) -> float:
    """A number in [0, 1) that belongs to a step of a request (SplitMix64).

    Other streams are for other choices of the same request.
    """
    z = (
        seed * 0xD1342543DE82EF95 + (step + 1) * 0x9E3779B97F4A7C15 + stream * 0xA0761D6478BD642F
    ) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) / (1 << 53)


def _inner_ends(row: Sequence[float]) -> list[float]:
    """Where each destination's share of [0, 1) ends, but for the last that can be drawn."""
    last = max(j for j, p in enumerate(row) if p > 0.0)
    return list(accumulate(row))[:last]
