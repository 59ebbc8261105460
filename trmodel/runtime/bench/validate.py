"""Measured points beside what the model predicts for them: error, ranking and regret.

A measured run draws its routing decisions once, and over some seconds their frequencies differ
from p_ij by a few percent, which throughput follows. A point is therefore predicted at the
frequencies that it really had (*realised*); the ranking, which compares thresholds under one
routing and at one context, takes measurements corrected to the nominal p_ij and the mean context:

    corrected = measured * predicted(nominal) / predicted(realised).

**Regret** of an N: how much less the thresholds that the prediction calls best gave than those
that really were best, in percent of the latter. Where it cannot tell several from the best, by its
interval (or 0.1 %, as in tuning), the smallest of them are called best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from scipy.stats import kendalltau

from trmodel.documents import StrPath
from trmodel.errors import InputError, UsageError
from trmodel.markov import predict_chain
from trmodel.profile import LoadedProfile, build_system
from trmodel.profile.build import choose_routing
from trmodel.profile.context import Context
from trmodel.routing import Routing
from trmodel.routing.schema import matrix_rows
from trmodel.runtime.bench.steps import StepMeasurements
from trmodel.runtime.bench.validation import Ranking, ValidatedPoint, Validation
from trmodel.search.choose import INDISTINGUISHABLE
from trmodel.simulate import simulate
from trmodel.system import RoutedSystem

Method = Literal["auto", "chain", "simulation"]
PREDICTION_BATCHES = 200_000


def validate(
    points: Sequence[Mapping[str, Any]],
    loaded: LoadedProfile,
    *,
    routing: StrPath | Routing | None = None,
    p: float | None = None,
    context: Context | Literal["run"] | None = None,
    method: Method = "auto",
    progress: Any = None,
) -> Validation:
    """Predict measured points and compare.

    Parameters
    ----------
    points
        As `trmodel.runtime.bench.point.measure_point` returns them.
    loaded, routing, p
        The profile to predict from, and the routing that was served.
    context
        Of requests, in tokens; None for the profile's, ``run`` for the mean that each run had.
    method
        ``chain`` for the exact chain, ``simulation``; ``auto`` takes the chain unless handoffs
        take time, which it does not have.

    Raises
    ------
    TrmodelError
        One of its subclasses; if there is no point, or one is not of the profile's models.
    """
    if not points:
        raise UsageError("results: hold no measured point")
    chosen = choose_routing(loaded, routing)
    chosen = chosen if p is None else chosen.with_p(p)
    found = []
    in_order = sorted(points, key=lambda point: (point["N"], point["B"]))
    for done, point in enumerate(in_order, start=1):
        tokens = run_context(point) if context == "run" else context
        system = build_system(loaded, point["N"], chosen, context=tokens)
        if list(system.models) != list(point["models"]):
            raise InputError(
                f"results: a point is of {', '.join(point['models'])}, the routing is of "
                f"{', '.join(system.models)}"
            )
        real = build_system(loaded, point["N"], realised(chosen, point), context=tokens)
        B, measured = tuple(point["B"]), point["throughput_tok_s"]
        low, high = point["throughput_interval_tok_s"]
        by = method
        if by == "auto":
            by = "simulation" if system.handoffs_ms.any() else "chain"
        if by == "chain":
            none = np.zeros_like(system.handoff_ms)
            system, real = (replace(one, handoff_ms=none) for one in (system, real))
        found.append(
            ValidatedPoint(
                point["N"],
                B,
                measured,
                50.0 * (high - low) / measured,
                _throughput(real, B, by)[0],
                _throughput(system, B, by)[0],
                _throughput(with_own_latencies(real, point), B, by)[0],
                by,
                tokens,
            )
        )
        if progress:
            progress(done, len(points))
    rankings = []
    for N in sorted({point.N for point in found}):
        several = [point for point in found if point.N == N]
        if len({point.B for point in several}) > 1:
            tokens = _mean_context(points, N) if context == "run" else context
            rankings.append(_ranking(build_system(loaded, N, chosen, context=tokens), several))
    return Validation(tuple(found), tuple(rankings))


def realised(routing: Routing, point: Mapping[str, Any]) -> Routing:
    """Return the routing with the frequencies that a measured run had.

    Runs do not tell in which phase a model was: a routing with phases is returned as it is.
    """
    if routing.phases:
        return routing
    P, C = np.array(routing.transition_probability), np.array(routing.committed_tokens)
    for i, model in enumerate(point["per_model"]):
        counts = np.asarray(model["transitions"], dtype=float)
        if counts.sum() > 0.0:
            P[i] = counts / counts.sum()
            went = counts > 0.0
            C[i, went] = np.asarray(model["committed"], dtype=float)[went] / counts[went]
    return routing.model_copy(
        update={"transition_probability": matrix_rows(P), "committed_tokens": matrix_rows(C)}
    )


def run_context(point: Mapping[str, Any]) -> int:
    """Return the mean context of the request-steps of a measured run, in tokens.

    Raises
    ------
    InputError
        If the point does not say.
    """
    ran = [model for model in point["per_model"] if sum(model["transitions"])]
    if not ran or any(model.get("mean_context_tokens") is None for model in ran):
        raise InputError("results: a point does not say which context it had; give the context")
    steps = np.array([sum(model["transitions"]) for model in ran])
    tokens = np.array([model["mean_context_tokens"] for model in ran])
    return max(round(float(steps @ tokens / steps.sum())), 1)


def _mean_context(points: Sequence[Mapping[str, Any]], N: int) -> int:
    return round(float(np.mean([run_context(point) for point in points if point["N"] == N])))


def with_own_latencies(system: RoutedSystem, point: Mapping[str, Any]) -> RoutedSystem:
    """Return the system with the step and handoff latencies of a measured run.

    What models that ran at the same time did to them is in the run's latencies already, and so is
    the waking of models that were idle. Between and beyond the batch sizes that it had, latencies
    are those of the nearest ones.
    """
    found = StepMeasurements(system.models)
    found.add(point)
    latency, delay = system.latency_ms.copy(), system.handoff_ms.copy()
    sizes = np.arange(1, latency.shape[1] + 1)
    for i in range(system.M):
        if steps := found.steps_ms(i):
            latency[i] = np.interp(sizes, list(steps), list(steps.values()))
        for j in range(system.M):
            own = found.handoff_ms(i, j)
            if own is not None and delay[i, j] > 0.0:
                delay[i, j] = own
    alone = np.ones_like(system.slow_down)
    awake = np.zeros_like(system.wake_ms)
    return replace(system, latency_ms=latency, handoff_ms=delay, slow_down=alone, wake_ms=awake)


def _throughput(system: RoutedSystem, B: tuple[int, ...], method: str) -> tuple[float, float]:
    """Return tokens per second, and half the width of their interval in percent."""
    if method == "chain":
        return predict_chain(system, B).throughput_tok_s, 0.0
    found = simulate(system, B, batches=PREDICTION_BATCHES).throughput_tok_s
    return found.value, 100.0 * found.half_width / found.value


def _ranking(system: RoutedSystem, several: Sequence[ValidatedPoint]) -> Ranking:
    """Rank the thresholds of one N in one system, whatever routing and context the runs had."""
    settings = sorted({point.B for point in several}, key=lambda B: (sum(B), B))
    found = [_throughput(system, B, several[0].method) for B in settings]
    predicted = np.array([tok_s for tok_s, _ in found])
    measured = [
        np.mean([p.measured_tok_s * there / p.predicted_tok_s for p in several if p.B == B])
        for B, there in zip(settings, predicted, strict=True)
    ]
    truly = int(np.argmax(measured))
    within = max(INDISTINGUISHABLE, *(percent / 100.0 for _, percent in found))
    said, *also = np.flatnonzero(predicted >= predicted.max() * (1.0 - within)).tolist()
    tau = float(kendalltau(measured, predicted).statistic)
    return Ranking(
        system.N,
        tau if math.isfinite(tau) else 0.0,
        settings[truly],
        settings[said],
        tuple(settings[place] for place in also),
        float(100.0 * (1.0 - measured[said] / measured[truly])),
    )
