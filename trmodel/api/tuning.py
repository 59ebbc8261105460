"""Thresholds: tuning, at several routing probabilities, and the best rule there can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from trmodel.api.common import DEFAULT_PROFILE, AnyProfile, fitting, origin_of, probabilities
from trmodel.documents import StrPath
from trmodel.errors import LimitError
from trmodel.markov import BestRule, Limits, Solver, best_launch_rule
from trmodel.markov.best_rule import BEST_RULE_LIMITS, require_bounded
from trmodel.markov.decisions import Actions
from trmodel.profile import (
    Context,
    build_system,
    load_profile,
)
from trmodel.routing import Completion, Routing
from trmodel.search import Effort, ThresholdTable, tune_system
from trmodel.search.results import UNFINISHED, Memory, remembered, results_file
from trmodel.search.sweep import Sweep
from trmodel.search.tune import Method, Progress


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
    values = probabilities(values)
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
