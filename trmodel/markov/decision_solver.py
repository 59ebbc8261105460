"""The best stationary rule of an average-reward semi-Markov decision process, with a certificate.

With holding times tau(a), rewards R(a) and outcomes P(. | a) of the actions a of every state s, let
for any function h of the states

    rate(s) = max_{a of s} ( R(a) + sum_s' P(s' | a) h(s') - h(s) ) / tau(a).

Then no rule at all earns more per unit of time than U = max_s rate(s), and the rule that takes a
maximising action everywhere earns at least L = min_s rate(s) (sum the inequality along a path; h
cancels but for its ends). So *any* h certifies a bracket [L, U], however it was found, and whether
the chain of the rule is periodic, decomposable or neither. (Odoni's bounds, Operations Research 17,
1969, after Schweitzer's data transformation of the semi-Markov process.)

h is found by *policy iteration* (Howard): the gain g and relative values h of a rule solve

    h(s) + g tau(s) = R(s) + sum_s' P(s' | s) h(s'),

and every state then takes the action with the largest right side less g tau. The equations are
solved by GMRES, preconditioned by a Gauss-Seidel sweep against the breadth-first order, in which
values flow back from the outcomes; some twenty sweeps suffice. They determine h if the rule has
one recurrent class. Where an improved rule has several, the one that earns most is kept, and the
states that do not lead to it take the shortest way there, which loses nothing in the long run
(Haviv and Puterman, Journal of Applied Probability 28, 1991).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order
from scipy.sparse.linalg import LinearOperator, gmres

from trmodel.arrays import FloatArray, IndexArray, IntArray
from trmodel.compiled import compiled
from trmodel.errors import NotConvergedError
from trmodel.markov.decisions import Decisions
from trmodel.markov.structure import recurrent_classes

TOLERANCE = 1e-8
"""Largest relative width of the bracket that is accepted."""
MAX_ITERATIONS = 30
RESIDUAL = 1e-12
"""Relative residual at which GMRES stops; it need not be reached, as the bracket decides."""
RESTART = 30
"""Vectors that GMRES keeps, each as long as there are states."""
MAX_RESTARTS = 20


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best rule found and what is proved of it.

    Attributes
    ----------
    action
        (S,): the action that each state takes, an index into those of `Decisions`.
    lower, upper
        Reward per unit of time: the rule earns at least the one, no rule more than the other.
    iterations
        Rules evaluated.
    """

    action: IntArray
    lower: float
    upper: float
    iterations: int


def solve_decisions(
    decisions: Decisions, action: IntArray, tolerance: float = TOLERANCE
) -> Optimum:
    """Find the best rule of decisions every state of which can lead to some common state.

    Parameters
    ----------
    decisions
        States, actions and outcomes.
    action
        (S,): the rule to begin with.
    tolerance
        Largest relative width of the bracket.

    Raises
    ------
    NotConvergedError
        If the bracket remains wider than the tolerance.
    """
    d = decisions
    upper = width = np.inf
    for iteration in range(1, MAX_ITERATIONS + 1):
        action = _with_one_class(d, action)
        g, h = _evaluate(d.outcome[action], d.tokens[action], d.tau[action])
        advantage = d.tokens + d.outcome @ h - h[d.state_of]
        rate = advantage / d.tau
        lower, upper = float(rate[action].min()), min(upper, float(rate.max()))
        width = (upper - lower) / abs(upper)
        if abs(width) <= tolerance:  # rounding can put the one end past the other
            return Optimum(action, lower, upper, iteration)
        advantage -= g * d.tau
        best = _largest(d.first_action, advantage)
        # (NaN, where an evaluation failed, is no gain.)
        gained = advantage[best] > 0.1 * tolerance * abs(g) * d.tau[best]
        if not gained.any():
            break
        action = np.where(gained, best, action)
    raise NotConvergedError(
        f"the best launch rule: after {iteration} iterations its throughput is known to "
        f"{width:.1e} only, {tolerance:.1e} is needed; extreme routing does this"
    )


@compiled
def _largest(first: IntArray, value: FloatArray) -> IntArray:
    """Index of the first largest value of each segment first[s]..first[s + 1] - 1."""
    best = first[:-1].copy()
    for s in range(len(best)):
        for a in range(first[s], first[s + 1]):
            if value[a] > value[best[s]]:
                best[s] = a
    return best


def _with_one_class(d: Decisions, action: IntArray) -> IntArray:
    """Change a rule so that every state leads to the recurrent class that earns most."""
    T = d.outcome[action]
    classes = recurrent_classes(T)
    if len(classes) == 1:
        return action
    gains = [_evaluate(T[c][:, c], d.tokens[action[c]], d.tau[action[c]])[0] for c in classes]
    goal = int(classes[int(np.argmax(gains))][0])
    leads = np.zeros(d.states, dtype=bool)
    leads[breadth_first_order(csr_array(T.T), goal, return_predecessors=False)] = True
    action = action.copy()
    while not leads.all():
        onward = np.flatnonzero((d.outcome @ leads > 0.0) & ~leads[d.state_of])
        if len(onward) == 0:
            raise NotConvergedError("the best launch rule: it depends on where the system starts")
        action[d.state_of[onward]] = onward
        leads[d.state_of[onward]] = True
    return action


def _evaluate(T: csr_array, reward: FloatArray, tau: FloatArray) -> tuple[float, FloatArray]:
    """Gain and relative values of a rule with one recurrent class, as far as GMRES finds them.

    Values are fixed only up to a constant; with h(0) = g there are as many equations as unknowns.
    """
    n = len(tau)

    def left(h: FloatArray) -> FloatArray:
        return np.asarray(h - T @ h + h[0] * tau)

    def swept(residual: FloatArray) -> FloatArray:
        return _backward_sweep(T.indptr, T.indices, T.data, residual)

    h, _ = gmres(
        LinearOperator((n, n), matvec=left, dtype=np.float64),
        reward,
        M=LinearOperator((n, n), matvec=swept, dtype=np.float64),
        rtol=RESIDUAL,
        restart=RESTART,
        maxiter=MAX_RESTARTS,
    )
    return float(h[0]), h


@compiled
def _backward_sweep(
    indptr: IndexArray, indices: IndexArray, data: FloatArray, residual: FloatArray
) -> FloatArray:
    """Solve (I - T) h = residual, leaving out the outcomes that come earlier in the order."""
    h = np.zeros(len(residual))
    for s in range(len(h) - 1, -1, -1):
        value, leaving = residual[s], 0.0
        for e in range(indptr[s], indptr[s + 1]):
            if indices[e] > s:
                value += data[e] * h[indices[e]]
            if indices[e] != s:
                leaving += data[e]
        # A state that only leads to itself leaves the sweep as it entered.
        h[s] = value / leaving if leaving > 0.0 else residual[s]
    return h
