"""Which threshold vectors are live at a concurrency.

B is live at n if sum_i (B_i - 1) < n (see `trmodel.launch`). All of them are candidates: no rule
that would leave some out is known to be safe for every system.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from trmodel.errors import InfeasibleError
from trmodel.launch import is_live
from trmodel.system import RoutedSystem


def feasible_thresholds(
    system: RoutedSystem, fixed: Mapping[int, int] | None = None
) -> list[tuple[int, ...]]:
    """List the live threshold vectors of a system, smaller sums first.

    Parameters
    ----------
    system
        Models that routing never reaches have threshold 1.
    fixed
        Thresholds that are given, by model index.

    Raises
    ------
    InfeasibleError
        If the fixed thresholds leave no live vector.
    """
    given = {i: 1 for i in range(system.M) if i not in system.reached} | dict(fixed or {})
    slack = system.N - 1 - sum(b - 1 for b in given.values())
    if slack < 0:
        shown = ", ".join(f"{system.models[i]} = {b}" for i, b in given.items() if b > 1)
        raise InfeasibleError(
            f"N = {system.N}: with the threshold of {shown} fixed every vector can deadlock; "
            "sum(B_i - 1) must be below N"
        )
    ranges = [(given[i],) if i in given else range(1, slack + 2) for i in range(system.M)]
    live = [B for B in product(*ranges) if is_live(B, system.N)]
    return sorted(live, key=lambda B: (sum(B), B))
