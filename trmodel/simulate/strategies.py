"""The four strategies of token-level routing, on the same requests and routing decisions.

- ``step-sync``: a barrier at each logical step of all requests;
- ``model-sync``: one model at a time, until no request is left on it;
- ``eager``: every idle model starts whatever waits (Eager-Async, B = (1, ..., 1));
- ``delayed``: every idle model waits for its threshold B.

With constant latencies L_0, L_1 and R2R's routing (the small model hands over with probability p,
the large one always hands back) the first two have closed forms:

    step-sync:  N / (L_0 + (1 - (1 - p)^N) L_1)
    model-sync: (N / p) / (E[max of N geometric(p)] L_0 + L_1).

Source: arXiv:2610.12242, figure 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trmodel.errors import UsageError
from trmodel.simulate.paired import Case, Comparison, simulate_paired
from trmodel.simulate.rules import Options, Strategy
from trmodel.system import RoutedSystem

STRATEGIES = ("step-sync", "model-sync", "eager", "delayed")
_RULES = {
    "step-sync": Strategy.step_sync,
    "model-sync": Strategy.model_sync,
    "eager": Strategy.delayed,
    "delayed": Strategy.delayed,
}


def strategy_case(
    name: str,
    system: RoutedSystem,
    B: Sequence[int] | Sequence[Sequence[int]] | None = None,
    options: Options = Options(),
) -> Case:
    """Return what is simulated for a strategy; only ``delayed`` uses B and a longest hold.

    Raises
    ------
    UsageError
        If there is no such strategy, or delayed batching has no B.
    """
    if name not in _RULES:
        raise UsageError(f"strategy: must be one of {', '.join(STRATEGIES)}, got {name}")
    if name != "delayed":
        B, options = (1,) * system.M, replace(options, hold_ms=None)
    elif B is None:
        raise UsageError("B: delayed batching needs a threshold for each model")
    return Case(system, B, replace(options, strategy=_RULES[name]))


def compare_strategies(
    system: RoutedSystem,
    B: Sequence[int] | Sequence[Sequence[int]],
    options: Options = Options(),
    **run: Any,
) -> Comparison:
    """Simulate all four strategies; gains are those of delayed batching.

    ``run`` is that of `simulate_paired`: seed, batches, precision_percent, confidence, progress.

    Raises
    ------
    InputError, UsageError, InfeasibleError
        See `trmodel.simulate.simulate`.
    """
    cases = {name: strategy_case(name, system, B, options) for name in STRATEGIES}
    return simulate_paired(cases, "delayed", **run)
