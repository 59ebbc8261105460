"""From a profile and a routing to the system that the chain, search and simulation take."""

from __future__ import annotations

from os import PathLike

import numpy as np

from trmodel.arrays import FloatArray
from trmodel.documents import StrPath, shown
from trmodel.errors import InputError, UsageError
from trmodel.profile.interpolate import decode_latency
from trmodel.profile.load import LoadedProfile
from trmodel.profile.schema import ModelProfile, Profile
from trmodel.routing import Routing, load_preset, load_routing, routing_names
from trmodel.system import MAX_CONCURRENCY, RoutedSystem


def build_system(
    loaded: LoadedProfile,
    N: int,
    routing: StrPath | Routing | None = None,
    *,
    p: float | None = None,
    max_batch: int | None = None,
    grid_ms: float | None = None,
) -> RoutedSystem:
    """Build the routed system of a profile at concurrency N.

    The system has the routing's models, in the routing's order and under the profile's names. A
    step of model i with b requests takes its decode latency plus its overhead.

    Parameters
    ----------
    loaded
        See :func:`trmodel.profile.load_profile`.
    N
        Concurrent requests; for a table, the largest.
    routing
        Name of a preset, path of a file, or a routing; None for the profile's default.
    p
        Probability that the first of two models hands over, in place of the routing's.
    max_batch
        The most requests in one step of any model. The profile's own bounds hold as well.
    grid_ms
        Time unit of the chain in milliseconds; None for the profile's.

    Raises
    ------
    UsageError
        If N, p, max_batch or grid_ms makes no sense.
    InputError
        If the routing cannot be loaded or applied to the profile, or with every model whose table
        does not reach the batches that can form.
    """
    _check_arguments(N, max_batch, grid_ms)
    profile = loaded.profile
    chosen = _choose_routing(loaded, routing)
    binding = chosen.bind(profile.model_names)
    sizes = [_largest_batch(profile.models[i], N, max_batch) for i in binding.order]
    latencies, problems = [], []
    for i, size in zip(binding.order, sizes, strict=True):
        where = f"{shown(loaded.origin)}: models[{i}].decode.batch"
        try:
            latencies.append(_step_latency(profile.models[i], size, where))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    system = RoutedSystem(
        models=[profile.models[i].name for i in binding.order],
        latency_ms=latencies,
        transition_probability=chosen.transition_probability,
        committed_tokens=chosen.committed_tokens,
        N=N,
        entry=chosen.entry_index,
        max_batch=sizes,
        grid_ms=profile.grid_ms if grid_ms is None else grid_ms,
        slow_down=_slow_downs(profile, [profile.models[i].name for i in binding.order]),
        warnings=[] if binding.warning is None else [binding.warning],
    )
    return system if p is None else system.with_p(p)


def _check_arguments(N: int, max_batch: int | None, grid_ms: float | None) -> None:
    if not 1 <= N <= MAX_CONCURRENCY:
        raise UsageError(f"N: must be a whole number from 1 to {MAX_CONCURRENCY}, got {N}")
    if max_batch is not None and max_batch < 1:
        raise UsageError(f"max_batch: must be a whole number of at least 1, got {max_batch}")
    if grid_ms is not None and not (np.isfinite(grid_ms) and grid_ms > 0):
        raise UsageError(f"grid_ms: must be a positive number of milliseconds, got {grid_ms}")


def _choose_routing(loaded: LoadedProfile, routing: StrPath | Routing | None) -> Routing:
    if isinstance(routing, (str, PathLike)):
        return load_routing(routing)
    chosen = loaded.profile.routing if routing is None else routing
    if chosen is None:
        raise InputError(
            f"{shown(loaded.origin)}: routing: the profile has no default; choose one "
            f"(--routing): a file or {', '.join(routing_names())}"
        )
    # Not load_routing: what the profile means must not depend on the files lying around.
    return load_preset(chosen) if isinstance(chosen, str) else chosen


def _slow_downs(profile: Profile, names: list[str]) -> dict[tuple[int, int], tuple[float, float]]:
    """Slow-downs of the pairs of which both models are named, by their places in the names."""
    return {
        (names.index(entry.models[0]), names.index(entry.models[1])): entry.factors
        for entry in profile.slow_downs
        if set(entry.models) <= set(names)
    }


def _largest_batch(model: ModelProfile, N: int, max_batch: int | None) -> int:
    return min(bound for bound in (N, model.max_batch, max_batch) if bound is not None)


def _step_latency(model: ModelProfile, size: int, where: str) -> FloatArray:
    """Latencies of steps with 1..size requests, in milliseconds."""
    table = model.decode
    batches = np.arange(1, size + 1)
    latency = decode_latency(table.batch, table.latency_ms, batches, where=where, model=model.name)
    return latency if model.overhead is None else latency + model.overhead.value_ms
