"""Find a policy by name: a built-in one, an entry point, or ``package.module:Class``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from trmodel.errors import InputError
from trmodel.runtime.policies.base import Policy
from trmodel.runtime.policies.bernoulli import Bernoulli
from trmodel.runtime.policies.scripted import Scripted

GROUP = "trmodel.policies"


def find_policy(
    name: str,
    options: Mapping[str, Any],
    transition_probability: Sequence[Sequence[float]],
    committed_tokens: Sequence[Sequence[float]],
) -> Policy:
    """Make the policy of a name.

    Parameters
    ----------
    name
        ``bernoulli``, ``scripted``, an entry point of the group ``trmodel.policies``, or
        ``package.module:Class``.
    options
        Keyword arguments of the policy's own.
    transition_probability, committed_tokens
        Of the server's routing, for ``bernoulli``.

    Raises
    ------
    InputError
        If there is none of that name, or it cannot be made.
    """
    if name == "bernoulli":
        if options:
            raise InputError(f"policy_options: bernoulli takes none, got {', '.join(options)}")
        return Bernoulli(transition_probability, committed_tokens)
    cls: Any = Scripted if name == "scripted" else _load(name)
    try:
        policy = cls(**options)
    except Exception as error:
        raise InputError(f"policy: {name} cannot be made: {error}") from error
    if not isinstance(policy, Policy):
        raise InputError(f"policy: {name} is not a trmodel.runtime.policies.Policy")
    return policy


def _load(name: str) -> Any:
    try:
        for entry in entry_points(group=GROUP, name=name):
            return entry.load()
        module, _, attribute = name.partition(":")
        if attribute:
            return getattr(import_module(module), attribute)
    except Exception as error:
        raise InputError(f"policy: {name} cannot be loaded: {error}") from error
    raise InputError(
        f"policy: {name} is none of bernoulli, scripted, an entry point of {GROUP}, or "
        "package.module:Class"
    )
