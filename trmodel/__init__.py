"""trmodel: model and tune token-level routing servers.

    >>> import trmodel
    >>> table = trmodel.tune("a100-paper", N=range(4, 9))
    >>> table.row(8).B
    (1, 5)

Names are loaded on first use, so that ``import trmodel`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trmodel._version import __version__

if TYPE_CHECKING:
    from trmodel.api import (
        arrivals,
        best_rule,
        compare_strategies,
        compare_systems,
        pareto,
        predict,
        simulate_profile,
        sweep_p,
        sweep_predictions,
        tune,
        tune_with_objectives,
    )
    from trmodel.errors import TrmodelError
    from trmodel.launch_table import load_launch_table
    from trmodel.profile import Profile, load_profile, profile_names
    from trmodel.routing import Completion, Routing, load_routing, routing_names
    from trmodel.routing.fit import fit_routing
    from trmodel.search import Thresholds, ThresholdTable
    from trmodel.system import RoutedSystem

_HOMES = {
    "best_rule": "trmodel.api",
    "load_launch_table": "trmodel.launch_table",
    "compare_strategies": "trmodel.api",
    "compare_systems": "trmodel.api",
    "simulate_profile": "trmodel.api",
    "arrivals": "trmodel.api",
    "pareto": "trmodel.api",
    "predict": "trmodel.api",
    "sweep_p": "trmodel.api",
    "sweep_predictions": "trmodel.api",
    "tune": "trmodel.api",
    "tune_with_objectives": "trmodel.api",
    "TrmodelError": "trmodel.errors",
    "Profile": "trmodel.profile",
    "load_profile": "trmodel.profile",
    "profile_names": "trmodel.profile",
    "Completion": "trmodel.routing",
    "Routing": "trmodel.routing",
    "fit_routing": "trmodel.routing.fit",
    "load_routing": "trmodel.routing",
    "routing_names": "trmodel.routing",
    "ThresholdTable": "trmodel.search",
    "Thresholds": "trmodel.search",
    "RoutedSystem": "trmodel.system",
}

__all__ = [
    "Completion",
    "Profile",
    "RoutedSystem",
    "Routing",
    "ThresholdTable",
    "Thresholds",
    "TrmodelError",
    "__version__",
    "arrivals",
    "best_rule",
    "compare_strategies",
    "compare_systems",
    "fit_routing",
    "load_launch_table",
    "load_profile",
    "load_routing",
    "pareto",
    "predict",
    "profile_names",
    "routing_names",
    "simulate_profile",
    "sweep_p",
    "sweep_predictions",
    "tune",
    "tune_with_objectives",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'trmodel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
