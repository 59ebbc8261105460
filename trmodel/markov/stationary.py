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

Every result is certified by its *residual* ||pi T - pi||_1; one above the tolerance raises.
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
MAX_SWEEPS = 20_000
AUTO_SWEEPS = 100
"""Sweeps after which ``auto`` goes on by Arnoldi."""
KRYLOV_VECTORS = 20
GTH_AUTO_STATES = 48
GTH_MAX_STATES = 5_000
"""Dense elimination of more takes minutes and gigabytes."""


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
        ``auto`` takes ``gth`` for small chains and ``gauss-seidel`` for the rest, continued by
        ``arnoldi`` where that is slow; the result names the method that gave it.
    tolerance
        Largest residual accepted.

    Raises
    ------
    NotConvergedError
        If the residual exceeds the tolerance or a probability is negative or not a number.
    LimitError
        If ``gth`` is asked for a chain too large for dense elimination.
    UsageError
        If the solver is unknown.
    """
    if solver not in get_args(Solver):
        raise UsageError(f"solver: {solver} is not one of {', '.join(get_args(Solver))}")
    states = T.shape[0]
    method: Method = "gth" if states <= GTH_AUTO_STATES else "gauss-seidel"
    if solver != "auto":
        method = solver
    if states == 1:
        pi = np.ones(1)
    elif method == "gth":
        if states > GTH_MAX_STATES:
            raise LimitError(
                f"solver: gth is dense and limited to {GTH_MAX_STATES:,} states, this chain has "
                f"{states:,}; use another solver"
            )
        pi = _gth(T.toarray())
    elif method == "direct":
        pi = _direct(T)
    else:
        balance = _balance(T.indptr, T.indices, T.data)
        pi = np.full(states, 1.0 / states)
        if method == "gauss-seidel":
            sweeps = AUTO_SWEEPS if solver == "auto" else MAX_SWEEPS
            if not _gauss_seidel(*balance, pi, tolerance / 2, sweeps) and solver == "auto":
                method = "arnoldi"
        if method == "arnoldi":
            pi = _arnoldi(balance, pi)
    pi /= pi.sum()
    residual = float(np.abs(T.T @ pi - pi).sum())
    if not (residual <= tolerance and pi.min() >= 0.0):
        raise NotConvergedError(
            f"{method} on {states:,} states: residual {residual:.1e}, least probability "
            f"{pi.min():.1e}; tolerance {tolerance:.1e}; try another solver"
        )
    return Stationary(pi, method, residual)


def _direct(T: csr_array) -> FloatArray:
    """Solve the balance equations with pi_0 = 1 by sparse LU."""
    indptr, indices, data, outflow = _balance(T.indptr, T.indices, T.data)
    inflow = csr_array((data, indices, indptr), shape=T.shape)
    A = csc_array(diags_array(outflow) - inflow)
    # Minimum degree on A^T + A fills far less here than the default column ordering.
    lu = splu(A[1:, 1:], permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    rest = lu.solve(-A[1:, [0]].toarray().ravel())
    # Rounding can leave a vanishing probability a hair below zero.
    rest[(rest < 0.0) & (rest > -1e-15 * np.abs(rest).max())] = 0.0
    return np.asarray(np.concatenate([[1.0], rest]))


def _arnoldi(balance: Balance, start: FloatArray) -> FloatArray:
    """Fixed point of a Gauss-Seidel sweep, by Arnoldi from a positive start."""
    states = len(start)
    if states < 4:  # ARPACK needs more; so small a chain is solved by a few sweeps
        _gauss_seidel(*balance, start, RESIDUAL_TOLERANCE / 2, MAX_SWEEPS)
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
        raise NotConvergedError(
            f"arnoldi on {states:,} states: {error}; use the direct solver"
        ) from error
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
