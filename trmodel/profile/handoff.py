"""Handoffs: what a request brings to the model that takes it over, and how long it is under way.

Per request, a step at model i ends with probability p_ij at model j, and c_ij tokens are committed
then. While a request is with other models they commit tokens that model i has not seen; when it
comes back, i must read them: an *extend* of

    new_i = E[tokens committed from the handoff away from i, its own included, until the step that
              hands the request back to i, that one included].

With H_ji = P(the request ever comes to i | it is at j), given by h = p_·i + P' h without row and
column i, the tokens on the way back, u_j = E[tokens; it comes back], follow from the same matrix,

    (I - P') u = r,   r_j = sum_{k != i} p_jk c_jk h_k + p_ji c_ji,

    new_i = sum_{j != i} p_ij (c_ij h_j + u_j) / sum_{j != i} p_ij h_j,

the mean over the requests that do come back. For r2r (p = 0.35) the large model is handed
1 + 0.65 / 0.35 = 1 / p = 2.857 tokens and the small model 1.

With several phases per model "at i" means in one of its phases, and each phase from which a request
leaves counts by its share x of the model's steps in the long run. A phase that opens a new reply
ends what can be unseen; one that adds a time of its own says by itself what its step reads, so that
entering it counts neither as a handoff nor as coming back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trmodel.arrays import FloatArray, IntArray
from trmodel.profile.schema import Profile


@dataclass(frozen=True, eq=False)
class HandedOver:
    """What comes to each model by handoff; arrays of shape (M,).

    Parameters
    ----------
    fraction
        Of the requests in a step of the model, those that came from another model; the rest stayed
        after a step of the same model. A request makes 1 / (1 - p_ii) steps per visit on average,
        so this is 1 - p_ii; 0 for a model that is never left. With several phases, the rate at
        which requests enter the model by the rate of its steps.
    new_tokens
        Mean number of tokens that such a request brings unseen; nan for a model that is never
        left, or never entered again.
    """

    fraction: FloatArray
    new_tokens: FloatArray


def handed_over(
    transition_probability: ArrayLike,
    committed_tokens: ArrayLike,
    phase_model: Sequence[int] | None = None,
    *,
    entry: int = 0,
    restart: int | None = None,
    own: Collection[int] = (),
) -> HandedOver:
    """Return the share of handed-over requests and the unseen tokens they bring, by model.

    Parameters
    ----------
    transition_probability, committed_tokens
        (U, U) matrices p_ij and c_ij; see :class:`trmodel.system.RoutedSystem`.
    phase_model
        Model of each of the U phases; None for one phase per model.
    entry
        Phase in which requests start.
    restart
        Phase that opens a new reply, if any.
    own
        Phases that say by themselves what their step reads.
    """
    P = np.asarray(transition_probability, dtype=np.float64)
    C = np.asarray(committed_tokens, dtype=np.float64)
    if phase_model is None:
        new = [_unseen_tokens(P, C, [i], np.ones(1)) for i in range(len(P))]
        return HandedOver(fraction=1.0 - np.diag(P), new_tokens=np.array(new))
    model = np.asarray(phase_model)
    share = _long_run(P, entry)
    silent = sorted({*own} if restart is None else {*own, restart})
    fraction, tokens = [], []
    for i in range(model.max() + 1):
        inside = np.flatnonzero(model == i)
        entered = P.copy()
        entered[:, [u for u in silent if model[u] == i or u == restart]] = 0.0
        steps = share[inside]
        steps = steps / steps.sum() if steps.any() else steps
        coming = share[model != i] @ entered[np.ix_(model != i, inside)]
        fraction.append(min(coming.sum() / share[inside].sum(), 1.0) if steps.any() else 0.0)
        tokens.append(_unseen_tokens(entered, C, inside, steps))
    return HandedOver(fraction=np.array(fraction), new_tokens=np.array(tokens))


def _long_run(P: FloatArray, entry: int) -> FloatArray:
    """Share of steps in each phase over a run of some ten million steps from the entry."""
    ends = 1e-7
    start = np.zeros(len(P))
    start[entry] = ends
    share = np.linalg.solve(np.eye(len(P)) - (1.0 - ends) * P.T, start)
    return np.asarray(np.maximum(share, 0.0))


def _unseen_tokens(
    P: FloatArray, C: FloatArray, inside: Sequence[int] | IntArray, steps: FloatArray
) -> float:
    """Mean tokens brought to the model of the phases inside, which have these shares of steps."""
    inside = list(inside)
    # Only phases from which the model can be reached: the system of the others may be singular.
    others = [j for j in _reaching(P, inside) if j not in inside]
    if not (steps @ P[np.ix_(inside, others)]).any():
        return float("nan")
    away = np.eye(len(others)) - P[np.ix_(others, others)]
    back = np.linalg.solve(away, P[np.ix_(others, inside)].sum(axis=1))
    PC = P * C
    onward = PC[np.ix_(others, others)] @ back + PC[np.ix_(others, inside)].sum(axis=1)
    tokens = np.linalg.solve(away, onward)
    brought = [P[i, others] @ (C[i, others] * back + tokens) for i in inside]
    coming_back = [P[i, others] @ back for i in inside]
    return float(steps @ np.array(brought) / (steps @ np.array(coming_back)))


def _reaching(P: FloatArray, phases: Sequence[int]) -> list[int]:
    seen = list(phases)
    for j in seen:
        seen += [int(k) for k in np.flatnonzero(P[:, j]) if k not in seen]
    return sorted(seen)


def handoff_latency(profile: Profile, names: Sequence[str]) -> FloatArray:
    """Return the delay between leaving model i and joining the queue of model j.

    Parameters
    ----------
    profile
        With or without handoff latencies; without, all are 0.
    names
        M models of the profile, in the order wanted.

    Returns
    -------
    array
        d_ij in milliseconds, (M, M), with a diagonal of zeros.
    """
    M = len(names)
    if profile.handoff is None:
        return np.zeros((M, M))
    delay = np.full((M, M), profile.handoff.latency_ms)
    np.fill_diagonal(delay, 0.0)
    for pair in profile.handoff.pairs:
        if pair.source in names and pair.destination in names:
            delay[names.index(pair.source), names.index(pair.destination)] = pair.latency_ms
    return delay
