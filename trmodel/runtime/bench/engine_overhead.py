"""What whole steps of a running executor take beyond what the engines' tables say.

For every step size b in every setting, with w its mean whole step, L what the tables give for the
routing and the context that the run had, and q_j the share of time in which model j ran beside it,

    w (1 - sum_j q_j (1 - 1 / s_j)) = L + o + r b + c u:

o for every step, r for each request in it (routing, handing on, reporting), c for one before which
the model was idle, as were u of these steps (threads are woken, the caches of the core are cold),
and s_j the slow-down while j runs. For front end, load and network share the cores with the
engines, models slow each other more than their engines alone do. These numbers are fitted by least
squares of the relative errors of all steps, as what disturbs a machine makes long steps longer by
more; none is negative, and no slow-down is less than the engines' own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

from trmodel.arrays import FloatArray
from trmodel.errors import TrmodelError
from trmodel.profile import LoadedProfile, build_system
from trmodel.routing import Routing
from trmodel.runtime.bench.steps import StepMeasurements
from trmodel.runtime.bench.validate import realised, run_context

MOST_SLOWED = 0.9
"""Of its speed, at most, a model loses beside another."""


@dataclass(frozen=True)
class Beyond:
    """What the executor adds to one model's steps.

    Attributes
    ----------
    step_ms, request_ms, wake_ms
        o, r and c.
    slow_down
        s_j for each model; 1 for itself.
    steps, settings
        How many steps it was found from, in how many settings and sizes.
    mean_ms
        Mean over the steps of w - L.
    left_ms
        Root of the mean square of what the fit leaves.
    """

    step_ms: float
    request_ms: float
    wake_ms: float
    slow_down: tuple[float, ...]
    steps: int
    settings: int
    mean_ms: float
    left_ms: float


def beyond(
    found: StepMeasurements, loaded: LoadedProfile, routing: Routing, engines: FloatArray
) -> list[Beyond]:
    """Return what the executor adds to the steps of each model.

    Parameters
    ----------
    found
        Of the running executor.
    loaded
        A profile of the engines' tables, without overheads.
    routing
        What was served; the frequencies are those that each run had.
    engines
        s_ij of the engines alone, at least 1, [M, M].

    Raises
    ------
    TrmodelError
        If a model made no step.
    """
    M = len(found.models)
    cells: list[list[tuple[float, ...]]] = [[] for _ in range(M)]
    for point in found.points:
        context = run_context(point)
        system = build_system(loaded, point["N"], realised(routing, point), context=context)
        for i, model in enumerate(point["per_model"]):
            beside = _beside(point, i)
            cells[i] += [
                (
                    steps["count"],
                    int(size),
                    steps["mean_ms"],
                    float(system.latency_ms[i, int(size) - 1]),
                    model["idle_starts"].get(size, 0) / model["batches"][size],
                    *beside,
                )
                for size, steps in model["steps"].items()
                if steps["count"]
            ]
    for name, each in zip(found.models, cells, strict=True):
        if not each:
            raise TrmodelError(
                f"{name}: made no step in the executor; measure longer, or with a routing that "
                "uses the model"
            )
    return [_fit(np.array(each), i, engines[i]) for i, each in enumerate(cells)]


def _beside(point: Mapping[str, Any], i: int) -> Sequence[float]:
    """Return q_j: the others' busy time, taken as independent of the model's.

    But where all N requests make one batch, nothing runs beside it.
    """
    N, B = point["N"], point["B"]
    return [
        0.0 if j == i or N in (B[i], B[j]) else min(other["busy_fraction"], 1.0)
        for j, other in enumerate(point["per_model"])
    ]


def _fit(cells: FloatArray, i: int, engines: FloatArray) -> Beyond:
    count, size, whole, table, idle = cells[:, :5].T
    lost = cells[:, 5:] * whole[:, None]
    own = 1.0 - 1.0 / np.minimum(engines, 1.0 / (1.0 - MOST_SLOWED) - 1e-6)
    seen = np.flatnonzero(lost.any(axis=0))
    rows = np.column_stack([np.ones_like(size), size, idle, lost[:, seen]])
    root = np.sqrt(count) / whole
    low = np.concatenate([np.zeros(3), own[seen]])
    high = np.concatenate([np.full(3, np.inf), np.full(len(seen), MOST_SLOWED)])
    found = lsq_linear(rows * root[:, None], (whole - table) * root, (low, high)).x
    found = found.round(9)  # what is at a bound comes out a little above
    share = own.copy()
    share[seen] = found[3:]
    share[i] = 0.0
    left = whole - table - rows @ found
    return Beyond(
        step_ms=float(found[0]),
        request_ms=float(found[1]),
        wake_ms=float(found[2]),
        slow_down=tuple((1.0 / (1.0 - share)).tolist()),
        steps=int(count.sum()),
        settings=len(count),
        mean_ms=float(np.average(whole - table, weights=count)),
        left_ms=float(np.sqrt(np.average(left**2, weights=count))),
    )
