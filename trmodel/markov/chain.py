"""The chain of one threshold vector: enumerated, solved, and its throughput.

With stationary distribution pi, holding times tau and the models A(s) that complete in state s,

    T(B) = sum_s pi(s) sum_{i in A(s)} b_i sum_j c_ij p_ij  /  sum_s pi(s) tau(s)

(arXiv:2610.12242, appendix D). With several phases per model the inner sum runs over the phases in
which the completed requests are, and replies are completed at the rate at which requests enter the
restart phase.

If routing leads to several recurrent classes, the long run depends on chance. ``pi`` is then the
mixture for which every ratio of this form is the average over where the chain ends: each class
weighs its absorption probability divided by its mean holding time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from trmodel.arrays import FloatArray
from trmodel.launch import require_live
from trmodel.markov.enumeration import Enumeration, Limits, enumerate_states
from trmodel.markov.stationary import Solver, stationary
from trmodel.markov.structure import absorption_probabilities, recurrent_classes
from trmodel.markov.transitions import Splits, completions, split_table
from trmodel.system import RoutedSystem


@dataclass(frozen=True, eq=False)
class Chain:
    """A solved chain.

    Attributes
    ----------
    system
        Without models that routing never reaches.
    B
        One threshold for each of its models.
    enumeration
        States and transitions.
    pi
        (S,): stationary distribution, zero on transient states.
    method, residual
        The solver that gave ``pi`` (the one of the largest class) and the largest
        ||pi T - pi||_1 over the classes.
    recurrent_classes
        How many the start can lead to.
    """

    system: RoutedSystem
    B: tuple[int, ...]
    enumeration: Enumeration
    pi: FloatArray
    method: str
    residual: float
    recurrent_classes: int

    @property
    def states(self) -> int:
        """Number of states reachable from the start."""
        return len(self.pi)

    @property
    def transition(self) -> csr_array:
        """The (S, S) transition matrix."""
        return self.enumeration.transition

    @cached_property
    def holding_ms(self) -> FloatArray:
        """Holding time of each state in milliseconds; (S,)."""
        return np.asarray(self.enumeration.holding_units * self.system.grid_ms)

    @cached_property
    def finished(self) -> FloatArray:
        """Size of the batch that each model completes at the end of each state; (S, M)."""
        e = self.enumeration
        return completions(e.b, e.r, self.system.slow_down)

    @cached_property
    def finished_by_phase(self) -> FloatArray:
        """Requests in each phase whose step completes at the end of each state; (S, U)."""
        if self.system.plain:
            return self.finished
        completes = self.finished[:, self.system.phase_model] > 0.0
        return np.where(completes, self.enumeration.running, 0.0)

    @cached_property
    def mean_holding_ms(self) -> float:
        """Mean time between completion events, sum_s pi(s) tau(s)."""
        return float(self.pi @ self.holding_ms)

    @cached_property
    def throughput_tok_s(self) -> float:
        """Committed output tokens per second."""
        return self._per_s(self.system.tokens_per_step)

    @cached_property
    def replies_per_s(self) -> float | None:
        """Replies completed per second; None if no phase opens a new one."""
        restart = self.system.restart
        if restart is None:
            return None
        return self._per_s(self.system.transition_probability[:, restart])

    def _per_s(self, per_step: FloatArray) -> float:
        """Rate of what a step of a request in each phase yields on average; (U,)."""
        reward = self.finished_by_phase @ per_step
        return float(self.pi @ reward / self.mean_holding_ms * 1000.0)


def solve_chain(
    system: RoutedSystem,
    B: Sequence[int],
    *,
    solver: Solver = "auto",
    limits: Limits = Limits(),
    splits: Splits | None = None,
) -> Chain:
    """Build and solve the chain of a system under one threshold vector.

    Parameters
    ----------
    system
        Any system; models that routing never reaches are left out.
    B
        One threshold for each model of ``system``.
    solver
        See `stationary`.
    limits
        Largest chain to enumerate.
    splits
        `split_table` of the restricted system, to share it between chains.

    Raises
    ------
    InfeasibleError
        If sum(B_i - 1) >= N, so that B can deadlock.
    UsageError, LimitError, NotConvergedError
        For malformed thresholds, a chain that is too large, a solver that failed.
    """
    thresholds = system.check_thresholds(B)
    require_live(thresholds, system.N)
    thresholds = tuple(thresholds[i] for i in system.reached)
    system = system.restricted()
    e = enumerate_states(system, thresholds, splits or split_table(system), limits)
    classes = recurrent_classes(e.transition)
    weights = absorption_probabilities(e.transition, classes)
    pi = np.zeros(len(e.holding_units))
    solutions = []
    for states, weight in zip(classes, weights, strict=True):
        whole = len(states) == len(pi)
        solution = stationary(e.transition if whole else _inside(e.transition, states), solver)
        solutions.append(solution)
        share = weight if len(classes) == 1 else weight / (solution.pi @ e.holding_units[states])
        pi[states] = share * solution.pi
    largest = max(solutions, key=lambda solution: len(solution.pi))
    return Chain(
        system=system,
        B=thresholds,
        enumeration=e,
        pi=pi / pi.sum(),
        method=largest.method,
        residual=max(solution.residual for solution in solutions),
        recurrent_classes=len(classes),
    )


def _inside(T: csr_array, states: NDArray[np.int32]) -> csr_array:
    return T[states][:, states]
