"""The search for thresholds: what is feasible, what is best, and the table that results."""

from trmodel.search.bound import Bound
from trmodel.search.choose import Candidate, Choice, RunnerUp
from trmodel.search.feasible import feasible_thresholds
from trmodel.search.racing import Effort
from trmodel.search.table import Row, ThresholdTable
from trmodel.search.thresholds import Thresholds
from trmodel.search.tune import tune_system

__all__ = [
    "Bound",
    "Candidate",
    "Choice",
    "Effort",
    "Row",
    "RunnerUp",
    "ThresholdTable",
    "Thresholds",
    "feasible_thresholds",
    "tune_system",
]
