"""A request as one model knows it, and a batch of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from trmodel.runtime.messages import Sampling


class State(Enum):
    """Where a request stands at a model. A finished one is forgotten but for its number."""

    waiting = "waiting"
    running = "running"
    pending = "pending"
    """Another model owns it; its KV stays."""


@dataclass(slots=True, eq=False)
class Request:
    """One request at one model.

    Attributes
    ----------
    token_ids
        Prompt and committed output, as far as this model has been told.
    prompt
        Length of the prompt.
    anchor
        How many of the tokens this model's KV may hold; the engine cuts it back to so many.
    handoff
        Number of the last handoff accepted or sent.
    seen
        For each model, how many of the tokens it has been told.
    came_at
        When it joined the queue, on the process's clock in seconds.
    left_at
        When the step ended after which it was handed over, on the same clock.
    """

    id: int
    token_ids: list[int]
    prompt: int
    sampling: Sampling
    handoff: int
    steps: int
    seen: list[int]
    state: State = State.pending
    anchor: int = 0
    came_at: float = 0.0
    left_at: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def committed(self) -> int:
        """Output tokens committed so far."""
        return len(self.token_ids) - self.prompt

    @property
    def unseen(self) -> int:
        """Tokens that the model must read before it can go on."""
        return len(self.token_ids) - self.anchor


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that run together.

    Attributes
    ----------
    waited_s
        How long each of them waited.
    woken
        Whether the model was idle before.
    """

    model: int
    requests: list[Request]
    started_at: float
    waited_s: list[float]
    woken: bool = False

    def __len__(self) -> int:
        return len(self.requests)


@dataclass(slots=True)
class StepResult:
    """What a forward pass gave, in the order of the batch.

    Attributes
    ----------
    token_ids
        The token sampled for each request.
    tensors
        What the policy needs besides, on the engine's device: ``logits`` (b, V), float32, before
        temperature; ``hidden`` (b, d), the last hidden state, after the final norm; ``embedding``
        (b, d), the input embedding of the sampled token.
    errors
        By place in the batch: why the engine could not make the step of a request, which ends.
    """

    token_ids: list[int]
    tensors: dict[str, Any] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
