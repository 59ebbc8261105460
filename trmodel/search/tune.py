"""Tuning: the best live thresholds for every concurrency up to the largest asked for.

Every live vector of every n = 1, 2, ..., max N is evaluated by the exact chain, rows in ascending
order of n, so that a search that is stopped still leaves a table that is live: above its last row
that row holds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import comb
from typing import Any

from threadpoolctl import threadpool_limits

from trmodel.errors import LimitError, UsageError
from trmodel.markov import Limits, Solver, solve_chain
from trmodel.markov.best_rule import require_bounded
from trmodel.markov.metrics import chain_warnings, no_waiting_tok_s
from trmodel.markov.transitions import Splits, split_table
from trmodel.search.bound import bounds
from trmodel.search.choose import Candidate, choose
from trmodel.search.feasible import feasible_thresholds
from trmodel.search.table import Row, ThresholdTable
from trmodel.system import RoutedSystem
from trmodel.system_checks import is_int

MAX_CHAINS = 1_000_000
"""More chains than this are not begun: their list alone would fill the memory."""

Progress = Callable[[int, int], None]
"""Called with chains solved and chains in all."""


def tune_system(
    system: RoutedSystem,
    wanted: Collection[int],
    *,
    fixed: Mapping[int, int] | None = None,
    solver: Solver = "auto",
    limits: Limits = Limits(),
    time_limit_s: float | None = None,
    deadline: float | None = None,
    progress: Progress | None = None,
    origin: Mapping[str, Any] | None = None,
    bound: bool = False,
) -> ThresholdTable:
    """Tune a system for every n up to the largest wanted.

    Parameters
    ----------
    system
        Built for at least the largest wanted N.
    wanted
        The concurrencies asked for; all rows from 1 to the largest are tuned.
    fixed
        Thresholds that are given, by model index. Below the wanted rows a fixed threshold above
        what is live at n is lowered to that, which the row's notes say.
    time_limit_s
        Seconds after which the search stops with the rows it has; chains in progress are
        finished first.
    deadline
        When these seconds are over, as `time.monotonic` tells it, if they began before this call.
    progress
        Called after every chain.
    bound
        Also find for every row the throughput that no launch rule exceeds.

    Raises
    ------
    InfeasibleError
        If the fixed thresholds are not live at a wanted N.
    LimitError
        If not one wanted row could be finished within the limits, or there are far too many
        vectors.
    UsageError
        If an argument makes no sense.
    """
    if not wanted or min(wanted) < 1:
        raise UsageError("N: at least one concurrency of at least 1 is needed")
    fixed = dict(fixed or {})
    for i, b in fixed.items():
        if not (is_int(i) and is_int(b) and 0 <= i < system.M and b >= 1):
            raise UsageError(f"B{i}: must be a threshold of at least 1 of models 0..{system.M - 1}")
    fixed = {int(i): int(b) for i, b in fixed.items()}
    _require_countable(system, max(wanted), fixed)
    no_waiting_tok_s(system)  # refuses a routing that commits nothing
    if bound:
        require_bounded(system)
    systems = {n: system.with_N(n) for n in range(1, max(wanted) + 1)}
    plans = {n: _plan(systems[n], fixed, n in wanted) for n in systems}
    total = sum(len(plan.evaluated) for plan in plans.values())
    rows: list[Row] = []
    classes: list[int] = []
    stopped = None
    if time_limit_s is not None and deadline is None:
        deadline = time.monotonic() + time_limit_s
    done = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool, threadpool_limits(1, user_api="blas"):
        solved = _in_order(
            pool,
            (
                (systems[n], B, splits)
                for n, plan in plans.items()
                for splits in [split_table(systems[n].restricted())]
                for B in plan.evaluated
            ),
            solver,
            limits,
        )
        try:
            for n, plan in plans.items():
                row = {}
                for B in plan.evaluated:
                    row[B], recurrent = next(solved)
                    classes.append(recurrent)
                    done += 1
                    if progress:
                        progress(done, total)
                    if (
                        time_limit_s is not None
                        and deadline is not None
                        and time.monotonic() > deadline
                    ):
                        raise LimitError(f"the time limit of {time_limit_s:g} s was reached")
                candidates = [row[B] for B in plan.candidates]
                rows.append(Row(n, choose(candidates, row[plan.eager]), plan.notes))
        except LimitError as error:
            stopped = f"{error} (rows up to N = {len(rows)} are complete)"
        finally:
            solved.close()
    if stopped and not any(row.N in wanted for row in rows):
        raise LimitError(f"{stopped}, none that was asked for")
    if bound:
        found = bounds(((systems[r.N], r.B, r.throughput_tok_s) for r in rows), deadline)
        rows = [replace(row, bound=each) for row, each in zip(rows, found, strict=True)]
    return ThresholdTable(
        models=system.models,
        rows=tuple(rows),
        wanted=tuple(sorted(wanted)),
        origin=dict(origin or {}),
        warnings=chain_warnings(system.restricted(), classes),
        stopped=stopped,
    )


def _require_countable(system: RoutedSystem, max_n: int, fixed: Mapping[int, int]) -> None:
    """Refuse a search whose vectors are too many to list, counted without listing them."""
    free = len([i for i in system.reached if i not in fixed])
    spent = sum(b - 1 for b in fixed.values())
    count = sum(comb(max(n - 1 - spent, 0) + free, free) for n in range(1, max_n + 1))
    if count > MAX_CHAINS:
        raise LimitError(
            f"N = {max_n}: {count:,} chains would have to be solved, at most {MAX_CHAINS:,} are; "
            "use a smaller N or fix a threshold (--B0 1)"
        )


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


Job = tuple[RoutedSystem, tuple[int, ...], Splits]
Solved = tuple[Candidate, int]
"""A candidate and the number of its chain's recurrent classes."""


def _in_order(
    pool: ThreadPoolExecutor, jobs: Iterable[Job], solver: Solver, limits: Limits
) -> Generator[Solved, None, None]:
    """Solve chains on all cores, a few ahead of the one that is yielded next.

    (The compiled parts run outside the interpreter lock; few in flight bound the memory.)
    """

    def solve(job: Job) -> Solved:
        system, B, splits = job
        chain = solve_chain(system, B, solver=solver, limits=limits, splits=splits)
        candidate = Candidate(
            B, chain.throughput_tok_s, chain.states, "exact", chain.method, chain.residual
        )
        return candidate, chain.recurrent_classes

    pending: list[Future[Solved]] = []
    ahead = 2 * (os.cpu_count() or 1)
    try:
        for job in jobs:
            pending.append(pool.submit(solve, job))
            if len(pending) > ahead:
                yield pending.pop(0).result()
        while pending:
            yield pending.pop(0).result()
    finally:
        for future in pending:
            future.cancel()
