"""Whether a fit is any good: errors against the noise of the measurements, points out of reach.

With residuals r of log throughput, n - rank degrees of freedom and a noise s of the measurements,
the reduced chi-square is r'r / (n - rank) / s^2: about 1 if the model is right, and far above it if
errors are much larger than measuring explains. No parameter makes a step shorter than its table, so
that a throughput above that of the tables alone (all parameters at their lower bounds) cannot be
met; nor can one far below what the upper bounds give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trmodel.arrays import FloatArray
from trmodel.calibrate.problem import Problem
from trmodel.launch import shown_vector

if TYPE_CHECKING:
    from trmodel.calibrate.result import Fit

UNSTATED_NOISE_PERCENT = 5.0
"""Taken where a file states none: load tests repeat to a few percent."""
HOPELESS = 9.0
"""Reduced chi-square: errors of three times the noise."""
OUT_OF_REACH = 0.05
"""Relative distance beyond the bounds, above the jumps of throughput, that counts."""


def limits_of_reach(problem: Problem, theta: FloatArray, modelled: FloatArray) -> FloatArray:
    """Return for each measurement the throughput it is beyond, of shape (n,); NaN within reach.

    Parameters
    ----------
    theta, modelled
        The estimates (P,), and the throughput of every configuration there.
    """
    measured = np.exp(problem.log_measured)
    fastest = np.exp(problem.log_throughput(problem.lower))[problem.row]
    limits = np.where(measured > fastest * (1.0 + OUT_OF_REACH), fastest, np.nan)
    # No chain at the upper bounds: with steps that long it would not fit into memory.
    fitted = modelled[problem.row]
    slower = np.any(theta == problem.upper) & (measured < fitted * (1.0 - OUT_OF_REACH))
    return np.where(slower, fitted, limits)


def reduced_chi_square(fit: Fit) -> float:
    """Return the reduced chi-square of a fit, with a noise of 5 % if the file states none."""
    r = [np.log(point.fitted_tok_s / point.measured_tok_s) for point in fit.points]
    noise = _noise_percent(fit) / 100.0
    degrees = fit.spread.degrees if np.isfinite(fit.spread.degrees) else 0.0
    return float(np.sum(np.square(r)) / max(degrees, 1.0) / noise**2)


def fit_warnings(fit: Fit) -> tuple[str, ...]:
    """Say in a line each what makes a fit unfit for use; nothing if it is sound."""
    said = [
        f"N = {point.N}, B = {shown_vector(point.B)}: measured {point.measured_tok_s:.1f} tok/s "
        + (
            f"is above the {point.limit_tok_s:.1f} that the tables give without overhead and "
            "contention; no fit reaches it: is the profile of this server?"
            if point.measured_tok_s > point.limit_tok_s
            else f"is below the {point.limit_tok_s:.1f} at the largest values that are fitted; is "
            "it in tokens per second of the whole server?"
        )
        for point in fit.points
        if point.limit_tok_s is not None
    ]
    chi = reduced_chi_square(fit)
    if chi > HOPELESS:
        stated = fit.measurements.document.noise_percent is not None
        noise = f"{'the stated noise' if stated else 'a noise'} of {_noise_percent(fit):g} %"
        said.append(
            f"the model does not describe these measurements: errors are {np.sqrt(chi):.1f} times "
            f"{noise} (reduced chi-square {chi:.0f}, of 1 if the model is right); do not use the "
            "fitted profile before you know why"
        )
    return tuple(said)


def _noise_percent(fit: Fit) -> float:
    stated = fit.measurements.document.noise_percent
    return UNSTATED_NOISE_PERCENT if stated is None else max(stated, 0.1)
