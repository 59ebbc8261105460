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

from dataclasses import dataclass
from typing import Any

from trmodel.runtime.messages import Kind, PeerReq
from trmodel.runtime.request import Batch, Request, StepResult


@dataclass(frozen=True, slots=True)
class SmallModel:
    """The first model, which the weights of policies are for.

    Attributes
    ----------
    hidden_size
        Width of its hidden states.
    vocabulary
        Tokens that there are: it gives so many logits.
    """

    hidden_size: int
    vocabulary: int


class Policy:
    """The interface, with defaults: every token is committed, a handoff carries nothing extra.

    Attributes
    ----------
    needs
        What it reads of a step besides the tokens, out of ``logits``, ``hidden``, ``embedding``;
        see `trmodel.runtime.request.StepResult`.
    models
        How many models it goes between; None if any number will do.
    places
        Models that its options name by their place; the server must have them.
    takes_routing
        Whether it is made with ``transition_probability`` and ``committed_tokens`` of the server's
        routing, besides its own options.
    default_routing
        The preset that describes it until its own routing has been measured.
    """

    needs: frozenset[str] = frozenset()
    models: int | None = None
    places: frozenset[int] = frozenset()
    takes_routing: bool = False
    default_routing: str | None = None

    def check_start(self, small: SmallModel | None) -> None:
        """Say what is in the way, once before the processes of a server start.

        Parameters
        ----------
        small
            None where the engine has no weights.

        Raises
        ------
        OptionError
            If an option does not go with the model or with what is there.
        """

    def route(self, batch: Batch, result: StepResult) -> Any:
        """Return the model that goes on with each request of the batch.

        A sequence, or a tensor on the engine's device. With two models booleans will do: True is
        the second.
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
