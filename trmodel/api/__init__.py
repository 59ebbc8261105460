"""What the command line does, as Python functions: one for each command."""

from trmodel.api.common import DEFAULT_PROFILE, AnyProfile, fitting, origin_of
from trmodel.api.objectives import arrivals, pareto, tune_with_objectives
from trmodel.api.predicting import predict, sweep_predictions
from trmodel.api.simulating import compare_strategies, compare_systems, simulate_profile
from trmodel.api.tuning import best_rule, sweep_p, tune

__all__ = [
    "DEFAULT_PROFILE",
    "AnyProfile",
    "arrivals",
    "best_rule",
    "compare_strategies",
    "compare_systems",
    "fitting",
    "origin_of",
    "pareto",
    "predict",
    "simulate_profile",
    "sweep_p",
    "sweep_predictions",
    "tune",
    "tune_with_objectives",
]
