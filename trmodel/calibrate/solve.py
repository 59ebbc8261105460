"""Least squares on the logarithm of throughput, from several starts, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import least_squares

from trmodel.arrays import FloatArray, IntArray
from trmodel.calibrate.problem import Problem

STARTS = 4
NO_EFFECT = 1e-9
"""Change in log throughput below which a parameter does not matter; above what rounding makes."""
MAX_EVALUATIONS = 60
NARROWER = (1.0, 4.0)
SAME_COST = 1.05
"""Starts whose sums of squares differ by less than this ratio found the same optimum."""


@dataclass(frozen=True)
class Optimum:
    """The best theta found, and how many of the starts ended as good."""

    theta: FloatArray
    agreeing: int
    starts: int


def free_parameters(problem: Problem) -> list[int]:
    """Indices of the parameters on which at least one measured configuration depends.

    A slow-down does not matter where two models never run at the same time or never share GPUs,
    nor an overhead where routing does not reach the model.
    """
    middle = problem.kept.clip(problem.lower, problem.upper)
    columns = range(len(problem.parameters))
    J = problem.jacobian(middle, columns, range(len(problem.configurations)))
    return [i for i in columns if np.abs(J[:, i]).max() > NO_EFFECT]


def starting_points(problem: Problem, free: Sequence[int], seed: int) -> list[FloatArray]:
    """The profile's own values, then random ones: no overhead starts at 0, no slow-down at 1."""
    rng = np.random.default_rng(seed)
    M = len(problem.step_ms)
    neutral = np.array([parameter.neutral for parameter in problem.parameters])
    starts = []
    for k in range(STARTS):
        random = np.concatenate(
            [
                problem.step_ms * rng.uniform(0.02, 0.4, M),
                rng.uniform(1.02, 1.8, len(neutral) - M),
            ]
        )
        replaced = problem.kept == neutral if k == 0 else np.ones(len(neutral), dtype=bool)
        theta = np.where(replaced, random, problem.kept)
        fixed = np.setdiff1d(np.arange(len(theta)), free)
        theta[fixed] = problem.kept[fixed]
        starts.append(theta)
    return starts


def minimise(
    problem: Problem, start: FloatArray, free: Sequence[int], points: IntArray
) -> FloatArray:
    """Fit the free parameters to some of the measurements; the others stay as in the start.

    Parameters
    ----------
    start
        (P,): where to begin.
    free
        Indices of the parameters to fit, at least one.
    points
        Indices of the measurements to use.

    Returns
    -------
    (P,): the fitted theta.
    """
    which, place = np.unique(problem.row[points], return_inverse=True)
    configurations = which.tolist()
    measured = problem.log_measured[points]
    columns = list(free)
    lower, upper = problem.lower[columns], problem.upper[columns]

    # The method wants a start inside the bounds; a hundredth of a step is near enough to them.
    inside = 0.01 * np.array([problem.parameters[i].step for i in columns])

    def whole(x: FloatArray) -> FloatArray:
        theta = start.copy()
        theta[columns] = x
        return theta

    def residuals(x: FloatArray) -> FloatArray:
        modelled = problem.log_throughputs([whole(x)], configurations)[0]
        return np.asarray(modelled[place] - measured)

    def jacobian(x: FloatArray, narrower: float) -> FloatArray:
        return problem.jacobian(whole(x), columns, configurations, narrower)[place]

    x = start[columns]
    # Wide differences see past the jumps of throughput; narrow ones then settle between two.
    for narrower in NARROWER:
        x = least_squares(
            residuals,
            np.clip(x, lower + inside, upper - inside),
            jac=partial(jacobian, narrower=narrower),
            bounds=(lower, upper),
            x_scale=100.0 * inside,
            # Smaller gains than this mean nothing beside the jumps and the noise of measurements.
            ftol=1e-4,
            xtol=1e-4,
            gtol=1e-9,
            max_nfev=MAX_EVALUATIONS,
        ).x
    # It stays inside the bounds: an estimate this close to one is meant to be on it.
    x = np.where(x - lower < 2 * inside, lower, x)
    return whole(np.where(upper - x < 2 * inside, upper, x))


def sum_of_squares(problem: Problem, theta: FloatArray) -> float:
    """Sum of squared errors of log throughput over all measurements."""
    return float(np.sum((problem.log_throughput(theta)[problem.row] - problem.log_measured) ** 2))


def best_of_starts(
    problem: Problem, free: Sequence[int], seed: int, report: Callable[[], None]
) -> Optimum:
    """Fit all measurements from every start and keep the best; report after each."""
    points = np.arange(len(problem.row))
    found = []
    for start in starting_points(problem, free, seed):
        found.append(minimise(problem, start, free, points))
        report()
    costs = [sum_of_squares(problem, theta) for theta in found]
    best = int(np.argmin(costs))
    agreeing = sum(cost <= SAME_COST * costs[best] + 1e-12 for cost in costs)
    return Optimum(found[best], agreeing, len(found))
