"""Request-level routing: one decision for a whole reply, to compare with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from trmodel.runtime.policies.base import Policy
from trmodel.runtime.policies.bernoulli import uniform
from trmodel.runtime.policies.options import OptionError, number, text, whole
from trmodel.runtime.request import Batch, Request, StepResult

_KEY = "model"
_BEFORE_ALL_STEPS = -1
"""The step whose draw decides: none that a policy by step draws for."""


class RequestLevel(Policy):
    """The large model (place 1) writes the whole reply where one of the conditions given holds.

    Requests start at the small model. Where the large one is to write, the first token is dropped
    and the request handed over for good. The decision depends on seed and prompt alone.

    Parameters
    ----------
    share
        Of the requests, drawn by their seed.
    longer_than
        Prompts of more tokens than this.
    score, above
        ``package.module:function``, which is given the tokens of the prompt and returns a number,
        and the number above which the large model is taken.

    Raises
    ------
    OptionError
        If no condition is given, or one makes no sense.
    """

    models = 2

    def __init__(
        self,
        share: float | None = None,
        longer_than: int | None = None,
        score: str | None = None,
        above: float | None = None,
    ) -> None:
        if share is None and longer_than is None and score is None:
            raise OptionError("share", "this, longer_than or score is needed")
        if (score is None) != (above is None):
            missing = "score" if score is None else "above"
            raise OptionError(missing, "score and above need each other")
        self._share = None if share is None else number("share", share, 0.0, 1.0)
        self._longer_than = None if longer_than is None else whole("longer_than", longer_than, 0)
        self._above = None if above is None else number("above", above)
        self._score = None if score is None else _function(text("score", score))

    def route(self, batch: Batch, result: StepResult) -> list[int]:
        if batch.model == 1:
            return [1] * len(batch)
        return [self._model(request) for request in batch.requests]

    def commit(
        self, request: Request, token_ids: list[int], source: int, destination: int
    ) -> list[int]:
        return [] if source != destination else token_ids

    def _model(self, request: Request) -> int:
        if _KEY not in request.extra:
            request.extra = request.extra | {_KEY: int(self._large(request))}
        return int(request.extra[_KEY])

    def _large(self, request: Request) -> bool:
        drawn = uniform(request.sampling.seed, _BEFORE_ALL_STEPS)
        if self._share is not None and drawn < self._share:
            return True
        if self._longer_than is not None and request.prompt > self._longer_than:
            return True
        if self._score is None or self._above is None:
            return False
        return float(self._score(request.token_ids[: request.prompt])) > self._above


def _function(name: str) -> Callable[[Sequence[int]], Any]:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise OptionError("score", f"{name} is not of the form package.module:function")
    try:
        function: Callable[[Sequence[int]], Any] = getattr(import_module(module), attribute)
    except Exception as error:  # whatever its module does
        raise OptionError("score", f"{name} cannot be loaded: {error}") from error
    if not callable(function):
        raise OptionError("score", f"{name} is no function")
    return function
