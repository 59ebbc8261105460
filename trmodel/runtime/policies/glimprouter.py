"""GlimpRouter: one probe token at the start of a reasoning step says who writes the step.

A request is in one of three phases. As a *probe* the small model samples one token, which is
discarded; where the distribution it came from is wide, the large model writes the step, else the
small one. *In a step* the request stays where it is until the step ends, at an empty line or after
so many tokens; the next token is a probe. Where the end of thinking is marked by a token, the
*answer* behind it is the large model's to the end.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from trmodel.runtime.policies.boundary import Boundary
from trmodel.runtime.policies.entropy import entropy
from trmodel.runtime.policies.options import OptionError, text, whole, wholes
from trmodel.runtime.policies.threshold import ThresholdPolicy
from trmodel.runtime.request import Batch, Request, StepResult

PROBE, ANSWER = -1, -2
"""Phases; others are how many tokens the step has."""
_KEY = "step"
_NAN = float("nan")


class GlimpRouter(ThresholdPolicy):
    """Route whole steps by the entropy of their first token.

    The entropy is that of the ``top`` likeliest tokens, renormalised, in nats; a step goes to the
    large model where it is at least the threshold. The phase travels with handoffs and rebuilds.

    Parameters
    ----------
    threshold
        Of the entropy. 1.0 is the released function's default; its example runs have 0.9.
    tokenizer
        Folder of the models' tokenizer, from which the tokens that make empty lines are found.
    boundary, newline
        Or these tokens: each of ``boundary`` ends a step, and so do two of ``newline`` in a row.
    step_tokens
        Most tokens of a step.
    top
        How many tokens the entropy is over.
    think_end
        Tokens that end the thinking.

    Source: arXiv:2601.05110 and github.com/Zengwh02/GlimpRouter (src/glimp_router.py).
    """

    needs = frozenset({"logits"})
    compare = staticmethod(operator.ge)
    default_routing = "glimprouter"

    def __init__(
        self,
        threshold: float = 1.0,
        *,
        tokenizer: str | None = None,
        boundary: Sequence[int] = (),
        newline: Sequence[int] = (),
        step_tokens: int = 512,
        top: int = 20,
        think_end: Sequence[int] = (),
    ) -> None:
        super().__init__(threshold)
        self._step_tokens, self._top = whole("step_tokens", step_tokens, 1), whole("top", top, 1)
        whole_lines, feeds, self._think_end = (
            frozenset(wholes(name, value, "tokens"))
            for name, value in (
                ("boundary", boundary),
                ("newline", newline),
                ("think_end", think_end),
            )
        )
        if (tokenizer is None) == (not whole_lines and not feeds):
            raise OptionError(
                "tokenizer", "this or the tokens that end a step (boundary, newline) are needed"
            )
        self._boundary = (
            Boundary(whole_lines, feeds, feeds)
            if tokenizer is None
            else Boundary.of_tokenizer(text("tokenizer", tokenizer))
        )

    def score(self, batch: Batch, result: StepResult) -> Any:
        """Return the entropy of probes, nan for other tokens."""
        import torch

        logits = result.tensors["logits"]
        found = entropy(logits.topk(min(self._top, logits.shape[-1]), dim=-1).values)
        probes = [self._phase(request) == PROBE for request in batch.requests]
        return found.where(torch.tensor(probes, device=found.device), _NAN)

    def route(self, batch: Batch, result: StepResult) -> Any:
        phases = [self._phase(request) for request in batch.requests]
        after = [
            self._after(request, token)
            for request, token in zip(batch.requests, result.token_ids, strict=True)
        ]
        if batch.model == 1:
            return [int(PROBE not in both) for both in zip(phases, after, strict=True)]
        answers = [phase == ANSWER for phase in after]
        if PROBE not in phases:
            return [int(answer) for answer in answers]
        passes = self.compare(self.score(batch, result), self.threshold)
        return 1 * (passes | passes.new_tensor(answers))

    def commit(
        self, request: Request, token_ids: list[int], source: int, destination: int
    ) -> list[int]:
        phase = self._phase(request)
        if phase == PROBE and source == 1:  # it began there: it goes to the small model first
            return []
        request.extra = request.extra | {_KEY: self._after(request, token_ids[0])}
        return [] if phase == PROBE or (phase == ANSWER and source == 0) else token_ids

    def _phase(self, request: Request) -> int:
        return int(request.extra.get(_KEY, PROBE))

    def _after(self, request: Request, token: int) -> int:
        """Return the phase after a step has sampled this token."""
        phase = self._phase(request)
        if phase == PROBE:
            return 0
        if phase == ANSWER or token in self._think_end:
            return ANSWER
        before = request.token_ids[-1] if phase > 0 else None
        ends = self._boundary.reached(before, token) or phase + 1 >= self._step_tokens
        return PROBE if ends else phase + 1
