"""Routing policies: the interface, and those that need no model."""

from trmodel.runtime.policies.base import Policy
from trmodel.runtime.policies.bernoulli import Bernoulli
from trmodel.runtime.policies.find import find_policy
from trmodel.runtime.policies.scripted import Scripted

__all__ = ["Bernoulli", "Policy", "Scripted", "find_policy"]
