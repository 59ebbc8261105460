"""Routing: which model a request goes to after a step, and the tokens committed on the way."""

from trmodel.routing.load import load_preset, load_routing, routing_names
from trmodel.routing.schema import Binding, Preset, Routing

__all__ = [
    "Binding",
    "Preset",
    "Routing",
    "load_preset",
    "load_routing",
    "routing_names",
]
