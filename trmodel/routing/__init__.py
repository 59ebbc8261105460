"""Routing: which model a request goes to after a step, and the tokens committed on the way."""

from trmodel.routing.completion import Completion, with_completion
from trmodel.routing.load import load_preset, load_routing, routing_names
from trmodel.routing.make import fixed_length, glimprouter
from trmodel.routing.schema import Binding, Preset, Routing, RoutingPhase

__all__ = [
    "Binding",
    "Completion",
    "Preset",
    "Routing",
    "RoutingPhase",
    "fixed_length",
    "glimprouter",
    "load_preset",
    "load_routing",
    "routing_names",
    "with_completion",
]
