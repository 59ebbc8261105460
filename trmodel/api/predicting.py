"""Predictions under given thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trmodel.api.common import DEFAULT_PROFILE, AnyProfile, does_not_fit, probabilities
from trmodel.documents import StrPath
from trmodel.markov import Limits, Prediction, Solver, predict_chain
from trmodel.profile import (
    Context,
    build_system,
    load_profile,
)
from trmodel.routing import Completion, Routing
from trmodel.search.tune import Progress


def predict(
    profile: AnyProfile = DEFAULT_PROFILE,
    *,
    N: int,
    B: Sequence[int],
    routing: StrPath | Routing | None = None,
    p: float | None = None,
    context: Context | None = None,
    completion: Completion | None = None,
    max_batch: int | None = None,
    grid_ms: float | None = None,
    solver: Solver = "auto",
    limits: Limits = Limits(),
) -> Prediction:
    """Predict throughput and what goes with it under one threshold vector.

    Requests that do not fit into GPU memory are not refused, the prediction warns of them.

    Parameters
    ----------
    profile
        A built-in name, a path, or a profile.
    N
        Concurrent requests.
    B
        One threshold for each model of the routing.
    routing
        A preset's name, a path, or a routing; None for the profile's default.
    p
        Probability that the first of two models hands over, in place of the routing's.
    context
        Tokens of context of every request, or (low, high) for one that grows over a reply; None
        for the profile's.
    completion
        How long replies and prompts are; None for replies without end.
    max_batch
        The most requests in one step of any model.
    grid_ms
        Time unit of the chain in milliseconds; None for the profile's.

    Raises
    ------
    TrmodelError
        One of its subclasses; see `trmodel.errors`.

    Examples
    --------
    >>> round(predict("a100-paper", N=4, B=(1, 3)).throughput_tok_s, 1)
    208.0
    """
    loaded = load_profile(profile)
    system = build_system(
        loaded,
        N,
        routing,
        p=p,
        max_batch=max_batch,
        grid_ms=grid_ms,
        context=context,
        completion=completion,
    )
    prediction = predict_chain(system, B, solver=solver, limits=limits)
    unfit = does_not_fit(loaded, N, routing, context)
    return replace(prediction, warnings=(*prediction.warnings, *unfit))


def sweep_predictions(
    values: Sequence[float],
    profile: AnyProfile = DEFAULT_PROFILE,
    *,
    N: int,
    B: Sequence[int],
    progress: Progress | None = None,
    **options: Any,
) -> list[Prediction]:
    """Predict under one threshold vector at several probabilities p, one prediction for each.

    Parameters are those of `predict`; ``progress`` is called after every chain.

    Raises
    ------
    TrmodelError
        One of its subclasses; see `trmodel.errors`.
    """
    values = probabilities(values)
    loaded = load_profile(profile)
    predictions = []
    for p in values:
        predictions.append(predict(loaded, N=N, B=B, p=p, **options))
        if progress:
            progress(len(predictions), len(values))
    return predictions
