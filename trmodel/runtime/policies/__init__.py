"""Routing policies: the interface, and those of the papers, which `find_policy` knows by name."""

from trmodel.runtime.policies.base import Policy
from trmodel.runtime.policies.bernoulli import Bernoulli
from trmodel.runtime.policies.find import find_policy
from trmodel.runtime.policies.scripted import Scripted
from trmodel.runtime.policies.threshold import ThresholdPolicy

__all__ = ["Bernoulli", "Policy", "Scripted", "ThresholdPolicy", "find_policy"]
