"""What a profile leaves unsaid although the answer depends on it: contention, overhead.

Both make steps longer. A profile that does not list them is used as if there were none, so that
predictions are too high and, as contention is what delayed batching gains most by, thresholds may
be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from trmodel.profile.schema import ModelProfile, Profile

FORWARD_PASSES = ("imported", "derived")
"""How tables of forward passes alone are obtained. Published constants are of whole steps."""


def unknown_costs(profile: Profile, names: Sequence[str]) -> list[str]:
    """Say what is taken as nothing because the profile does not list it, a line for each kind.

    - *contention* of two models that share a GPU, or may do so because it is not said where they
      run, without a slow-down of the pair (factors of 1 are one);
    - *overhead* of a model with imported or derived tables (0 ms is one).

    Parameters
    ----------
    profile
        A valid profile.
    names
        The models that a routing uses.
    """
    models = [model for name in names for model in profile.models if model.name == name]
    return _contention(profile, models) + _overhead(models)


def _contention(profile: Profile, models: Sequence[ModelProfile]) -> list[str]:
    listed = [set(entry.models) for entry in profile.slow_downs]
    pairs = [
        (a, b)
        for a, b in combinations(models, 2)
        if {a.name, b.name} not in listed and not _apart(a, b)
    ]
    if not pairs:
        return []
    placed = all(a.gpus is not None and b.gpus is not None for a, b in pairs)
    named = "; ".join(f"{a.name} and {b.name}" for a, b in pairs)
    return [
        f"contention is unknown: no slow-down is listed of {named}, which "
        f"{'share' if placed else 'may share'} GPUs; taken as none"
    ]


def _apart(a: ModelProfile, b: ModelProfile) -> bool:
    return a.gpus is not None and b.gpus is not None and not set(a.gpus) & set(b.gpus)


def _overhead(models: Sequence[ModelProfile]) -> list[str]:
    bare = [
        model.name
        for model in models
        if model.overhead is None and model.decode.provenance.method in FORWARD_PASSES
    ]
    if not bare:
        return []
    return [
        f"overhead is unknown: none is listed of {', '.join(bare)}, whose tables are imported, and "
        "a routed step takes longer than a forward pass; taken as 0 ms"
    ]
