"""The SGLang engine: requests' caches between steps, and the choice of tokens.

A request that has run keeps its cache here while another model owns it. A step reads what each
request's cache lacks (one token is a decode, more an extend over what is kept) in one pass. Where
the pool has no room, the caches of those that have not run for longest are dropped, and read again
when they run: a request is never lost for want of room. A batch that does not fit at all runs in
parts.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any

from trmodel.errors import TrmodelError
from trmodel.runtime.engines.sglang.adapter import Held, Pass, Runner
from trmodel.runtime.engines.sglang.sampling import NO_TOKEN, choose
from trmodel.runtime.request import Batch, Request, StepResult

log = logging.getLogger(__name__)

MOST_NEW_TOKENS = 8192
"""In one pass of several requests: activations need room beside the caches."""
MOST_FAILURES = 3
"""Steps in a row that fail altogether: the engine is broken, its process must begin anew."""


class SglangEngine:
    """One model's engine.

    Parameters
    ----------
    model
        Its place.
    runner
        The model.
    needs
        What the policy wants of each step; see `StepResult.tensors`.
    vocabulary
        Tokens that there are; logits beyond are cut off.
    """

    def __init__(
        self,
        model: int,
        runner: Runner,
        needs: Collection[str] = (),
        vocabulary: int | None = None,
    ) -> None:
        self.model, self.runner, self.needs = model, runner, frozenset(needs)
        self.vocabulary = vocabulary
        self.dropped = 0
        """Caches given up for want of room."""
        self._held: OrderedDict[int, Held] = OrderedDict()
        """By request; those that ran last are last."""
        self._failures = 0

    @property
    def kv_tokens(self) -> int:
        """Tokens held, of all requests."""
        return self.kv_capacity - self.runner.free_tokens

    @property
    def kv_capacity(self) -> int:
        """Tokens that can be held."""
        return self.runner.capacity

    def step(self, batch: Batch) -> StepResult:
        """See `trmodel.runtime.engines.base.Engine`.

        Where the pass fails, each request is tried alone, so that one that always makes it fail
        ends and the others go on.

        Raises
        ------
        Exception
            What the pass raised, if several steps in a row failed for all their requests.
        """
        try:
            result = self._result(batch.requests, self._passes(batch.requests))
        except Exception as error:
            log.exception("a step of %d requests failed; each is tried alone", len(batch))
            result = self._one_by_one(batch.requests)
            broken = len(result.errors) == len(batch) and not isinstance(error, TrmodelError)
            self._failures = self._failures + 1 if broken else 0
            if self._failures >= MOST_FAILURES:
                raise error
        else:
            self._failures = 0
        return result

    def _one_by_one(self, requests: Sequence[Request]) -> StepResult:
        torch = self.runner.torch
        errors: dict[int, str] = {}
        passes: list[Pass | None] = []
        for place, request in enumerate(requests):
            self.release(request.id)
            try:
                passes += self._passes([request])
            except Exception as error:
                errors[place] = f"{type(error).__name__}: {error}"
                self.release(request.id)
                passes.append(None)
        good = next((one for one in passes if one is not None), None)
        if good is None:
            return StepResult([0] * len(requests), {}, errors)
        empty = Pass(
            torch.zeros_like(good.logits),
            None if good.hidden is None else torch.zeros_like(good.hidden),
        )
        filled = [empty if one is None else one for one in passes]
        result = self._result(requests, filled)
        result.errors.update(errors)
        return result

    def _passes(self, requests: Sequence[Request]) -> list[Pass]:
        """Run the requests together, or in parts if the pool cannot hold them all."""
        tokens = sum(len(request.token_ids) for request in requests)
        new = sum(request.unseen for request in requests)
        fits = tokens <= self.kv_capacity and len(requests) <= self.runner.rows
        if len(requests) == 1 and not fits:
            raise TrmodelError(f"{tokens} tokens exceed the model's cache of {self.kv_capacity}")
        if len(requests) > 1 and (not fits or new > MOST_NEW_TOKENS):
            middle = len(requests) // 2
            return self._passes(requests[:middle]) + self._passes(requests[middle:])
        helds = [self._take(request) for request in requests]
        unseen = [
            request.token_ids[len(held) :] for request, held in zip(requests, helds, strict=True)
        ]
        self._make_room(
            sum(map(len, unseen)),
            sum(not len(held) for held in helds),
            {request.id for request in requests},
        )
        return [self.runner.forward(helds, unseen)]

    def occupy(self, requests: Sequence[Request]) -> None:
        """Hold exactly what requests may hold, up to their anchors, without reading any.

        For timing steps at a context that nobody has to read first.
        """
        for request in requests:
            held = self._take(request)
            if missing := request.token_ids[len(held) : request.anchor]:
                self._make_room(len(missing), not len(held), {one.id for one in requests})
                self.runner.occupy([held], [missing])

    def _take(self, request: Request) -> Held:
        """Return what is held of a request, as far as it agrees with the request's tokens."""
        held = self._held.get(request.id)
        if held is None:
            held = self._held[request.id] = self.runner.new(str(request.id))
        self._held.move_to_end(request.id)
        self.runner.cut(held, request.anchor)
        if len(held):
            assert held.token_ids[-1] == request.token_ids[len(held) - 1], "a stale cache"
        return held

    def _make_room(self, tokens: int, rows: int, keep: Collection[int]) -> None:
        """Drop the caches of requests that wait or are pending, the longest first."""
        for number, held in self._held.items():
            if self.runner.free_tokens >= tokens and self.runner.free_rows >= rows:
                return
            if number not in keep and len(held):
                self.runner.cut(held, 0)
                self.dropped += 1

    def _result(self, requests: Sequence[Request], passes: Sequence[Pass]) -> StepResult:
        torch = self.runner.torch
        with torch.inference_mode():
            logits = _joined(torch, [one.logits for one in passes])
            logits = logits[:, : self.vocabulary].float()
            token_ids = choose(logits, requests, self.model)
            chosen = token_ids.tolist()
            errors = {
                place: "the model's numbers are not finite"
                for place, token in enumerate(chosen)
                if token == NO_TOKEN
            }
            if errors:
                token_ids = token_ids.clamp(min=0)
            tensors = {}
            if "logits" in self.needs:
                tensors["logits"] = logits
            if "hidden" in self.needs:
                tensors["hidden"] = _joined(torch, [one.hidden for one in passes])
            if "embedding" in self.needs:
                tensors["embedding"] = self.runner.embedding(token_ids)
            return StepResult(chosen, tensors, errors)

    def release(self, request: int) -> None:
        """Free the cache of a request; of one that is not known, nothing."""
        held = self._held.pop(request, None)
        if held is not None:
            self.runner.cut(held, 0)


def _joined(torch: Any, parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
