"""Routing by a given sequence, for tests and for repeating recorded decisions."""

from __future__ import annotations

from collections.abc import Sequence

from trmodel.runtime.policies.base import Policy
from trmodel.runtime.policies.options import OptionError, wholes
from trmodel.runtime.request import Batch, Request, StepResult

_PLACES = "models by their place: 0, 1, ..."


class Scripted(Policy):
    """The n-th step of every request is followed by the n-th model of the script, over and over.

    Parameters
    ----------
    script
        Models by their place; repeated when it ends.
    drop_on_leaving
        Models whose token is not committed when the request leaves them (R2R's small model).

    Raises
    ------
    OptionError
        If the script is empty, or something is not the place of a model.
    """

    def __init__(self, script: Sequence[int], drop_on_leaving: Sequence[int] = ()) -> None:
        self.script = wholes("script", script, _PLACES)
        if not self.script:
            raise OptionError("script", "must not be empty")
        self.drop_on_leaving = frozenset(wholes("drop_on_leaving", drop_on_leaving, _PLACES))
        self.places = frozenset(self.script) | self.drop_on_leaving

    def route(self, batch: Batch, result: StepResult) -> list[int]:
        return [self.script[request.steps % len(self.script)] for request in batch.requests]

    def commit(
        self, request: Request, token_ids: list[int], source: int, destination: int
    ) -> list[int]:
        return [] if source != destination and source in self.drop_on_leaving else token_ids
