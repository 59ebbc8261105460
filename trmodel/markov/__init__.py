"""The exact chain: transition rule, enumeration, stationary solution and what follows from it."""

from trmodel.markov.chain import Chain, solve_chain
from trmodel.markov.enumeration import Limits
from trmodel.markov.metrics import ModelMetrics, Prediction, predict_chain
from trmodel.markov.stationary import Solver

__all__ = [
    "Chain",
    "Limits",
    "ModelMetrics",
    "Prediction",
    "Solver",
    "predict_chain",
    "solve_chain",
]
