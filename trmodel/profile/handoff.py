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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trmodel.arrays import FloatArray
from trmodel.profile.schema import Profile


@dataclass(frozen=True, eq=False)
class HandedOver:
    """What comes to each model by handoff; arrays of shape (M,).

    Parameters
    ----------
    fraction
        Of the requests in a step of the model, those that came from another model; the rest stayed
        after a step of the same model. A request makes 1 / (1 - p_ii) steps per visit on average,
        so this is 1 - p_ii; 0 for a model that is never left.
    new_tokens
        Mean number of tokens that such a request brings unseen; nan for a model that is never
        left, or never entered again.
    """

    fraction: FloatArray
    new_tokens: FloatArray


def handed_over(transition_probability: ArrayLike, committed_tokens: ArrayLike) -> HandedOver:
    """Return the share of handed-over requests and the unseen tokens they bring, by model.

    Parameters
    ----------
    transition_probability, committed_tokens
        (M, M) matrices p_ij and c_ij; see :class:`trmodel.system.RoutedSystem`.
    """
    P = np.asarray(transition_probability, dtype=np.float64)
    C = np.asarray(committed_tokens, dtype=np.float64)
    new = [_unseen_tokens(P, C, i) for i in range(len(P))]
    return HandedOver(fraction=1.0 - np.diag(P), new_tokens=np.array(new))


def _unseen_tokens(P: FloatArray, C: FloatArray, i: int) -> float:
    # Only models from which i can be reached: the system of the others may be singular.
    others = [j for j in _reaching(P, i) if j != i]
    if not P[i, others].any():
        return float("nan")
    away = np.eye(len(others)) - P[np.ix_(others, others)]
    back = np.linalg.solve(away, P[others, i])
    onward = (P * C)[np.ix_(others, others)] @ back + (P * C)[others, i]
    tokens = np.linalg.solve(away, onward)
    leaving = P[i, others]
    return float(leaving @ (C[i, others] * back + tokens) / (leaving @ back))


def _reaching(P: FloatArray, i: int) -> list[int]:
    seen = [i]
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
