"""Find a policy by name: a built-in one, an entry point, or ``package.module:Class``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from trmodel.errors import InputError
from trmodel.runtime.policies.base import Policy
from trmodel.runtime.policies.options import check_names, options_at

GROUP = "trmodel.policies"
BUILT_IN = {
    "bernoulli": "bernoulli:Bernoulli",
    "citer": "citer:Citer",
    "co-llm": "co_llm:CoLLM",
    "ensemble": "ensemble:Ensemble",
    "glimprouter": "glimprouter:GlimpRouter",
    "r-stitch": "r_stitch:RStitch",
    "r2r": "r2r:R2R",
    "recording": "recording:Recording",
    "request-level": "request_level:RequestLevel",
    "scripted": "scripted:Scripted",
}
"""By name, the module of this package and the class."""
_TENSORS = ("torch", "safetensors")


def find_policy(
    name: str,
    options: Mapping[str, Any],
    transition_probability: Sequence[Sequence[float]],
    committed_tokens: Sequence[Sequence[float]],
    *,
    where: str = "policy_options",
) -> Policy:
    """Make the policy of a name.

    Parameters
    ----------
    name
        One of `BUILT_IN`, an entry point of the group ``trmodel.policies``, or
        ``package.module:Class``.
    options
        Keyword arguments of the policy's own.
    transition_probability, committed_tokens
        Of the server's routing, for policies that take it.
    where
        What the options are called in the server's file.

    Raises
    ------
    InputError
        If there is none of that name, it cannot be made, or is for other models.
    """
    cls: Any = _load(name)
    missing = [package for package in _TENSORS if find_spec(package) is None]
    if missing and getattr(cls, "needs", None):
        raise InputError(
            f"policy: {name} needs {' and '.join(missing)}, not installed; "
            "pip install 'trmodel[sglang]'"
        )
    routing: dict[str, Any] = {}
    if getattr(cls, "takes_routing", False):
        routing = {
            "transition_probability": transition_probability,
            "committed_tokens": committed_tokens,
        }
    try:
        with options_at(where):
            check_names(cls, options, name, frozenset(routing))
            policy = cls(**options, **routing)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"policy: {name} cannot be made: {error}") from error
    if not isinstance(policy, Policy):
        raise InputError(f"policy: {name} is not a trmodel.runtime.policies.Policy")
    M = len(transition_probability)
    if policy.models not in (None, M):
        raise InputError(f"policy: {name} goes between {policy.models} models, the server has {M}")
    if beyond := sorted(place for place in policy.places if place >= M):
        raise InputError(f"{where}: {name} names model {beyond[0]}, the server has 0 to {M - 1}")
    return policy


def _load(name: str) -> Any:
    try:
        if name in BUILT_IN:
            module, _, attribute = BUILT_IN[name].partition(":")
            return getattr(import_module(f"trmodel.runtime.policies.{module}"), attribute)
        for entry in entry_points(group=GROUP, name=name):
            return entry.load()
        module, _, attribute = name.partition(":")
        if attribute:
            return getattr(import_module(module), attribute)
    except Exception as error:
        raise InputError(f"policy: {name} cannot be loaded: {error}") from error
    raise InputError(
        f"policy: {name} is none of {', '.join(BUILT_IN)}, an entry point of {GROUP}, or "
        "package.module:Class"
    )
