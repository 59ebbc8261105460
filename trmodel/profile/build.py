"""From a profile and a routing to the system that the chain, search and simulation take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike

import numpy as np

from trmodel.arrays import FloatArray
from trmodel.documents import StrPath, shown
from trmodel.errors import InputError, UsageError
from trmodel.phases import Phase
from trmodel.profile.context import Context, context_range
from trmodel.profile.handoff import handed_over, handoff_latency
from trmodel.profile.load import LoadedProfile
from trmodel.profile.plausible import plausibility_warnings
from trmodel.profile.schema import ModelProfile, Profile
from trmodel.profile.steps import model_steps, prompt_added
from trmodel.profile.unknown import unknown_costs
from trmodel.routing import (
    Completion,
    Routing,
    load_preset,
    load_routing,
    routing_names,
    with_completion,
)
from trmodel.system import MAX_CONCURRENCY, RoutedSystem
from trmodel.system_checks import is_int, is_positive


def build_system(
    loaded: LoadedProfile,
    N: int,
    routing: StrPath | Routing | None = None,
    *,
    p: float | None = None,
    max_batch: int | None = None,
    grid_ms: float | None = None,
    context: Context | None = None,
    completion: Completion | None = None,
) -> RoutedSystem:
    """Build the routed system of a profile at concurrency N.

    The system has the routing's models, in the routing's order and under the profile's names. A
    step of model i with b requests takes its decode latency, or a mean of decode and extend if the
    model has an extend table (:func:`trmodel.profile.steps.model_steps`), plus its overhead, and
    longer by the profile's ``wake`` where the model was idle before.
    Whatever is doubtful about these numbers is in the system's ``warnings``.

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
    context
        Tokens of context of every request, or (low, high) for a context that grows evenly over a
        reply: latencies are then averaged over it. None for the profile's
        (:func:`trmodel.profile.context.context_range`).
    completion
        Let replies end, and read a prompt before the next one
        (:mod:`trmodel.routing.completion`). None for replies without end.

    Raises
    ------
    UsageError
        If N, p, max_batch, grid_ms or context makes no sense, or the routing ends replies already.
    InputError
        If the routing cannot be loaded or applied to the profile, or with every model whose table
        does not reach the batches that can form.
    """
    _check_arguments(N, max_batch, grid_ms)
    profile = loaded.profile
    tokens = context_range(profile, context)
    chosen = choose_routing(loaded, routing)
    if p is not None:
        chosen = chosen.with_p(p)
    if completion is not None:
        chosen = with_completion(chosen, completion)
    binding = chosen.bind(profile.model_names)
    names = [profile.models[i].name for i in binding.order]
    sizes = [_largest_batch(profile.models[i], N, max_batch) for i in binding.order]
    P = np.array(chosen.transition_probability)
    handoffs = handed_over(
        P,
        chosen.committed_tokens,
        chosen.phase_models if chosen.phases else None,
        entry=chosen.entry_index,
        restart=chosen.restart_index,
        own=[u for u, phase in enumerate(chosen.phases) if phase.added_ms or phase.prompt_tokens],
    )
    latencies = []
    warnings = [] if binding.warning is None else [binding.warning]
    warnings += plausibility_warnings(profile, names)
    problems: list[str] = []
    for m, i in enumerate(binding.order):
        try:
            steps = model_steps(
                profile.models[i],
                sizes[m],
                tokens,
                handed_over=handoffs.fraction[m],
                new_tokens=handoffs.new_tokens[m],
                where=f"{shown(loaded.origin)}: models[{i}]",
            )
        except InputError as error:
            problems += error.problems
            continue
        latencies.append(steps.latency_ms)
        warnings += [*loaded.smoothed.get(names[m], ()), *steps.notes]
    phases, notes = _phases(loaded, chosen, binding.order, tokens, problems)
    warnings += [note for note in notes if note not in warnings]
    if problems:
        raise InputError(problems)
    grid = profile.grid_ms if grid_ms is None else grid_ms
    wakes = [profile.models[i].wake for i in binding.order]
    # A wrong unit or an extrapolation may be why: the doubts come with a refusal.
    if vanishing := _vanishing(names, latencies, grid):
        raise InputError([*vanishing, *warnings])
    try:
        system = RoutedSystem(
            models=names,
            latency_ms=latencies,
            transition_probability=P,
            committed_tokens=chosen.committed_tokens,
            N=N,
            entry=chosen.entry_index,
            max_batch=sizes,
            grid_ms=grid,
            slow_down=_slow_downs(profile, names),
            phases=phases,
            restart=chosen.restart_index,
            handoff_ms=handoff_latency(profile, names),
            wake_ms=[0.0 if wake is None else wake.value_ms for wake in wakes],
            warnings=warnings,
        )
    except InputError as error:
        raise InputError([*error.problems, *warnings]) from None
    unknown = unknown_costs(profile, [names[i] for i in system.reached])
    return replace(system, warnings=(*system.warnings, *unknown))


def _check_arguments(N: int, max_batch: int | None, grid_ms: float | None) -> None:
    if not (is_int(N) and 1 <= N <= MAX_CONCURRENCY):
        raise UsageError(f"N: must be a whole number from 1 to {MAX_CONCURRENCY}, got {N}")
    if max_batch is not None and not (is_int(max_batch) and max_batch >= 1):
        raise UsageError(f"max_batch: must be a whole number of at least 1, got {max_batch}")
    if grid_ms is not None and not is_positive(grid_ms):
        raise UsageError(f"grid_ms: must be a positive number of milliseconds, got {grid_ms}")


def choose_routing(loaded: LoadedProfile, routing: StrPath | Routing | None = None) -> Routing:
    """Return the routing asked for, or the profile's default.

    Raises
    ------
    InputError
        If it cannot be loaded, or there is no default.
    """
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


def _phases(
    loaded: LoadedProfile,
    routing: Routing,
    order: Sequence[int],
    context: tuple[int, int],
    problems: list[str],
) -> tuple[list[Phase], list[str]]:
    """Time the phases of a routing; return also what is doubtful, and note what is missing."""
    phases: list[Phase] = []
    doubts: list[str] = []
    if not routing.phases:
        return phases, doubts
    for phase, m in zip(routing.phases, routing.phase_models, strict=True):
        added, i = phase.added_ms, order[m]
        if phase.prompt_tokens is not None:
            where = f"{shown(loaded.origin)}: models[{i}]"
            model = loaded.profile.models[i]
            try:
                added, notes = prompt_added(model, phase.prompt_tokens, context, where=where)
            except InputError as error:
                problems += error.problems
                continue
            doubts += notes
        phases.append(Phase(phase.name, m, added))
    return phases, doubts


def _slow_downs(profile: Profile, names: list[str]) -> dict[tuple[int, int], tuple[float, float]]:
    """Slow-downs of the pairs of which both models are named, by their places in the names."""
    return {
        (names.index(entry.models[0]), names.index(entry.models[1])): entry.factors
        for entry in profile.slow_downs
        if set(entry.models) <= set(names)
    }


def _largest_batch(model: ModelProfile, N: int, max_batch: int | None) -> int:
    return min(bound for bound in (N, model.max_batch, max_batch) if bound is not None)


def _vanishing(names: list[str], latencies: list[FloatArray], grid_ms: float) -> list[str]:
    """Name the models of which a step would round to nothing."""
    shortest = [float(latency.min()) for latency in latencies]
    return [
        f"{name}: a step of {ms:g} ms vanishes on a grid of {grid_ms:g} ms; use a finer grid "
        "(grid_ms, --grid-ms)"
        for name, ms in zip(names, shortest, strict=True)
        if np.rint(ms / grid_ms) < 1
    ]
