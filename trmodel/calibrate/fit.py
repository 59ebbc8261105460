"""Calibrate a profile: overheads and slow-downs from measured throughputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from trmodel.arrays import FloatArray
from trmodel.calibrate.intervals import spread_and_estimates
from trmodel.calibrate.measurements import LoadedMeasurements, Measurements, load_measurements
from trmodel.calibrate.problem import Problem
from trmodel.calibrate.quality import limits_of_reach
from trmodel.calibrate.result import Fit, FittedPoint, Pick
from trmodel.calibrate.solve import STARTS, Optimum, best_of_starts, free_parameters, minimise
from trmodel.documents import StrPath
from trmodel.errors import UsageError
from trmodel.profile import Context, LoadedProfile, Profile, load_profile, recorded_context
from trmodel.routing import Routing
from trmodel.search.tune import Progress

TIE = 0.01
"""Relative difference in modelled throughput within which smaller thresholds are picked."""


def fit_profile(
    profile: StrPath | Profile | LoadedProfile,
    measurements: StrPath | Measurements | LoadedMeasurements,
    *,
    routing: StrPath | Routing | None = None,
    p: float | None = None,
    context: Context | None = None,
    allow_negative_overheads: bool = False,
    grid_ms: float | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> Fit:
    """Fit an overhead per model and two slow-downs per pair of models to measured throughputs.

    Least squares on the logarithm of throughput by the exact chain, within bounds: overheads at
    least 0 ms, slow-downs from 1 to 10. The profile's decode tables stay, its overheads and
    slow-downs are replaced and serve as the first of several starts. Each measured configuration
    is also left out once and predicted by a fit to the others.

    Parameters
    ----------
    profile
        A built-in name, a path, or a profile.
    measurements
        A built-in name, a path, or measurements.
    routing, p
        The routing under which they were measured; see `trmodel.predict`.
    context
        Tokens of context of every request when they were measured, or (low, high) for one that
        grew over a reply; None for the profile's.
    allow_negative_overheads
        Let an overhead fall to -0.9 times the model's shortest step, for tables that may be too
        slow. Such a fit shows that, but gives no profile.
    grid_ms
        Time unit of the chains in milliseconds; None for 0.02, finer than for a prediction because
        rounding disturbs the derivatives. Coarser is faster where N is large.
    progress
        Called with fits done and fits in all.
    seed
        Of the starts.

    Raises
    ------
    UsageError
        If an argument makes no sense, or the grid is too coarse to tell anything.
    InputError
        If a document cannot be read or they do not fit together.
    LimitError
        If a chain is too large.

    Source
    ------
    The two effects are those of `trmodel.system`; the method is nonlinear least squares
    (`scipy.optimize.least_squares`, trust region reflective).
    """
    loaded = load_profile(profile)
    given = load_measurements(measurements)
    with ThreadPoolExecutor(os.cpu_count()) as pool, threadpool_limits(1, user_api="blas"):
        problem = Problem(
            loaded,
            given.document,
            pool,
            routing=routing,
            p=p,
            context=context,
            allow_negative_overheads=allow_negative_overheads,
            grid_ms=grid_ms,
        )
        free = free_parameters(problem)
        if not free:
            raise UsageError(
                f"grid_ms: on a grid of {problem.grid_ms:g} ms no throughput depends on any "
                "parameter; use a finer one"
            )
        report = _steps(progress, problem)
        found = best_of_starts(problem, free, seed, report)
        modelled = np.exp(problem.log_throughput(found.theta))
        limits = limits_of_reach(problem, found.theta, modelled)
        spread, estimates = spread_and_estimates(
            problem,
            found.theta,
            free,
            given.document.noise_percent,
            out_of_reach=bool(np.isfinite(limits).any()),
        )
        left_out = _left_out(problem, found, free, report)
    return Fit(
        profile=loaded,
        measurements=given,
        models=problem.models,
        estimates=estimates,
        points=_points(problem, modelled, left_out, limits),
        picks=_picks(problem, modelled),
        spread=spread,
        bounds=tuple(zip(problem.lower.tolist(), problem.upper.tolist(), strict=True)),
        context_tokens=recorded_context(loaded.profile, context),
        grid_ms=problem.grid_ms,
        starts=found.starts,
        agreeing=found.agreeing,
    )


def _steps(progress: Progress | None, problem: Problem) -> Callable[[], None]:
    """Return what to call after every fit."""
    done, total = 0, STARTS + len(problem.configurations)

    def report() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    return report


def _left_out(
    problem: Problem, found: Optimum, free: Sequence[int], report: Callable[[], None]
) -> FloatArray:
    """Log throughput of every configuration by a fit to the others; NaN if they are too few.

    Repeated measurements of a configuration are left out together, or they would tell of it.
    """
    result = np.full(len(problem.configurations), np.nan)
    for c in range(len(result)):
        others = np.flatnonzero(problem.row != c)
        if len(others) >= len(free):
            theta = minimise(problem, found.theta, free, others)
            result[c] = problem.log_throughputs([theta], [c])[0, 0]
        report()
    return result


def _points(
    problem: Problem, modelled: FloatArray, left_out: FloatArray, limits: FloatArray
) -> tuple[FittedPoint, ...]:
    points = []
    every = zip(problem.row, np.exp(problem.log_measured), limits, strict=True)
    for c, measured, limit in every:
        N, B, shared = problem.configurations[c]
        other = 100.0 * (np.exp(left_out[c]) / measured - 1.0)
        points.append(
            FittedPoint(
                N=N,
                B=B,
                placement="shared" if shared else "separate",
                measured_tok_s=float(measured),
                fitted_tok_s=float(modelled[c]),
                error_percent=float(100.0 * (modelled[c] / measured - 1.0)),
                left_out_error_percent=None if np.isnan(other) else float(other),
                limit_tok_s=None if np.isnan(limit) else float(limit),
            )
        )
    return tuple(points)


def _picks(problem: Problem, modelled: FloatArray) -> tuple[Pick, ...]:
    """What the model picks wherever several thresholds were measured at one N and placement."""
    measured = [
        float(np.exp(problem.log_measured[problem.row == c]).mean()) for c in range(len(modelled))
    ]
    groups: dict[tuple[int, bool], list[int]] = {}
    for c, (N, _, shared) in enumerate(problem.configurations):
        groups.setdefault((N, shared), []).append(c)
    picks = []
    for (N, shared), members in sorted(groups.items()):
        if len(members) < 2:
            continue
        floor = max(modelled[c] for c in members) * (1.0 - TIE)
        tied = [c for c in members if modelled[c] >= floor]
        picked = min(
            tied,
            key=lambda c: (sum(problem.configurations[c][1]), -modelled[c]),
        )
        best = max(members, key=lambda c: measured[c])
        picks.append(
            Pick(
                N=N,
                placement="shared" if shared else "separate",
                picked=problem.configurations[picked][1],
                best=problem.configurations[best][1],
                picked_tok_s=measured[picked],
                best_tok_s=measured[best],
                regret_percent=100.0 * (1.0 - measured[picked] / measured[best]),
            )
        )
    return tuple(picks)
