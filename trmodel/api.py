"""What the command line does, as Python functions."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from trmodel._version import __version__
from trmodel.documents import StrPath
from trmodel.errors import LimitError, UsageError
from trmodel.markov import Limits, Prediction, Solver, predict_chain
from trmodel.profile import LoadedProfile, Profile, build_system, load_profile
from trmodel.routing import Routing
from trmodel.search import ThresholdTable, tune_system
from trmodel.search.sweep import Sweep
from trmodel.search.tune import Progress
from trmodel.system import RoutedSystem
from trmodel.system_checks import is_int

DEFAULT_PROFILE = "a100"
AnyProfile = StrPath | Profile | LoadedProfile


def predict(
    profile: AnyProfile = DEFAULT_PROFILE,
    *,
    N: int,
    B: Sequence[int],
    routing: StrPath | Routing | None = None,
    p: float | None = None,
    max_batch: int | None = None,
    grid_ms: float | None = None,
    solver: Solver = "auto",
    limits: Limits = Limits(),
) -> Prediction:
    """Predict throughput and what goes with it under one threshold vector.

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
    system = build_system(
        load_profile(profile), N, routing, p=p, max_batch=max_batch, grid_ms=grid_ms
    )
    return predict_chain(system, B, solver=solver, limits=limits)


def tune(
    profile: AnyProfile = DEFAULT_PROFILE,
    N: int | Collection[int] = range(4, 17),
    *,
    routing: StrPath | Routing | None = None,
    p: float | None = None,
    fixed: Mapping[int, int] | None = None,
    max_batch: int | None = None,
    grid_ms: float | None = None,
    solver: Solver = "auto",
    limits: Limits = Limits(),
    time_limit_s: float | None = None,
    progress: Progress | None = None,
) -> ThresholdTable:
    """Choose the best live thresholds for every concurrency up to the largest N.

    Parameters are those of `predict` and of `trmodel.search.tune_system`; ``N`` is one
    concurrency or several, all rows from 1 to the largest are tuned.

    Raises
    ------
    TrmodelError
        One of its subclasses; see `trmodel.errors`.

    Examples
    --------
    >>> tune("a100-paper", N=4).row(4).B
    (1, 3)
    """
    wanted = _wanted(N)
    loaded = load_profile(profile)
    system = build_system(loaded, max(wanted), routing, p=p, max_batch=max_batch, grid_ms=grid_ms)
    return tune_system(
        system,
        wanted,
        fixed=fixed,
        solver=solver,
        limits=limits,
        time_limit_s=time_limit_s,
        progress=progress,
        origin=origin_of(loaded, system),
    )


def sweep_p(
    values: Sequence[float],
    profile: AnyProfile = DEFAULT_PROFILE,
    N: int | Collection[int] = range(4, 17),
    *,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Sweep:
    """Tune at several probabilities p that the first of two models hands over.

    Parameters are those of `tune`; the time limit holds for the whole sweep.

    Raises
    ------
    TrmodelError
        One of its subclasses; see `trmodel.errors`.
    """
    values = [float(p) for p in values]
    if not values:
        raise UsageError("p: at least one value is needed")
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
    tables: list[ThresholdTable] = []
    stopped = None
    for p in values:
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)

        def report(done: int, total: int, before: int = len(tables)) -> None:
            if progress:
                progress(before * total + done, len(values) * total)

        try:
            table = tune(profile, N, p=p, time_limit_s=left, progress=report, **options)
        except LimitError as error:
            if not tables:
                raise
            stopped = f"{error} (p = {p:g})"
            break
        tables.append(table)
        if table.stopped:
            stopped = f"{table.stopped} (p = {p:g})"
            break
    return Sweep(tuple(values[: len(tables)]), tuple(tables), stopped)


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
    values = [float(p) for p in values]
    if not values:
        raise UsageError("p: at least one value is needed")
    loaded = load_profile(profile)
    predictions = []
    for p in values:
        predictions.append(predict(loaded, N=N, B=B, p=p, **options))
        if progress:
            progress(len(predictions), len(values))
    return predictions


def origin_of(loaded: LoadedProfile, system: RoutedSystem) -> dict[str, Any]:
    """Say what a document was made from, in plain values."""
    return {
        "trmodel_version": __version__,
        "profile": {
            "name": loaded.profile.name,
            "origin": loaded.origin,
            "sha256": loaded.sha256,
        },
        "system": {
            "transition_probability": system.transition_probability.tolist(),
            "committed_tokens": system.committed_tokens.tolist(),
            "entry": system.models[system.entry],
            "max_batch": list(system.max_batch),
            "grid_ms": system.grid_ms,
            "grid_error_percent": system.grid_error_percent,
        },
    }


def _wanted(N: int | Collection[int]) -> list[int]:
    several = list(N) if isinstance(N, Iterable) and not isinstance(N, str) else [N]
    if not several or not all(is_int(n) and n >= 1 for n in several):
        raise UsageError(f"N: one or more whole numbers of at least 1 are needed, got {N!r}")
    return sorted({int(n) for n in several})
