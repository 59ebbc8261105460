"""Stationary solvers against peers on one chain: `python benchmarks/solvers.py [N] [p]`.

Peers are scipy's sparse LU in its default ordering, with the last balance equation replaced by the
normalisation, and damped power iteration. Figures are the best of three runs, and ratios to `auto`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.sparse import csc_array, csr_array, eye_array, vstack
from scipy.sparse.linalg import splu

from trmodel.arrays import FloatArray
from trmodel.markov import solve_chain
from trmodel.markov.stationary import stationary
from trmodel.profile import build_system, load_profile

TOLERANCE = 1e-11


def textbook_lu(T: csr_array) -> FloatArray:
    """Sparse LU with the last equation replaced by sum pi = 1."""
    states = T.shape[0]
    A = (eye_array(states) - T.T).tocsr()[:-1]
    A = csc_array(vstack([A, csr_array(np.ones((1, states)))]))
    right = np.zeros(states)
    right[-1] = 1.0
    return np.asarray(splu(A).solve(right))


def damped_power(T: csr_array) -> FloatArray:
    """Power iteration on (T + I) / 2, which removes periods."""
    transposed = T.T.tocsr()
    pi = np.full(T.shape[0], 1.0 / T.shape[0])
    for _ in range(100_000):
        moved = transposed @ pi
        if np.abs(moved - pi).sum() < TOLERANCE:
            break
        pi = (moved + pi) / 2
    return pi / pi.sum()


def best_of_three(solve: Callable[[], object]) -> float:
    """Return the least wall time in seconds."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        solve()
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    """Print time, ratio and residual of every solver."""
    N = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    p = float(sys.argv[2]) if len(sys.argv) > 2 else 0.35
    chain = solve_chain(build_system(load_profile("a100-paper"), N, p=p), (1, 1))
    T = chain.transition
    print(f"a100-paper, N = {N}, p = {p:g}, B = 1,1: {chain.states:,} states")
    own = {name: partial(stationary, T, name) for name in ("auto", "arnoldi", "direct")}
    peers = {"textbook LU": partial(textbook_lu, T), "damped power": partial(damped_power, T)}
    reference = None
    for name, solve in (own | peers).items():
        seconds = best_of_three(solve)
        reference = reference or seconds
        result = solve()
        pi = getattr(result, "pi", result)
        residual = np.abs(T.T @ pi - pi).sum()
        print(f"{name:13} {seconds:8.4f} s  {seconds / reference:8.1f} x  residual {residual:.1e}")


if __name__ == "__main__":
    main()
