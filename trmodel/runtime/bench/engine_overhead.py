"""What whole steps of a running executor take beyond what the tables and slow-downs say.

For every step size in every setting, with w its mean whole step, L what the tables give for the
routing and the context that the run had, and q_j the share of time in which model j ran beside it,

    overhead = w prod_j (1 - q_j (1 - 1 / s_ij)) - L,

where s_ij is the slow-down of i while j runs. In it are waking the engine, routing, handing on, and
the share of the cores that front end and load take; and what is left out of the model's mean step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trmodel.profile import LoadedProfile, build_system
from trmodel.routing import Routing
from trmodel.runtime.bench.steps import StepMeasurements
from trmodel.runtime.bench.validate import realised, run_context
from trmodel.system import RoutedSystem


def overheads(
    found: StepMeasurements, loaded: LoadedProfile, routing: Routing
) -> list[list[tuple[float, float]]]:
    """Return what whole steps took beyond a profile's tables and slow-downs.

    Parameters
    ----------
    found
        Of a running executor.
    loaded
        A profile without overheads.
    routing
        What was served; the frequencies are those that each run had.

    Returns
    -------
    list
        For each model: the number of steps and the milliseconds, for every setting and size.
    """
    cells: list[list[tuple[float, float]]] = [[] for _ in found.models]
    for point in found.points:
        context = run_context(point)
        system = build_system(loaded, point["N"], realised(routing, point), context=context)
        for i, model in enumerate(point["per_model"]):
            free = share_of_speed(system, point, i)
            cells[i] += [
                (steps["count"], steps["mean_ms"] * free - system.latency_ms[i, int(size) - 1])
                for size, steps in model["steps"].items()
                if steps["count"]
            ]
    return cells


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
