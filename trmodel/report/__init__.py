"""Plots: matplotlib figures of tables, sweeps, predictions and measurements, and their files.

Figures are built without pyplot, so they need no display, hold no global state and can be made in
any thread. Nothing else in the package imports this one until a plot is asked for.
"""

from trmodel.report.arrivals import arrivals_figure
from trmodel.report.comparison import Measurement, comparison_figure
from trmodel.report.heat_map import heat_map_figure
from trmodel.report.ledger import ledger_figure
from trmodel.report.pareto import pareto_figure
from trmodel.report.profile import profile_figure
from trmodel.report.save import FIGURE_SUFFIXES, check_figure_path, save_figure
from trmodel.report.strategies import strategies_figure
from trmodel.report.sweep import sweep_figure
from trmodel.report.thresholds import threshold_figure
from trmodel.report.timeline import timeline_figure

__all__ = [
    "FIGURE_SUFFIXES",
    "Measurement",
    "arrivals_figure",
    "check_figure_path",
    "comparison_figure",
    "heat_map_figure",
    "ledger_figure",
    "pareto_figure",
    "profile_figure",
    "save_figure",
    "strategies_figure",
    "sweep_figure",
    "threshold_figure",
    "timeline_figure",
]
