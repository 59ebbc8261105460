"""The exact chain: transitions, enumeration, stationary solution, metrics, best launch rule."""

from trmodel.markov.best_rule import BestRule, best_launch_rule
from trmodel.markov.chain import Chain, solve_chain
from trmodel.markov.enumeration import Limits
from trmodel.markov.metrics import ModelMetrics, Prediction, predict_chain
from trmodel.markov.stationary import Solver

__all__ = [
    "BestRule",
    "Chain",
    "Limits",
    "ModelMetrics",
    "Prediction",
    "Solver",
    "best_launch_rule",
    "predict_chain",
    "solve_chain",
]
