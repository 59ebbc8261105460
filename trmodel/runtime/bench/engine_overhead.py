"""What whole steps of a running executor take beyond what the tables and slow-downs say.

For every step size in every setting, with w its mean whole step, L what the tables give for the
routing and the context that the run had, and q_j the share of time in which model j ran beside it,

    excess = w prod_j (1 - q_j (1 - 1 / s_ij)) - L,

where s_ij is the slow-down of i while j runs. In it are waking the engine, routing, handing on, and
the share of the cores that front end and load take; and what is left out of the model's mean step.
Part of it is for every step, part for each request in it: the two that fit best by least squares
over all steps, neither of them negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import nnls

from trmodel.arrays import FloatArray
from trmodel.profile import LoadedProfile, build_system
from trmodel.routing import Routing
from trmodel.runtime.bench.steps import StepMeasurements
from trmodel.runtime.bench.validate import realised, run_context
from trmodel.system import RoutedSystem


@dataclass(frozen=True)
class StepExcess:
    """What whole steps of one model took beyond its tables and slow-downs, in milliseconds.

    Attributes
    ----------
    counts, sizes, excess_ms
        Steps, requests in each, and what they took more: of every setting and size.
    """

    counts: FloatArray
    sizes: FloatArray
    excess_ms: FloatArray

    @cached_property
    def parts_ms(self) -> tuple[float, float]:
        """For every step, and for each request in it."""
        root = np.sqrt(self.counts)
        rows = np.column_stack([root, root * self.sizes])
        (step, request), _ = nnls(rows, root * self.excess_ms)
        return float(step), float(request)

    @property
    def mean_ms(self) -> float:
        """Mean over all steps."""
        return float(np.average(self.excess_ms, weights=self.counts))

    @property
    def left_ms(self) -> float:
        """Root of the mean square of what the two parts do not tell."""
        step, request = self.parts_ms
        left = self.excess_ms - step - request * self.sizes
        return float(np.sqrt(np.average(left**2, weights=self.counts)))


def excesses(found: StepMeasurements, loaded: LoadedProfile, routing: Routing) -> list[StepExcess]:
    """Return what whole steps took beyond a profile's tables and slow-downs, for each model.

    Parameters
    ----------
    found
        Of a running executor.
    loaded
        A profile without overheads.
    routing
        What was served; the frequencies are those that each run had.

    """
    cells: list[list[tuple[float, float, float]]] = [[] for _ in found.models]
    for point in found.points:
        context = run_context(point)
        system = build_system(loaded, point["N"], realised(routing, point), context=context)
        for i, model in enumerate(point["per_model"]):
            free = share_of_speed(system, point, i)
            cells[i] += [
                (
                    steps["count"],
                    int(size),
                    steps["mean_ms"] * free - system.latency_ms[i, int(size) - 1],
                )
                for size, steps in model["steps"].items()
                if steps["count"]
            ]
    return [StepExcess(*np.array(each, dtype=float).T) for each in cells]


def share_of_speed(system: RoutedSystem, point: Mapping[str, Any], i: int) -> float:
    """Return at which part of its speed a model ran on average, for what ran beside it.

    The others' busy time is taken as independent of the model's; but where all N requests make
    one batch, nothing runs beside it.
    """
    N, B = point["N"], point["B"]
    share = 1.0
    for j, other in enumerate(point["per_model"]):
        if j != i and N not in (B[i], B[j]):
            slow_down = system.slow_down[(1 << i) | (1 << j), i]
            share *= 1.0 - min(other["busy_fraction"], 1.0) * (1.0 - 1.0 / slow_down)
    return float(share)
