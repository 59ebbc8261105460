"""The same system by compiled event simulation: any size, with delays, arrivals and tails.

It checks the exact chain and goes beyond its size; the two share the launch rule and nothing else.
"""

from trmodel.simulate.intervals import Estimate
from trmodel.simulate.result import Delays, SimulatedModel, Simulation
from trmodel.simulate.rules import Options, Strategy
from trmodel.simulate.run import simulate
from trmodel.simulate.simulator import Simulator

__all__ = [
    "Delays",
    "Estimate",
    "Options",
    "SimulatedModel",
    "Simulation",
    "Simulator",
    "Strategy",
    "simulate",
]
