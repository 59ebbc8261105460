"""Tuning: the best live thresholds for every concurrency wanted, exactly or by simulation.

**Exact.** Every live vector of every n = 1, 2, ..., max N is evaluated by the exact chain.
**Simulated.** The wanted rows are searched by racing (`trmodel.search.simulated`); what lies
between is interpolated. **Auto** is exact where the whole table is estimated to take minutes at
most (`trmodel.search.exact`). Otherwise of the wanted rows those that are cheap are searched
exactly and the others by racing.

Rows come in ascending order of n, so that a search that is stopped still leaves a table that is
live: above its last row that row holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Literal

import numpy as np

from trmodel.errors import LimitError, TrmodelError, UsageError
from trmodel.markov import Limits, Solver
from trmodel.markov.best_rule import require_bounded
from trmodel.markov.metrics import chain_warnings, no_waiting_tok_s
from trmodel.markov.transitions import split_table
from trmodel.search.bound import Bound, bounds
from trmodel.search.choose import choose
from trmodel.search.exact import ROW_COST, TABLE_COST, count_vectors, row_costs, solve
from trmodel.search.feasible import feasible_thresholds
from trmodel.search.racing import Effort
from trmodel.search.results import UNFINISHED, Memory
from trmodel.search.simulated import RowSearch
from trmodel.search.spread import in_order
from trmodel.search.table import Row, ThresholdTable
from trmodel.system import RoutedSystem
from trmodel.system_checks import is_int

MAX_CHAINS = 1_000_000
"""More chains than this are not begun: their list alone would fill the memory."""
_RACE = 100
"""Steps of progress that a row found by racing counts as."""

Method = Literal["auto", "exact", "simulated"]
METHODS: tuple[Method, ...] = ("auto", "exact", "simulated")
Progress = Callable[[int, int], None]
"""Called with chains solved and chains in all; a row found by racing counts as 100 chains."""


def tune_system(
    system: RoutedSystem,
    wanted: Collection[int],
    *,
    fixed: Mapping[int, int] | None = None,
    method: Method = "auto",
    seed: int = 0,
    effort: Effort = Effort(),
    solver: Solver = "auto",
    limits: Limits = Limits(),
    time_limit_s: float | None = None,
    deadline: float | None = None,
    progress: Progress | None = None,
    origin: Mapping[str, Any] | None = None,
    bound: bool | None = False,
    memory: Memory | None = None,
) -> ThresholdTable:
    """Tune a system for every n up to the largest wanted.

    Parameters
    ----------
    system
        Built for at least the largest wanted N.
    wanted
        The concurrencies asked for. The exact search tunes all rows from 1 to the largest.
    fixed
        Thresholds that are given, by model index. Below the wanted rows a fixed threshold above
        what is live at n is lowered to that, which the row's notes say.
    method
        See above.
    seed, effort
        Of searches by simulation.
    time_limit_s
        Seconds after which the search stops with the rows it has; chains in progress are
        finished first.
    deadline
        When these seconds are over, as `time.monotonic` tells it, if they began before this call.
    progress
        Called after every chain, and now and then during a race.
    bound
        Also find for every row the throughput that no launch rule exceeds; None where there is
        one and it is cheap.
    memory
        Rows that need not be searched again, and what is told of every finished row.

    Raises
    ------
    InfeasibleError
        If the fixed thresholds are not live at a wanted N.
    LimitError
        If not one wanted row could be finished within the limits, or there are far too many
        vectors for the exact search that was asked for.
    UsageError
        If an argument makes no sense.
    """
    if not wanted or min(wanted) < 1:
        raise UsageError("N: at least one concurrency of at least 1 is needed")
    if method not in METHODS:
        raise UsageError(f"method: must be one of {', '.join(METHODS)}, got {method}")
    fixed = _checked(fixed or {}, system)
    no_waiting_tok_s(system)  # refuses a routing that commits nothing
    bounded = _bounded(system, bound)
    for n in sorted(wanted):
        if sum(b - 1 for b in fixed.values()) >= n:
            feasible_thresholds(system.with_N(n), fixed)  # refuses, and says why
    exact, raced = _divided(system, wanted, fixed, method)
    plans = {n: _plan(system.with_N(n), fixed, n in wanted) for n in exact}
    total = sum(len(plan.evaluated) for plan in plans.values()) + _RACE * len(raced)
    options = search_options(wanted, method, fixed, solver, seed, effort)
    known = memory.known(origin or {}, options) if memory else {}
    rows: list[Row] = []
    classes: list[int] = []
    done = 0
    if time_limit_s is not None and deadline is None:
        deadline = monotonic() + time_limit_s

    def warnings() -> tuple[str, ...]:
        if any(row.N in wanted and row.choice.best.method == "exact" for row in rows):
            return chain_warnings(system.restricted(), classes)
        return system.restricted().warnings

    def table(stopped: str | None) -> ThresholdTable:
        return ThresholdTable(
            models=system.models,
            rows=tuple(rows),
            wanted=tuple(sorted(wanted)),
            origin=dict(origin or {}),
            warnings=warnings(),
            stopped=stopped,
            search=options,
        )

    def reached(more: float = 0.0) -> None:
        """Tell how far the search is, and end it if its time is over."""
        if progress:
            progress(done + int(more), total)
        if time_limit_s is not None and deadline is not None and monotonic() > deadline:
            raise LimitError(f"the time limit of {time_limit_s:g} s was reached")

    def add(row: Row) -> None:
        rows.append(row)
        if memory and row.N not in known:
            memory.save(table(UNFINISHED))

    solved = in_order(
        solve,
        (
            (each, B, splits, solver, limits)
            for n in exact
            if n not in known
            for each in [system.with_N(n)]
            for splits in [split_table(each.restricted())]
            for B in plans[n].evaluated
        ),
    )
    stopped = None
    try:
        for n, plan in plans.items():
            if n in known:
                done += len(plan.evaluated)
                add(known[n])
                continue
            found = {}
            for B in plan.evaluated:
                result = next(solved)
                if isinstance(result, LimitError):
                    raise result
                found[B], recurrent = result
                classes.append(recurrent)
                done += 1
                reached()
            candidates = [found[B] for B in plan.candidates]
            add(Row(n, choose(candidates, found[plan.eager]), plan.notes))
        search = RowSearch(seed, effort, solver, limits, lambda share: reached(share * _RACE))
        for n in raced:
            add(known[n] if n in known else search.row(system.with_N(n), fixed))
            done += _RACE
            reached()
    except LimitError as error:
        last = rows[-1].N if rows else 0
        stopped = f"{error} (rows up to N = {last} are complete)"
    finally:
        solved.close()
    if stopped and not any(row.N in wanted for row in rows):
        raise LimitError(f"{stopped}, none that was asked for")
    if bounded:
        # A bound leaves out handoff delays, which a row found by racing has: no gap between them.
        delayed = bool(np.any(system.handoff_ms))
        alike = [row for row in rows if not (delayed and row.search == "racing")]
        chosen = ((system.with_N(row.N), row.B) for row in alike)
        found_bounds = bounds(chosen, deadline, cheap=bound is None)
        by_n = {row.N: each for row, each in zip(alike, found_bounds, strict=True)}
        apart = Bound(None, "no bound: it would leave out handoff delays")
        rows = [replace(row, bound=by_n.get(row.N, apart)) for row in rows]
    return table(stopped)


def search_options(
    wanted: Collection[int],
    method: Method,
    fixed: Mapping[int, int],
    solver: Solver,
    seed: int,
    effort: Effort,
) -> dict[str, Any]:
    """Say in plain values how a search was made, for its document."""
    return {
        "method": method,
        "N": sorted(wanted),
        "fixed": {str(i): int(b) for i, b in fixed.items()},
        "solver": solver,
        "seed": seed,
        "work": effort.work,
        "precision_percent": effort.precision_percent,
    }


def _bounded(system: RoutedSystem, bound: bool | None) -> bool:
    """Whether rows get a bound; that of a system that has none is refused if it was asked for."""
    if bound is False:
        return False
    try:
        require_bounded(system)
    except TrmodelError:
        if bound:
            raise
        return False
    return True


def _checked(fixed: Mapping[int, int], system: RoutedSystem) -> dict[int, int]:
    for i, b in fixed.items():
        if not (is_int(i) and is_int(b) and 0 <= i < system.M and b >= 1):
            raise UsageError(f"B{i}: must be a threshold of at least 1 of models 0..{system.M - 1}")
    return {int(i): int(b) for i, b in fixed.items()}


def _divided(
    system: RoutedSystem, wanted: Collection[int], fixed: Mapping[int, int], method: Method
) -> tuple[list[int], list[int]]:
    """Divide the rows to search into those searched exactly and those found by racing."""
    every = range(1, max(wanted) + 1)
    chains = sum(count_vectors(system, n, fixed) for n in every)
    if method == "exact" and chains > MAX_CHAINS:
        raise LimitError(
            f"N = {max(wanted)}: {chains:,} chains would have to be solved, at most "
            f"{MAX_CHAINS:,} are; use a smaller N, fix a threshold (--B0 1) or search by "
            "simulation (--method simulated)"
        )
    if method == "exact":
        return list(every), []
    cheap: set[int] = set()
    if method == "auto":
        costs = row_costs(system, every, fixed)
        if chains <= MAX_CHAINS and sum(costs.values()) <= TABLE_COST:
            return list(every), []
        if not np.any(system.handoff_ms):  # which only a simulation has
            cheap = {n for n in wanted if costs[n] <= ROW_COST}
    exact = {1, *cheap}  # at n = 1 there is but one live vector
    return sorted(exact), sorted(set(wanted) - exact)


@dataclass(frozen=True)
class _Plan:
    """What to evaluate for one row, and what had to be changed to have any candidates."""

    candidates: list[tuple[int, ...]]
    eager: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def evaluated(self) -> list[tuple[int, ...]]:
        if self.eager in self.candidates:
            return self.candidates
        return [self.eager, *self.candidates]


def _plan(system: RoutedSystem, fixed: Mapping[int, int], wanted: bool) -> _Plan:
    eager = (1,) * system.M
    if wanted:
        return _Plan(feasible_thresholds(system, fixed), eager)
    slack, lowered = system.N - 1, {}
    for i, b in fixed.items():
        lowered[i] = min(b, slack + 1)
        slack -= lowered[i] - 1
    changed = tuple(
        f"{system.models[i]}: {b} lowered to {lowered[i]} to stay live"
        for i, b in fixed.items()
        if lowered[i] != b
    )
    return _Plan(feasible_thresholds(system, lowered), eager, changed)
