"""The best possible launch rule of a system: an upper bound on what any thresholds can do.

A threshold rule sees one queue. The best rule sees the whole state each time a batch completes, and
for each idle model holds its requests or launches them (see `trmodel.markov.decisions` for what it
may do). It is the optimum of an average-reward semi-Markov decision process with the chain's own
completions and splits, found and certified by `trmodel.markov.decision_solver`.

Thresholds are such rules, whatever their values. So their throughput is at most the bound, and the
*gap* between the two is what thresholds leave on the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from trmodel.arrays import FloatArray, IndexArray, IntArray
from trmodel.compiled import compiled
from trmodel.errors import InputError, UsageError
from trmodel.launch import launch_size, require_live
from trmodel.launch_table import LaunchTable
from trmodel.markov.chain import solve_chain
from trmodel.markov.decision_solver import solve_decisions
from trmodel.markov.decisions import Actions, Decisions, enumerate_decisions
from trmodel.markov.enumeration import Limits
from trmodel.markov.stationary import stationary
from trmodel.markov.structure import recurrent_classes
from trmodel.markov.transitions import split_table
from trmodel.system import RoutedSystem

BEST_RULE_LIMITS = Limits(states=1_000_000, transitions=20_000_000)
"""Decision states and outcomes of their actions: about 20 seconds and 1.5 GB."""

_launch_size = compiled(launch_size)


@dataclass(frozen=True)
class LaunchPoint:
    """From how many waiting requests on the best rule launches a model, in one situation.

    Attributes
    ----------
    model
        Index of the idle model.
    running
        Batches that the other models run meanwhile, 0 for this model.
    smallest
        The fewest waiting requests that it launches; None if it always holds.
    remaining_ms
        Of the states in which it launches, the least remaining work of any running batch; None
        if it always holds or nothing else runs.
    decisions_percent
        Share of all decisions, in the long run.
    """

    model: int
    running: tuple[int, ...]
    smallest: int | None
    remaining_ms: float | None
    decisions_percent: float


@dataclass(frozen=True, eq=False)
class BestRule:
    """The best launch rule and what it is worth.

    Attributes
    ----------
    system
        Without models that routing never reaches.
    B
        The thresholds it is compared with, for these models.
    actions
        What the rule may do: ``all`` or ``part``.
    decisions, action
        All decision states with their actions, and the one that the rule takes in each; (S,).
    lower_tok_s, bound_tok_s
        Proved bracket: the rule gives at least the one, no rule more than the other.
    iterations
        Rules that policy iteration evaluated.
    """

    system: RoutedSystem
    B: tuple[int, ...]
    actions: Actions
    decisions: Decisions
    action: IntArray
    lower_tok_s: float
    bound_tok_s: float
    iterations: int

    @property
    def states(self) -> int:
        """Number of decision states that any rule can reach."""
        return self.decisions.states

    def gap_percent(self, throughput_tok_s: float) -> float:
        """Return how far a throughput is below the bound, in percent of the throughput."""
        return 100.0 * (self.bound_tok_s / throughput_tok_s - 1.0)

    @cached_property
    def table(self) -> LaunchTable:
        """The rule as a table of all decision states."""
        d = self.decisions
        return LaunchTable(
            self.system.models, self.system.N, self.system.grid_ms, d.k, d.b, d.r, self.launches
        )

    @property
    def launches(self) -> IndexArray:
        """Requests that each model starts in each state; (S, M)."""
        return np.asarray(self.decisions.launches[self.action])

    @cached_property
    def pi(self) -> FloatArray:
        """Stationary distribution of the decision states under the rule; (S,)."""
        T: csr_array = self.decisions.outcome[self.action]
        (states,) = recurrent_classes(T)
        pi = np.zeros(self.states)
        pi[states] = stationary(T[states][:, states]).pi
        return pi

    @cached_property
    def throughput_tok_s(self) -> float:
        """Throughput of the rule from its stationary distribution, not from the bracket."""
        d, a = self.decisions, self.action
        per_unit = self.pi @ d.tokens[a] / (self.pi @ d.tau[a])
        return float(per_unit * 1000.0 / self.system.grid_ms)

    @cached_property
    def thresholds_tok_s(self) -> float:
        """Throughput of the thresholds that the rule is compared with."""
        return solve_chain(self.system, self.B).throughput_tok_s

    @cached_property
    def differing_percent(self) -> float:
        """Share of the time, under the rule, after decisions that thresholds take otherwise."""
        time = self.pi * self.decisions.tau[self.action]
        differs = self.action != threshold_actions(self.decisions, self.B, self.system)
        return float(100.0 * time @ differs / time.sum())

    def launch_points(self) -> list[LaunchPoint]:
        """Say from how many waiting requests on each model is launched, by what else runs.

        Only states that the rule visits in the long run count; for each model the situations
        that occur most come first.
        """
        d, launches = self.decisions, self.launches
        visited = np.flatnonzero(self.pi)
        points = []
        for i in range(self.system.M):
            ready = visited[(d.b[visited, i] == 0) & (d.k[visited, i] > 0)]
            for running in np.unique(d.b[ready], axis=0):
                rows = ready[(d.b[ready] == running).all(axis=1)]
                points.append(self._point(i, running, rows, rows[launches[rows, i] > 0]))
        return sorted(points, key=lambda point: (point.model, -point.decisions_percent))

    def _point(
        self, i: int, running: IndexArray, rows: NDArray[np.intp], launching: NDArray[np.intp]
    ) -> LaunchPoint:
        d, some = self.decisions, len(launching) > 0
        busy = np.flatnonzero(running)
        remaining = d.r[np.ix_(launching, busy)]
        return LaunchPoint(
            model=i,
            running=tuple(running.tolist()),
            smallest=int(d.k[launching, i].min()) if some else None,
            remaining_ms=float(remaining.min() * self.system.grid_ms) if remaining.size else None,
            decisions_percent=float(100.0 * self.pi[rows].sum()),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what the rule is worth, without its table, as plain values ready for JSON."""
        return {
            "models": list(self.system.models),
            "N": self.system.N,
            "actions": self.actions,
            "bound_tok_s": self.bound_tok_s,
            "lower_tok_s": self.lower_tok_s,
            "B": list(self.B),
            "throughput_tok_s": self.thresholds_tok_s,
            "gap_percent": self.gap_percent(self.thresholds_tok_s),
            "differing_percent": self.differing_percent,
            "decision_states": self.states,
            "visited_states": int(np.count_nonzero(self.pi)),
            "iterations": self.iterations,
            "launch_points": [
                asdict(point) | {"model": self.system.models[point.model]}
                for point in self.launch_points()
            ],
            "grid_ms": self.system.grid_ms,
        }


def best_launch_rule(
    system: RoutedSystem,
    B: Sequence[int] | None = None,
    *,
    actions: Actions = "all",
    limits: Limits = BEST_RULE_LIMITS,
) -> BestRule:
    """Find the best launch rule of a system.

    Parameters
    ----------
    system
        Any system of one phase per model; models that routing never reaches are left out.
    B
        Thresholds to begin the search with and to compare with; None for eager launching.
    actions
        ``all``: an idle model holds or launches as many as one batch takes, as with thresholds;
        ``part``: it may also launch fewer.
    limits
        Most decision states and outcomes.

    Raises
    ------
    InfeasibleError
        If B can deadlock.
    LimitError
        If the decisions outgrow the limits.
    NotConvergedError
        If the bound cannot be certified.
    UsageError
        If the system has several phases per model, routing ends in one of several sets of models
        by chance, or an argument makes no sense.
    InputError
        If in the long run no token is committed.
    """
    if actions not in ("all", "part"):
        raise UsageError(f"actions: {actions} is not one of all, part")
    thresholds = system.check_thresholds((1,) * system.M if B is None else B)
    require_live(thresholds, system.N)
    require_bounded(system)
    thresholds = tuple(thresholds[i] for i in system.reached)
    system = system.restricted()
    decisions = enumerate_decisions(system, split_table(system), actions, limits)
    start = threshold_actions(decisions, thresholds, system)
    # The vectors of GMRES are too short for several threads to gain anything.
    with threadpool_limits(1, user_api="blas"):
        optimum = solve_decisions(decisions, start)
    units_per_s = 1000.0 / system.grid_ms
    return BestRule(
        system=system,
        B=thresholds,
        actions=actions,
        decisions=decisions,
        action=optimum.action,
        lower_tok_s=optimum.lower * units_per_s,
        bound_tok_s=optimum.upper * units_per_s,
        iterations=optimum.iterations,
    )


def require_bounded(system: RoutedSystem) -> None:
    """Refuse a system for which no single best launch rule is computed.

    Raises
    ------
    UsageError, InputError
        See `best_launch_rule`.
    """
    if not system.plain:
        raise UsageError(
            "the best launch rule needs one phase per model; this routing has "
            f"{system.U} phases for {system.M} models"
        )
    reached = system.restricted()
    classes = recurrent_classes(csr_array(reached.transition_probability))
    if len(classes) > 1:
        raise UsageError(
            "the best launch rule needs routing that ends in one set of models; here chance "
            "decides between several"
        )
    if not reached.tokens_per_step[classes[0]].any():
        raise InputError(
            "committed_tokens: in the long run no token is committed; "
            "give the routing's steps some tokens"
        )


def threshold_actions(decisions: Decisions, B: Sequence[int], system: RoutedSystem) -> IntArray:
    """Return the action that thresholds B, live, take in each decision state; (S,)."""
    d = decisions
    rule = np.array(B), np.array(system.max_batch)
    return _threshold_actions(d.k, d.b, *rule, d.first_action, d.launches)


@compiled
def _threshold_actions(
    k: IndexArray,
    b: IndexArray,
    B: IntArray,
    max_batch: IntArray,
    first_action: IntArray,
    launches: IndexArray,
) -> IntArray:
    actions = np.full(len(k), -1, np.int64)
    for s in range(len(k)):
        for a in range(first_action[s], first_action[s + 1]):
            same = True
            for i in range(len(B)):
                same &= launches[a, i] == _launch_size(k[s, i], b[s, i], B[i], max_batch[i])
            if same:
                actions[s] = a
    return actions
