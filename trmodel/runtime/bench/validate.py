"""Measured points beside what the model predicts for them: error, ranking and regret.

A measured run draws its routing decisions once, and over some seconds their frequencies differ
from p_ij by a few percent, which throughput follows. A point is therefore predicted at the
frequencies that it really had (*realised*); the ranking, which compares thresholds under one
routing, takes measurements corrected to the nominal p_ij:

    corrected = measured * predicted(nominal) / predicted(realised).

**Regret** of an N: how much less the thresholds that the prediction calls best gave than those
that really were best, in percent of the latter. Where it cannot tell several from the best, by its
interval, it calls the smallest of them best, as tuning does.
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
                *_throughput(system, B, by),
                _throughput(with_own_latencies(real, point), B, by)[0],
                by,
                tokens,
            )
        )
        if progress:
            progress(done, len(points))
    by_N = {N: [f for f in found if f.N == N] for N in sorted({f.N for f in found})}
    rankings = tuple(
        _ranking(N, several)
        for N, several in by_N.items()
        if len({point.B for point in several}) > 1
    )
    return Validation(tuple(found), rankings)


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


def _ranking(N: int, several: Sequence[ValidatedPoint]) -> Ranking:
    by_B: dict[tuple[int, ...], list[ValidatedPoint]] = {}
    for point in several:
        by_B.setdefault(point.B, []).append(point)
    settings = list(by_B)
    measured = [np.mean([one.corrected_tok_s for one in same]) for same in by_B.values()]
    predicted = np.array([np.mean([one.nominal_tok_s for one in same]) for same in by_B.values()])
    truly = int(np.argmax(measured))
    within = max(one.nominal_within_percent for one in several) / 100.0
    tied = np.flatnonzero(predicted >= predicted.max() * (1.0 - max(within, INDISTINGUISHABLE)))
    said = min(tied, key=lambda place: (sum(settings[place]), -predicted[place]))
    tau = float(kendalltau(measured, predicted).statistic)
    return Ranking(
        N,
        tau if math.isfinite(tau) else 0.0,
        settings[truly],
        settings[said],
        float(100.0 * (1.0 - measured[said] / measured[truly])),
    )
