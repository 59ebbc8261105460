"""What the command line does, as Python functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from trmodel._version import __version__
from trmodel.documents import StrPath
from trmodel.errors import InfeasibleError, LimitError, UsageError
from trmodel.markov import BestRule, Limits, Prediction, Solver, best_launch_rule, predict_chain
from trmodel.markov.best_rule import BEST_RULE_LIMITS, require_bounded
from trmodel.markov.decisions import Actions
from trmodel.profile import (
    Context,
    LoadedProfile,
    Profile,
    build_system,
    check_capacity,
    load_profile,
    recorded_context,
)
from trmodel.routing import Completion, Routing
from trmodel.search import Effort, ThresholdTable, tune_system
from trmodel.search.results import UNFINISHED, Memory, remembered, results_file
from trmodel.search.sweep import Sweep
from trmodel.search.tune import Method, Progress
from trmodel.system import MAX_CONCURRENCY, RoutedSystem
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
    context: Context | None = None,
    completion: Completion | None = None,
    max_batch: int | None = None,
    grid_ms: float | None = None,
    solver: Solver = "auto",
    limits: Limits = Limits(),
) -> Prediction:
    """Predict throughput and what goes with it under one threshold vector.

    Requests that do not fit into GPU memory are not refused, the prediction warns of them.

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
    context
        Tokens of context of every request, or (low, high) for one that grows over a reply; None
        for the profile's.
    completion
        How long replies and prompts are; None for replies without end.
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
    loaded = load_profile(profile)
    system = build_system(
        loaded,
        N,
        routing,
        p=p,
        max_batch=max_batch,
        grid_ms=grid_ms,
        context=context,
        completion=completion,
    )
    prediction = predict_chain(system, B, solver=solver, limits=limits)
    unfit = _does_not_fit(loaded, N, routing, context)
    return replace(prediction, warnings=(*prediction.warnings, *unfit))


def tune(
    profile: AnyProfile = DEFAULT_PROFILE,
    N: int | Collection[int] = range(4, 17),
    *,
    routing: StrPath | Routing | None = None,
    p: float | None = None,
    context: Context | None = None,
    completion: Completion | None = None,
    clip: bool = False,
    fixed: Mapping[int, int] | None = None,
    method: Method = "auto",
    seed: int = 0,
    effort: Effort = Effort(),
    max_batch: int | None = None,
    grid_ms: float | None = None,
    solver: Solver = "auto",
    limits: Limits = Limits(),
    time_limit_s: float | None = None,
    deadline: float | None = None,
    bound: bool | None = None,
    progress: Progress | None = None,
    results: StrPath | Memory | None = None,
    resume: bool = False,
) -> ThresholdTable:
    """Choose the best live thresholds for every concurrency up to the largest N.

    Parameters are those of `predict` and of `trmodel.search.tune_system`, and

    N
        One concurrency or several. The exact search tunes all rows from 1 to the largest.
    clip
        Where the profile says what fits into GPU memory, a concurrency that does not is refused,
        or with this left out with a warning.
    results
        A JSON file to which finished rows are written as they are found, also when the search is
        interrupted.
    resume
        Do not search again the rows that this file holds, which must be of the same inputs.

    Raises
    ------
    TrmodelError
        One of its subclasses; see `trmodel.errors`.

    Examples
    --------
    >>> tune("a100-paper", N=4).row(4).B
    (1, 3)
    """
    loaded = load_profile(profile)
    wanted, left_out = fitting(loaded, N, routing, context=context, clip=clip)
    system = build_system(
        loaded,
        max(wanted),
        routing,
        p=p,
        max_batch=max_batch,
        grid_ms=grid_ms,
        context=context,
        completion=completion,
    )
    with remembered(results, resume) as memory:
        table = tune_system(
            system,
            wanted,
            fixed=fixed,
            method=method,
            seed=seed,
            effort=effort,
            solver=solver,
            limits=limits,
            time_limit_s=time_limit_s,
            deadline=deadline,
            bound=bound,
            progress=progress,
            origin=origin_of(loaded, system, context),
            memory=memory,
        )
        if left_out:
            table = replace(table, warnings=(left_out, *table.warnings))
        memory.save(table)
    return table


def best_rule(
    profile: AnyProfile = DEFAULT_PROFILE,
    *,
    N: int,
    B: Sequence[int] | None = None,
    actions: Actions = "all",
    routing: StrPath | Routing | None = None,
    p: float | None = None,
    context: Context | None = None,
    max_batch: int | None = None,
    grid_ms: float | None = None,
    limits: Limits = BEST_RULE_LIMITS,
    progress: Progress | None = None,
) -> BestRule:
    """Find the best possible launch rule and compare thresholds with it.

    Parameters are those of `predict` and of `trmodel.markov.best_launch_rule`; without ``B`` the
    thresholds are those that `tune` chooses, which at large N takes longer than the rule.

    Raises
    ------
    TrmodelError
        One of its subclasses; see `trmodel.errors`.

    Examples
    --------
    >>> rule = best_rule("a100-paper", N=8, B=(1, 5))
    >>> round(rule.bound_tok_s, 1), round(rule.gap_percent(rule.thresholds_tok_s), 2)
    (403.7, 1.17)
    """
    system = build_system(
        load_profile(profile),
        N,
        routing,
        p=p,
        max_batch=max_batch,
        grid_ms=grid_ms,
        context=context,
    )
    require_bounded(system)
    thresholds = tune_system(system, [N], progress=progress).row(N).B if B is None else B
    return best_launch_rule(system, thresholds, actions=actions, limits=limits)


def fitting(
    profile: AnyProfile,
    N: int | Collection[int],
    routing: StrPath | Routing | None = None,
    *,
    context: Context | None = None,
    clip: bool = False,
) -> tuple[list[int], str | None]:
    """Return the concurrencies that fit into GPU memory, and what to say of those that do not.

    Without ``clip`` none may be too many; a profile that does not say what fits lets all pass.

    Raises
    ------
    InfeasibleError
        If one does not fit, or with ``clip`` if none does.
    TrmodelError
        Another of its subclasses, if an argument makes no sense.
    """
    wanted = _wanted(N)
    if wanted[-1] > MAX_CONCURRENCY:
        raise UsageError(f"N: must be at most {MAX_CONCURRENCY}, got {wanted[-1]}")
    check = check_capacity(load_profile(profile), max(wanted), routing, context)
    if check.fits or check.largest_N is None:
        return wanted, None
    kept = [n for n in wanted if n <= check.largest_N]
    if not clip or not kept:
        advice = "; clip=True leaves out what does not fit" if kept and not clip else ""
        raise InfeasibleError(f"{check.message}{advice}")
    return kept, f"left out N from {wanted[len(kept)]} on: {check.message}"


def sweep_p(
    values: Sequence[float],
    profile: AnyProfile = DEFAULT_PROFILE,
    N: int | Collection[int] = range(4, 17),
    *,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    results: StrPath | None = None,
    resume: bool = False,
    **options: Any,
) -> Sweep:
    """Tune at several probabilities p that the first of two models hands over.

    Parameters are those of `tune`; the time limit and the results file are the whole sweep's.

    Raises
    ------
    TrmodelError
        One of its subclasses; see `trmodel.errors`.
    """
    values = _probabilities(values)
    loaded = load_profile(profile)
    limit: dict[str, Any] = {}
    if time_limit_s is not None:
        limit = {"time_limit_s": time_limit_s, "deadline": monotonic() + time_limit_s}
    tables: list[ThresholdTable] = []
    stopped = None
    with results_file(results, resume) as file:
        for p in values:

            def report(done: int, total: int, before: int = len(tables)) -> None:
                if progress:
                    progress(before * total + done, len(values) * total)

            def so_far(table: ThresholdTable, before: int = len(tables)) -> dict[str, Any]:
                found = (*tables[:before], table)
                whole = table.stopped is None and len(found) == len(values)
                sweep = Sweep(tuple(values[: len(found)]), found, None if whole else UNFINISHED)
                return sweep.to_dict(every_row=True)

            memory = Memory(file, so_far, p)
            try:
                table = tune(loaded, N, p=p, progress=report, results=memory, **limit, **options)
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
    values = _probabilities(values)
    loaded = load_profile(profile)
    predictions = []
    for p in values:
        predictions.append(predict(loaded, N=N, B=B, p=p, **options))
        if progress:
            progress(len(predictions), len(values))
    return predictions


def origin_of(
    loaded: LoadedProfile, system: RoutedSystem, context: Context | None = None
) -> dict[str, Any]:
    """Say what a document was made from, in plain values; ``context`` is the one asked for."""
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
            "entry": system.phases[system.entry].name,
            **_phases(system),
            "max_batch": list(system.max_batch),
            "context_tokens": recorded_context(loaded.profile, context),
            "grid_ms": system.grid_ms,
            "grid_error_percent": system.grid_error_percent,
        },
    }


def _does_not_fit(
    loaded: LoadedProfile, N: int, routing: StrPath | Routing | None, context: Context | None
) -> list[str]:
    """Say what of N requests does not fit into GPU memory, as far as the profile tells."""
    try:
        check = check_capacity(loaded, N, routing, context)
    except InfeasibleError as error:  # not even the weights do
        return str(error).splitlines()
    return [] if check.fits or check.message is None else [check.message]


def _phases(system: RoutedSystem) -> dict[str, Any]:
    """Return the phases and the one that opens a new reply, where the system has any."""
    if system.plain and system.restart is None:
        return {}
    return {
        "phases": [
            {"name": u.name, "model": system.models[u.model], "added_ms": u.added_ms}
            for u in system.phases
        ],
        "restart": None if system.restart is None else system.phases[system.restart].name,
    }


def _probabilities(values: Iterable[float]) -> list[float]:
    several = [float(p) for p in values]
    if not several:
        raise UsageError("p: at least one value is needed")
    return several


def _wanted(N: int | Collection[int]) -> list[int]:
    several = list(N) if isinstance(N, Iterable) and not isinstance(N, str) else [N]
    if not several or not all(is_int(n) and n >= 1 for n in several):
        raise UsageError(f"N: one or more whole numbers of at least 1 are needed, got {N!r}")
    return sorted({int(n) for n in several})
