"""Objectives of service: thresholds that meet them, the front, and open arrivals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from trmodel.api.common import DEFAULT_PROFILE, AnyProfile, fitting, origin_of
from trmodel.api.tuning import tune
from trmodel.documents import StrPath
from trmodel.errors import LimitError
from trmodel.profile import LoadedProfile, build_system, load_profile
from trmodel.search.arrivals import REPLIES, largest_rate
from trmodel.search.arrivals_result import Arrivals
from trmodel.search.constrained import Constrained, constrain_table
from trmodel.search.objectives import parse_delay, parse_objectives
from trmodel.search.pareto import BATCHES, Pareto, pareto_of_row
from trmodel.search.threshold_file import load_thresholds
from trmodel.search.thresholds import Thresholds
from trmodel.search.tune import Progress
from trmodel.simulate import Options
from trmodel.simulate.lengths import geometric_lengths
from trmodel.system import RoutedSystem

DEFAULT_REPLY_TOKENS = 1000.0
"""Of the order of a reasoning reply; only a server's own lengths say how long they are."""


def tune_with_objectives(
    slo: Sequence[str],
    profile: AnyProfile = DEFAULT_PROFILE,
    N: int | Collection[int] = range(4, 17),
    *,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Constrained:
    """Choose the best live thresholds that meet objectives, such as ``["p99-itl-ms=60"]``.

    Parameters are those of `tune`; the objectives are described in `trmodel.search.objectives`,
    ``seed`` is of the simulations that tell whether they are met.

    Raises
    ------
    InfeasibleError
        If at none of the concurrencies anything meets them, with the nearest misses.
    TrmodelError
        Another of its subclasses; see `trmodel.errors`.
    """
    loaded = load_profile(profile)
    system = _largest_system(loaded, N, options)
    objectives = parse_objectives(slo, system, system.restart is not None)
    table = tune(loaded, N, seed=seed, progress=progress, **options)
    return constrain_table(system, table, objectives, seed=seed, progress=progress)


def pareto(
    profile: AnyProfile = DEFAULT_PROFILE,
    N: int = 8,
    *,
    delay: str = "p99-itl-ms",
    batches: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Pareto:
    """Set throughput against a delay over all live thresholds at one concurrency.

    Parameters are those of `tune`; ``delay`` is named as in objectives
    (`trmodel.search.objectives`), ``batches`` are simulated for each vector.

    Raises
    ------
    TrmodelError
        One of its subclasses; see `trmodel.errors`.
    """
    loaded = load_profile(profile)
    system = _largest_system(loaded, N, options)
    wanted = parse_delay(delay, system, system.restart is not None)
    table = tune(loaded, N, bound=False, progress=progress, **options)
    if table.stopped:
        raise LimitError(table.stopped)
    return pareto_of_row(
        system,
        table.row(N),
        table.models,
        wanted,
        seed=seed,
        batches=batches or BATCHES,
        progress=progress,
        origin=table.origin,
        warnings=table.warnings,
    )


def arrivals(
    profile: AnyProfile = DEFAULT_PROFILE,
    N: int = 16,
    *,
    slo: Sequence[str] = (),
    thresholds: StrPath | Thresholds | Sequence[int] | None = None,
    hold_ms: float | None = None,
    reply_tokens: float | Sequence[float] | None = None,
    seed: int = 0,
    replies: int | None = None,
    precision_percent: float = 1.0,
    progress: Progress | None = None,
    **options: Any,
) -> Arrivals:
    """Find the largest rate of Poisson arrivals at which objectives are met.

    Parameters
    ----------
    profile, N
        N is the most requests served at a time; further parameters of the system as in `predict`.
    slo
        Objectives such as ``"p99-itl-ms=60"``; none for the capacity alone.
    thresholds
        A document of `tune`, a table, or one vector (which needs ``hold_ms``); None for the table
        that `tune` finds.
    hold_ms
        An idle model starts whatever waits once the oldest has waited so long.
    reply_tokens
        Mean of geometric lengths, or lengths to draw from; None for the routing's own, or where it
        ends no replies, geometric ones of mean 1,000.
    replies, precision_percent
        See `trmodel.search.arrivals.largest_rate`.

    Raises
    ------
    InfeasibleError
        If objectives are not met at the lowest rate either, or thresholds can wait for ever.
    TrmodelError
        Another of its subclasses; see `trmodel.errors`.
    """
    loaded = load_profile(profile)
    system = _largest_system(loaded, N, options)
    objectives = parse_objectives(slo, system, True)
    if reply_tokens is None and system.restart is None:
        reply_tokens = DEFAULT_REPLY_TOKENS
    lengths: tuple[float, ...] | None
    if reply_tokens is None or isinstance(reply_tokens, Sequence):
        lengths = None if reply_tokens is None else tuple(reply_tokens)
    else:
        lengths = geometric_lengths(reply_tokens)
    simulated = Options(hold_ms=hold_ms, reply_tokens=lengths)
    vectors: Sequence[int] | Sequence[Sequence[int]]
    if thresholds is None:
        table = tune(loaded, N, bound=False, progress=progress, **options)
        if table.stopped:
            raise LimitError(table.stopped)
        vectors = table.thresholds.vectors
    elif isinstance(thresholds, Thresholds):
        vectors = thresholds.vectors
    elif isinstance(thresholds, (str, PathLike)):
        vectors = load_thresholds(thresholds, system.models).vectors
    else:
        vectors = thresholds
    found = largest_rate(
        system,
        vectors,
        objectives,
        simulated,
        seed=seed,
        replies=replies or REPLIES,
        precision_percent=precision_percent,
        progress=progress,
    )
    return replace(found, origin=origin_of(loaded, system, options.get("context")))


def _largest_system(
    loaded: LoadedProfile, N: int | Collection[int], options: Mapping[str, Any]
) -> RoutedSystem:
    """Build the system that `tune` does with these options."""
    names = ("routing", "p", "context", "completion", "max_batch", "grid_ms")
    asked = {name: options.get(name) for name in names}
    wanted, _ = fitting(
        loaded, N, asked["routing"], context=asked["context"], clip=options.get("clip", False)
    )
    return build_system(loaded, max(wanted), **asked)
