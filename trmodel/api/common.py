"""What all commands need: the profile, what fits, and what an answer was made from."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from trmodel._version import __version__
from trmodel.documents import StrPath
from trmodel.errors import InfeasibleError, UsageError
from trmodel.profile import (
    Context,
    LoadedProfile,
    Profile,
    check_capacity,
    load_profile,
    recorded_context,
)
from trmodel.routing import Routing
from trmodel.system import MAX_CONCURRENCY, RoutedSystem
from trmodel.system_checks import is_int

DEFAULT_PROFILE = "a100"
AnyProfile = StrPath | Profile | LoadedProfile


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
    wanted = wanted_concurrencies(N)
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


def does_not_fit(
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


def probabilities(values: Iterable[float]) -> list[float]:
    several = [float(p) for p in values]
    if not several:
        raise UsageError("p: at least one value is needed")
    return several


def wanted_concurrencies(N: int | Collection[int]) -> list[int]:
    several = list(N) if isinstance(N, Iterable) and not isinstance(N, str) else [N]
    if not several or not all(is_int(n) and n >= 1 for n in several):
        raise UsageError(f"N: one or more whole numbers of at least 1 are needed, got {N!r}")
    return sorted({int(n) for n in several})
