"""A routing policy: after every step it says which model goes on with each request.

A policy of one's own needs one method::

    from trmodel.runtime.policies import Policy

    class EveryThird(Policy):
        def route(self, batch, result):
            return [1 if request.committed % 3 == 2 else 0 for request in batch.requests]

It is named in the server's file as ``policy: package.module:EveryThird``, or by the name of an
entry point of the group ``trmodel.policies``.
"""

from __future__ import annotations

from collections.abc import Sequence

from trmodel.runtime.messages import Kind, PeerReq
from trmodel.runtime.request import Batch, Request, StepResult


class Policy:
    """The interface, with defaults: every token is committed, a handoff carries nothing extra."""

    needs: frozenset[str] = frozenset()
    """What `route` wants of every step; see `StepResult.tensors`."""

    def route(self, batch: Batch, result: StepResult) -> Sequence[int]:
        """Return the model that goes on with each request of the batch.

        With two models booleans will do: True is the second.
        """
        raise NotImplementedError

    def commit(
        self, request: Request, token_ids: list[int], source: int, destination: int
    ) -> list[int]:
        """Return those of a step's tokens that become output; all of them by default."""
        return token_ids

    def send(self, request: Request, source: int, destination: int) -> PeerReq:
        """Make the message that hands a request over: the tokens that the receiver lacks."""
        anchor = request.seen[destination]
        return PeerReq(
            request=request.id,
            handoff=request.handoff,
            source=source,
            destination=destination,
            kind=Kind.handoff,
            anchor=anchor,
            token_ids=tuple(request.token_ids[anchor:]),
            prompt=request.prompt,
            steps=request.steps,
            seen=tuple(request.seen),
            sampling=request.sampling,
            extra=request.extra,
            left_at=request.left_at,
        )

    def receive(self, message: PeerReq, request: Request) -> None:
        """Take in what a handoff carries besides tokens."""
        request.extra = message.extra
