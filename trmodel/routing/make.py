"""Routings of several phases, made from the parameters that describe them.

The presets ``glimprouter`` and ``fixed-length`` are what these functions return by default.
"""

from __future__ import annotations

import numpy as np

from trmodel.errors import UsageError
from trmodel.routing.schema import Routing, RoutingPhase, matrix_rows
from trmodel.system_checks import is_int, is_number

PAIR = ("Qwen3-0.6B", "Qwen3-32B")
MAX_LENGTH = 1000


def glimprouter(
    hand_over: float = 0.3, step_tokens: float = 40.0, models: tuple[str, str] = PAIR
) -> Routing:
    """Return the routing of GlimpRouter, which hands over whole steps of reasoning.

    At the start of each step the small model emits one token as a *probe*, which is discarded. If
    its entropy is high the large model writes the whole step, else the small one does. Lengths of
    steps are taken as geometric; the cut at 512 tokens of the released code is left out.

    Parameters
    ----------
    hand_over
        Probability that a step goes to the large model. It depends on the entropy threshold: the
        default is assumed.
    step_tokens
        Mean length of a step in tokens, at least 1; the default is assumed.
    models
        The small and the large model.

    Raises
    ------
    UsageError
        If a parameter is out of range.

    Source: arXiv:2601.05110 and its released code for the rule, not for the numbers.
    """
    _require_probability(hand_over, "hand_over")
    if not (is_number(step_tokens) and 1.0 <= step_tokens <= 1e6):
        raise UsageError(f"step_tokens: must be a mean of at least 1 token, got {step_tokens}")
    ends = 1.0 / step_tokens
    return Routing(
        name="glimprouter",
        models=models,
        phases=(
            RoutingPhase(name="probe", model=models[0]),
            RoutingPhase(name="small step", model=models[0]),
            RoutingPhase(name="large step", model=models[1]),
        ),
        transition_probability=(
            (0.0, 1.0 - hand_over, hand_over),
            (ends, 1.0 - ends, 0.0),
            (ends, 0.0, 1.0 - ends),
        ),
        committed_tokens=((0, 0, 0), (1, 1, 1), (1, 1, 1)),
        source="rule: released code of arXiv:2601.05110; probability of handing over a step and "
        f"mean length of a step ({hand_over:g}, {step_tokens:g} tokens): assumed",
        note="Lengths of steps are geometric here; the released code cuts them at 512 tokens.",
        paper="arXiv:2601.05110",
    )


def fixed_length(K: int = 4, p: float = 0.1, models: tuple[str, str] = PAIR) -> Routing:
    """Return a routing in which the large model keeps a request for exactly K tokens.

    The small model hands over with probability p after each step, whose token is then replaced;
    the large model writes K tokens, one phase for each, and hands back.

    Parameters
    ----------
    K
        Tokens from 1 to 1000; with many of them the chain is too large and simulation is left.
    p
        Probability that the small model hands over.
    models
        The small and the large model.

    Raises
    ------
    UsageError
        If a parameter is out of range.
    """
    _require_probability(p, "p")
    if not (is_int(K) and 1 <= K <= MAX_LENGTH):
        raise UsageError(f"K: must be a whole number from 1 to {MAX_LENGTH}, got {K}")
    P = np.eye(1 + K, k=1)
    P[0, :2] = 1.0 - p, p
    P[K, 0] = 1.0
    C = np.ones_like(P)
    C[0, 1] = 0.0
    return Routing(
        name="fixed-length",
        models=models,
        phases=(
            RoutingPhase(name="small", model=models[0]),
            *(RoutingPhase(name=f"large {k}", model=models[1]) for k in range(1, K + 1)),
        ),
        transition_probability=matrix_rows(P),
        committed_tokens=matrix_rows(C),
        source=f"p = {p:g} and a hand-over of {K} tokens: assumed",
    )


def _require_probability(value: float, name: str) -> None:
    if not (is_number(value) and 0.0 <= value <= 1.0):
        raise UsageError(f"{name}: must be between 0 and 1, got {value}")
