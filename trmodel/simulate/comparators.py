"""What else could serve the same N requests with the same models: systems without token routing.

- *Request-level routing* sends a share q of the questions to the large model and leaves the whole
  reply there; each model batches the requests that it has, continuously. With geometric lengths of
  R tokens on average a request moves after each token with probability 1 / R to the model of the
  next question: p_SL = q / R, p_LS = (1 - q) / R, B = (1, 1), and a token for every step.
- *One model only* runs all N requests in one batch: N / L(N).

Steps are decode steps: nothing is handed over, no router runs.

**Share of tokens by the large model**, the common measure of quality: for token-level routing the
long-run share of steps of each phase, by the routing matrix alone, weighted with the tokens that
a step commits; for request-level routing q.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trmodel.errors import UsageError
from trmodel.simulate.paired import Case
from trmodel.system import RoutedSystem
from trmodel.system_checks import is_positive

DEFAULT_SHARE_PERCENT = 40.0
DEFAULT_REPLY_TOKENS = 500.0


def small_and_large(system: RoutedSystem) -> tuple[int, int]:
    """Return which model is the large one, slowest with one request, and the fastest other.

    Raises
    ------
    UsageError
        If there is one model only.
    """
    if system.M < 2:
        raise UsageError("system: one model only; there is nothing to compare routing with")
    alone = system.latency_ms[:, 0]
    return int(np.argmin(alone)), system.M - 1 - int(np.argmax(alone[::-1]))


def one_model_only(system: RoutedSystem, i: int) -> Case:
    """Return model i with all requests to itself, so that it is never idle."""
    only = RoutedSystem(
        [system.models[i]],
        [system.latency_ms[i, : system.max_batch[i]]],
        [[1.0]],
        [[1.0]],
        system.N,
        max_batch=system.max_batch[i],
        grid_ms=system.grid_ms,
    )
    return Case(only, (1,))


def request_level(
    system: RoutedSystem,
    share_percent: float = DEFAULT_SHARE_PERCENT,
    reply_tokens: float = DEFAULT_REPLY_TOKENS,
) -> Case:
    """Return request-level routing between the small and the large model of a system.

    Parameters
    ----------
    system
        With decode latencies; its routing is not used, slow-downs and waking are.
    share_percent
        Of the questions that the large model answers.
    reply_tokens
        Mean length of a reply.

    Raises
    ------
    UsageError
        If an argument makes no sense.
    """
    if not 0.0 < share_percent < 100.0:
        raise UsageError(f"share_percent: must be between 0 and 100, got {share_percent:g}")
    if not (is_positive(reply_tokens) and reply_tokens >= 1.0):
        raise UsageError(f"reply_tokens: must be at least 1, got {reply_tokens:g}")
    pair = small_and_large(system)
    q = share_percent / 100.0
    to_large, to_small = q / reply_tokens, (1.0 - q) / reply_tokens
    both = (1 << pair[0]) | (1 << pair[1])
    routed = RoutedSystem(
        [system.models[i] for i in pair],
        [system.latency_ms[i, : system.max_batch[i]] for i in pair],
        [[1.0 - to_large, to_large], [to_small, 1.0 - to_small]],
        [[1.0, 1.0], [1.0, 1.0]],
        system.N,
        max_batch=[system.max_batch[i] for i in pair],
        grid_ms=system.grid_ms,
        slow_down={(0, 1): tuple(float(system.slow_down[both, i]) for i in pair)},  # type: ignore[dict-item]
        wake_ms=system.wake_ms[list(pair)],
    )
    return Case(routed, (1, 1))


def token_shares(system: RoutedSystem) -> Sequence[float]:
    """Return the share of all committed tokens that each model commits in the long run; (M,).

    Where routing can end in several closed sets, the average over where it ends.
    """
    # A damped step has the same long-run shares and no period; squaring reaches them.
    step = 0.5 * (system.transition_probability + np.eye(system.U))
    for _ in range(64):
        step = step @ step
        step /= step.sum(axis=1, keepdims=True)
    tokens = step[system.entry] * system.tokens_per_step
    by_model = np.bincount(system.phase_model, tokens, minlength=system.M)
    return [float(share) for share in by_model / by_model.sum()]
