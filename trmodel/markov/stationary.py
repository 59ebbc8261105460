"""Stationary distributions of finite Markov chains, by three methods that check each other.

For an irreducible transition matrix T the *stationary distribution* is the one row vector with
pi T = pi, pi >= 0 and sum pi = 1, whether the chain is periodic or not.

- ``gauss-seidel``: sweeps pi_j <- sum_{i != j} pi_i T_ij / sum_{i != j} T_ji over the states in
  breadth-first order. In that order every state but the first has a predecessor before it, so the
  path from the first state to any v, closed by an edge back to the first, is a cycle with exactly
  one backward edge. Hence the iteration matrix is aperiodic and the sweeps converge even on a
  periodic chain, where power iteration does not. Most chains need about twenty sweeps.
- ``arnoldi``: where those sweeps converge slowly (the chain mixes slowly, or is periodic but for
  rare transitions), the same sweep serves as the linear map whose eigenvector at eigenvalue 1 the
  implicitly restarted Arnoldi method (ARPACK) finds, again in some twenty sweeps.
- ``direct``: sparse LU of (I - T)^T with pi pinned to 1 at the first state.
- ``gth``: Grassmann, Taksar and Heyman's elimination (Operations Research 33, 1985), which has no
  subtractions and so loses no digits on nearly decomposable chains; dense.

Every result is certified twice. Its *residual* ||pi T - pi||_1 must meet a tolerance; but where the
chain is nearly decomposable or nearly periodic, vectors far from pi have tiny residuals too. So
the methods other than ``gth`` solve from two different starts (or pinned states), and the two
distributions must agree. What fails either test raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.sparse import csc_array, csr_array, diags_array
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs, splu

from trmodel.arrays import FloatArray, IndexArray
from trmodel.compiled import compiled
from trmodel.errors import LimitError, NotConvergedError, UsageError

Balance = tuple[IndexArray, IndexArray, FloatArray, FloatArray]
Method = Literal["gauss-seidel", "arnoldi", "direct", "gth"]
Solver = Literal["auto", "gauss-seidel", "arnoldi", "direct", "gth"]

RESIDUAL_TOLERANCE = 1e-11
AGREEMENT_TOLERANCE = 1e-10
"""Largest ||pi - pi'||_1 of two solutions from different starts."""
MAX_SWEEPS = 20_000
AUTO_SWEEPS = 100
"""Sweeps after which ``auto`` goes on by Arnoldi."""
KRYLOV_VECTORS = 20
GTH_FIRST_STATES = 48
"""``auto`` takes elimination at once up to this size,"""
GTH_MAX_STATES = 6_000
"""and up to this size where nothing else is accurate: more would take gigabytes."""


@dataclass(frozen=True, eq=False)
class Stationary:
    """A stationary distribution and how it was obtained.

    Attributes
    ----------
    pi
        (S,): probabilities, non-negative, summing to one.
    method
        The solver that gave it.
    residual
        ||pi T - pi||_1.
    """

    pi: FloatArray
    method: Method
    residual: float


def stationary(
    T: csr_array, solver: Solver = "auto", tolerance: float = RESIDUAL_TOLERANCE
) -> Stationary:
    """Solve for the stationary distribution of an irreducible chain.

    Parameters
    ----------
    T
        (S, S) irreducible transition matrix. For ``gauss-seidel`` its states are in breadth-first
        order from the first.
    solver
        ``auto`` takes ``gth`` for small chains and ``gauss-seidel`` for the rest; where that is
        slow or not accurate, ``arnoldi``, and then ``gth`` or, for large chains, ``direct``. The
        result names the method that gave it.
    tolerance
        Largest residual accepted.

    Raises
    ------
    NotConvergedError
        If the residual exceeds the tolerance, two starts lead to different distributions, or a
        probability is negative or not a number.
    LimitError
        If ``gth`` is asked for a chain too large for dense elimination.
    UsageError
        If the solver is unknown.
    """
    if solver not in get_args(Solver):
        raise UsageError(f"solver: {solver} is not one of {', '.join(get_args(Solver))}")
    states = T.shape[0]
    if solver == "gth" and states > GTH_MAX_STATES:
        raise LimitError(
            f"solver: gth is dense and limited to {GTH_MAX_STATES:,} states, this chain has "
            f"{states:,}; use another solver"
        )
    failure = ""
    for method in _methods(solver, states):
        try:
            solutions = _solutions(T, method, AUTO_SWEEPS if solver == "auto" else MAX_SWEEPS)
            return Stationary(solutions[0], method, _certified(T, solutions, tolerance))
        except NotConvergedError as error:
            failure = f"{method}: {error}"
    raise NotConvergedError(f"no stationary distribution of {states:,} states; {failure}")


def _methods(solver: Solver, states: int) -> list[Method]:
    if solver != "auto":
        return [solver]
    if states <= GTH_FIRST_STATES:
        return ["gth"]
    return ["gauss-seidel", "arnoldi", "gth" if states <= GTH_MAX_STATES else "direct"]


def _solutions(T: csr_array, method: Method, sweeps: int) -> list[FloatArray]:
    """Solve by one method, from two starts unless it needs none; each solution sums to one."""
    states = T.shape[0]
    if states == 1:
        return [np.ones(1)]
    if method == "gth":
        return [_normalised(_gth(T.toarray()))]
    balance = _balance(T.indptr, T.indices, T.data)
    if method == "direct":
        first = _normalised(_direct(balance, 0))
        return [first, _normalised(_direct(balance, int(first[1:].argmax()) + 1))]
    # Even over all states, and mostly on those near the start of the chain.
    starts = [_normalised(np.ones(states)), _normalised(1.0 / np.arange(1, states + 1))]
    if method == "arnoldi":
        return [_normalised(_arnoldi(balance, start)) for start in starts]
    for pi in starts:
        if not _gauss_seidel(*balance, pi, RESIDUAL_TOLERANCE / 2, sweeps):
            raise NotConvergedError(f"not converged after {sweeps:,} sweeps")
    return starts


def _certified(T: csr_array, solutions: list[FloatArray], tolerance: float) -> float:
    """Return the larger residual of the solutions if they meet all conditions."""
    residual = max(float(np.abs(T.T @ pi - pi).sum()) for pi in solutions)
    least = min(float(pi.min()) for pi in solutions)
    apart = float(np.abs(solutions[0] - solutions[-1]).sum())
    if not (residual <= tolerance and least >= 0.0):
        raise NotConvergedError(
            f"residual {residual:.1e}, least probability {least:.1e}; tolerance {tolerance:.1e}"
        )
    if not apart <= AGREEMENT_TOLERANCE:
        raise NotConvergedError(
            f"two starts lead to distributions {apart:.1e} apart, although the residual is "
            f"{residual:.1e}: the chain is nearly decomposable or nearly periodic"
        )
    return residual


def _normalised(pi: FloatArray) -> FloatArray:
    return np.asarray(pi / pi.sum())


def _direct(balance: Balance, pinned: int) -> FloatArray:
    """Solve the balance equations by sparse LU, with pi = 1 at one state."""
    indptr, indices, data, outflow = balance
    states = len(outflow)
    inflow = csr_array((data, indices, indptr), shape=(states, states))
    A = csc_array(diags_array(outflow) - inflow)
    others = np.flatnonzero(np.arange(states) != pinned)
    try:
        # Minimum degree on A^T + A fills far less here than the default column ordering.
        lu = splu(A[others][:, others], permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    except RuntimeError as error:
        raise NotConvergedError(
            f"the balance equations are numerically singular ({error})"
        ) from None
    pi = np.ones(states)
    pi[others] = lu.solve(-A[others][:, [pinned]].toarray().ravel())
    # Rounding can leave a vanishing probability a hair below zero.
    pi[(pi < 0.0) & (pi > -1e-10 * np.abs(pi).max())] = 0.0
    return pi


def _arnoldi(balance: Balance, start: FloatArray) -> FloatArray:
    """Fixed point of a Gauss-Seidel sweep, by Arnoldi from a positive start."""
    states = len(start)
    if states < 4:  # ARPACK needs more; so small a chain is solved by sweeps
        if not _gauss_seidel(*balance, start, RESIDUAL_TOLERANCE / 2, MAX_SWEEPS):
            raise NotConvergedError(f"not converged after {MAX_SWEEPS:,} sweeps")
        return start

    def swept(vector: FloatArray) -> FloatArray:
        result = np.array(vector, dtype=np.float64).ravel()
        _sweep(*balance, result)
        return result

    operator = LinearOperator((states, states), matvec=swept, dtype=np.float64)
    try:
        _, vectors = eigs(
            operator, k=1, which="LR", v0=start, tol=1e-13, ncv=min(states, KRYLOV_VECTORS)
        )
    except ArpackNoConvergence as error:
        raise NotConvergedError(str(error)) from None
    vector = np.real(vectors[:, 0])
    pi: FloatArray = np.maximum(vector / vector.sum(), 0.0)
    # Sweeps keep pi positive and smooth out what was cut off below zero.
    for _ in range(2):
        _sweep(*balance, pi)
    return pi


@compiled
def _balance(indptr: IndexArray, indices: IndexArray, data: FloatArray) -> Balance:
    """Inflow and outflow of every state, self-loops left out.

    The balance equation of state j is sum_{i != j} pi_i T_ij = pi_j sum_{i != j} T_ji. Taking the
    outflow as a sum, not as 1 - T_jj, keeps its digits when T_jj is close to one.

    Returns the transposed matrix without its diagonal (CSR) and the outflow of each state.
    """
    states = len(indptr) - 1
    start = np.zeros(states + 1, indptr.dtype)
    outflow = np.zeros(states)
    for i in range(states):
        for e in range(indptr[i], indptr[i + 1]):
            if indices[e] != i:
                start[indices[e] + 1] += 1
                outflow[i] += data[e]
    for j in range(states):
        start[j + 1] += start[j]
    source = np.empty(start[states], indices.dtype)
    inflow = np.empty(start[states], data.dtype)
    fill = start.copy()
    for i in range(states):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if j != i:
                source[fill[j]] = i
                inflow[fill[j]] = data[e]
                fill[j] += 1
    return start, source, inflow, outflow


@compiled
def _sweep(
    start: IndexArray,
    source: IndexArray,
    inflow: FloatArray,
    outflow: FloatArray,
    pi: FloatArray,
) -> float:
    """Satisfy the balance equations one by one, in place; return the imbalance met on the way."""
    imbalance = 0.0
    for j in range(len(pi)):
        flow = 0.0
        for e in range(start[j], start[j + 1]):
            flow += pi[source[e]] * inflow[e]
        imbalance += abs(flow - pi[j] * outflow[j])
        pi[j] = flow / outflow[j]
    return imbalance


@compiled
def _gauss_seidel(
    start: IndexArray,
    source: IndexArray,
    inflow: FloatArray,
    outflow: FloatArray,
    pi: FloatArray,
    tolerance: float,
    max_sweeps: int,
) -> bool:
    """Sweep in place until the residual is below the tolerance; say whether it came to be."""
    for _ in range(max_sweeps):
        imbalance = _sweep(start, source, inflow, outflow, pi)
        pi /= pi.sum()
        # What a sweep meets mixes old and new values; the residual itself decides.
        if imbalance < tolerance:
            residual = 0.0
            for j in range(len(pi)):
                flow = 0.0
                for e in range(start[j], start[j + 1]):
                    flow += pi[source[e]] * inflow[e]
                residual += abs(flow - pi[j] * outflow[j])
            if residual < tolerance:
                return True
    return False


@compiled
def _gth(A: FloatArray) -> FloatArray:
    """Eliminate states from the last to the second, in place, then substitute back."""
    n = len(A)
    pi = np.empty(n)
    for s in range(n - 1, 0, -1):
        out = A[s, :s].sum()
        for i in range(s):
            A[i, s] /= out
        for i in range(s):
            factor = A[i, s]
            if factor > 0.0:
                for j in range(s):
                    A[i, j] += factor * A[s, j]
    pi[0] = 1.0
    for s in range(1, n):
        pi[s] = 0.0
        for i in range(s):
            pi[s] += pi[i] * A[i, s]
    return pi
