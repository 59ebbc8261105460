"""How well the measurements determine each parameter: covariance, intervals, what they cannot say.

With J the Jacobian of log throughput at the estimate and r the residuals, the covariance is
s^2 (J'J)^-1, s^2 = r'r / (n - rank J); an interval is the estimate plus or minus a quantile of
Student's t times the standard error, cut at the bounds. That is the linear theory: the model is
taken as right and as straight over the width of the interval, which it is only roughly: in
simulated cases (``benchmarks/interval_coverage.py``) intervals of the two slow-downs held the truth
in 78 and 88 % instead of 95 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from trmodel.arrays import FloatArray
from trmodel.calibrate.problem import Parameter, Problem

LEVEL = 0.95
RANK_TOLERANCE = 0.01
"""Singular values below this part of the largest, columns scaled to one, count as zero."""
IN_NULL_SPACE = 0.1
ALIKE = 0.99
"""Estimates that correlate by more than this are not told apart."""
TOGETHER = 0.9

Status = Literal["determined", "weak", "at bound", "not identifiable", "kept"]


@dataclass(frozen=True)
class Estimate:
    """A fitted parameter.

    Attributes
    ----------
    interval
        At 95 %, None if there is none.
    status
        ``determined``; ``weak``: the interval holds the value that changes nothing; ``at bound``;
        ``not identifiable``: only a combination with others is; ``kept``: no measurement depends
        on it, and it is what the profile says.
    remark
        In words, what the status and the correlations mean.
    """

    parameter: Parameter
    value: float
    interval: tuple[float, float] | None
    status: Status
    remark: str = ""


@dataclass(frozen=True, eq=False)
class Spread:
    """The law of the estimates about theta, in all P parameters.

    Attributes
    ----------
    covariance
        (P, P): zero for parameters that were kept; None if there are too few measurements.
    degrees
        Degrees of freedom of the residuals; infinite if the spread is the stated noise.
    sigma
        Standard deviation of an error of log throughput, or None.
    """

    covariance: FloatArray | None
    degrees: float
    sigma: float | None


@dataclass(frozen=True, eq=False)
class _Curvature:
    """What the Jacobian tells of K free parameters, whatever the size of the errors.

    ``inverse`` is (J'J)^-1 without the directions that have no effect, in which the parameters
    marked in ``lost`` take part; ``correlation`` has a zero diagonal.
    """

    rank: int
    inverse: FloatArray
    lost: NDArray[np.bool_]
    correlation: FloatArray


def spread_and_estimates(
    problem: Problem,
    theta: FloatArray,
    free: Sequence[int],
    noise_percent: float | None,
    *,
    out_of_reach: bool = False,
) -> tuple[Spread, tuple[Estimate, ...]]:
    """Judge the estimates theta of the free parameters.

    Parameters
    ----------
    noise_percent
        The spread of measurements to assume if there are none left to estimate it from.
    out_of_reach
        Whether a measurement is beyond the bounds: then an estimate on a bound is there for that,
        whatever else it depends on, and has no interval.
    """
    columns = list(free)
    r = problem.log_throughput(theta)[problem.row] - problem.log_measured
    curvature = _curvature(_slopes(problem, theta, columns))
    degrees: float = len(r) - curvature.rank
    sigma = float(np.sqrt(r @ r / degrees)) if degrees >= 1 else None
    if sigma is None and noise_percent is not None:
        sigma, degrees = noise_percent / 100.0, np.inf
    covariance = None
    half = np.full(len(theta), np.inf)
    if sigma is not None:
        covariance = np.zeros((len(theta), len(theta)))
        covariance[np.ix_(columns, columns)] = sigma**2 * curvature.inverse
        half = float(student.ppf((1.0 + LEVEL) / 2.0, degrees)) * np.sqrt(np.diag(covariance))
    estimates = []
    for i, parameter in enumerate(problem.parameters):
        value, bounds = float(theta[i]), (float(problem.lower[i]), float(problem.upper[i]))
        if i not in columns:
            remark = "no measurement depends on it: as in the profile"
            estimates.append(Estimate(parameter, value, None, "kept", remark))
        elif out_of_reach and value in bounds:
            estimates.append(Estimate(parameter, value, None, "at bound", _BEYOND))
        elif inseparable := _inseparable(problem, curvature, columns, i):
            estimates.append(Estimate(parameter, value, None, "not identifiable", inseparable))
        else:
            status = _status(parameter, value, half[i], bounds)
            remarks = (_READING.get(status, ""), _correlated(problem, curvature, columns, i))
            interval = None
            if np.isfinite(half[i]):
                interval = tuple(np.clip([value - half[i], value + half[i]], *bounds).tolist())
            remark = "; ".join(filter(None, remarks))
            estimates.append(Estimate(parameter, value, interval, status, remark))
    return Spread(covariance, degrees, sigma), tuple(estimates)


def _slopes(problem: Problem, theta: FloatArray, columns: list[int]) -> FloatArray:
    """Jacobian by measurement, (n, K): a mean over differences that lie differently to jumps."""
    which = range(len(problem.configurations))
    several = [problem.jacobian(theta, columns, which, narrower) for narrower in (0.5, 1.0, 2.0)]
    return np.asarray(np.mean(several, axis=0)[problem.row])


def _curvature(J: FloatArray) -> _Curvature:
    norms = np.linalg.norm(J, axis=0)
    norms[norms == 0.0] = 1.0
    _, singular, V = np.linalg.svd(J / norms, full_matrices=True)
    singular = np.concatenate([singular, np.zeros(J.shape[1] - len(singular))])
    held = singular > RANK_TOLERANCE * singular.max(initial=0.0)
    inverse = (V[held].T / singular[held] ** 2) @ V[held] / np.outer(norms, norms)
    lost = np.abs(V[~held]).max(axis=0, initial=0.0) > IN_NULL_SPACE
    error = np.sqrt(np.diag(inverse))
    error[error == 0.0] = 1.0
    correlation = inverse / np.outer(error, error)
    np.fill_diagonal(correlation, 0.0)
    return _Curvature(int(held.sum()), inverse, lost, correlation)


def _inseparable(problem: Problem, curvature: _Curvature, columns: list[int], i: int) -> str:
    """Say with which parameters this one forms a combination that alone matters; or nothing."""
    c = columns.index(i)
    alike = np.abs(curvature.correlation[c]) > ALIKE
    if curvature.lost[c]:
        alike = alike | curvature.lost
    elif not alike.any():
        return ""
    others = [problem.parameters[columns[k]].name for k in np.flatnonzero(alike) if k != c]
    return f"only together with {', '.join(others)}" if others else "has no effect here"


def _correlated(problem: Problem, curvature: _Curvature, columns: list[int], i: int) -> str:
    row = curvature.correlation[columns.index(i)]
    k = int(np.argmax(np.abs(row)))
    if abs(row[k]) <= TOGETHER:
        return ""
    return f"correlation {row[k]:+.2f} with {problem.parameters[columns[k]].name}"


def _status(parameter: Parameter, value: float, half: float, bounds: tuple[float, float]) -> Status:
    if value in bounds:
        return "at bound"
    return "weak" if abs(value - parameter.neutral) <= half else "determined"


_BEYOND = "measurements are beyond what its bounds allow"
_READING: dict[Status, str] = {
    "at bound": "the interval is one-sided",
    "weak": "cannot be told from no effect",
}
