"""Replies that end: completion, and the prefill of the request that comes next.

After every committed token a reply of L tokens on average ends with probability q = 1 / L (its
length is then geometric). A step from phase i to j that commits c_ij tokens ends it with
probability

    e_ij = 1 - (1 - q)^c_ij,

and then commits only the tokens up to the end, on average (e_ij / q - c_ij (1 - e_ij)) / e_ij. So
every step commits e_ij / q tokens on average, and a reply exactly L.

The next request begins in a new phase of the entry model, the *prefill*: its step reads the prompt,
which takes time of its own, and also yields the first token, as a prefill does; so it commits and
routes as a step of the entry phase. Entering the prefill completes the reply before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmodel.errors import UsageError
from trmodel.routing.schema import Routing, RoutingPhase, matrix_rows
from trmodel.system_checks import MAX_LATENCY_MS, is_int, is_number

MAX_REPLY_TOKENS = 1e7


@dataclass(frozen=True)
class Completion:
    """How long replies and prompts are.

    Parameters
    ----------
    reply_tokens
        Mean length of a reply, at least 1.
    prompt_tokens
        Length of a prompt; the time of its prefill comes from the extend table of the profile.
    prefill_ms
        Instead: milliseconds that a prefill adds to its step.

    Raises
    ------
    UsageError
        If a number makes no sense, or not exactly one of the last two is given.
    """

    reply_tokens: float
    prompt_tokens: int | None = None
    prefill_ms: float | None = None

    def __post_init__(self) -> None:
        if not (is_number(self.reply_tokens) and 1.0 <= self.reply_tokens <= MAX_REPLY_TOKENS):
            raise UsageError(
                f"reply_tokens: must be a mean length from 1 to {MAX_REPLY_TOKENS:g} tokens, "
                f"got {self.reply_tokens}"
            )
        if (self.prompt_tokens is None) == (self.prefill_ms is None):
            raise UsageError(
                "prompt_tokens: give the length of a prompt (timed by the extend table of the "
                "profile) or what a prefill takes (prefill_ms or --prefill-ms, 0 for nothing), one "
                "of the two"
            )
        if self.prompt_tokens is not None and not (
            is_int(self.prompt_tokens) and 1 <= self.prompt_tokens <= MAX_REPLY_TOKENS
        ):
            raise UsageError(
                f"prompt_tokens: must be a whole number from 1 to {MAX_REPLY_TOKENS:g}, "
                f"got {self.prompt_tokens}"
            )
        if self.prefill_ms is not None and not (
            is_number(self.prefill_ms) and 0.0 <= self.prefill_ms <= MAX_LATENCY_MS
        ):
            raise UsageError(
                f"prefill_ms: must be from 0 to {MAX_LATENCY_MS:g} ms, got {self.prefill_ms}"
            )


def with_completion(routing: Routing, completion: Completion) -> Routing:
    """Return a routing whose replies end, with a last phase ``prefill`` in which requests start.

    Raises
    ------
    UsageError
        If the routing says already where a reply ends.
    """
    if routing.restart is not None:
        raise UsageError(
            f"reply_tokens: routing {routing.name} says already that a reply ends on entering "
            f"{routing.restart}; leave it out"
        )
    P = np.array(routing.transition_probability)
    C = np.array(routing.committed_tokens)
    q = 1.0 / completion.reply_tokens
    ends = -np.expm1(C * np.log1p(-q)) if q < 1.0 else np.where(C > 0.0, 1.0, 0.0)
    ending = (P * ends).sum(axis=1)
    # Tokens that a step commits when it ends the reply, times the probability of that.
    last_tokens = (P * (ends / q - C * (1.0 - ends))).sum(axis=1)
    mean_last = np.divide(last_tokens, ending, out=np.zeros_like(ending), where=ending > 0.0)
    P = np.column_stack([P * (1.0 - ends), ending])
    C = np.column_stack([C, np.maximum(mean_last, 0.0)])
    entry = routing.entry_index
    prefill = RoutingPhase(
        name="prefill",
        model=routing.all_phases[entry].model,
        added_ms=completion.prefill_ms or 0.0,
        prompt_tokens=completion.prompt_tokens,
    )
    return type(routing).model_validate(
        routing.model_dump(by_alias=True)
        | {
            "phases": (*routing.all_phases, prefill),
            "transition_probability": matrix_rows(np.vstack([P, P[entry]])),
            "committed_tokens": matrix_rows(np.vstack([C, C[entry]])),
            "entry": prefill.name,
            "restart": prefill.name,
        }
    )
