"""Size, time and memory of large exact chains: `python benchmarks/exact_at_size.py`.

Three models of 6, 12 and 27.9 ms whose next model is drawn afresh with weights 0.5, 0.3 and 0.2,
launched eagerly, which gives the most states. Each chain is solved in a process of its own, so that
its peak memory is its own. Other cases: `python benchmarks/exact_at_size.py N GRID_MS`.
"""

from __future__ import annotations

import resource
import sys
import time
from subprocess import run

from trmodel.markov import Limits, solve_chain
from trmodel.system import RoutedSystem

CASES = [(8, 0.1), (16, 1.0)]
LIMITS = Limits(states=50_000_000, transitions=500_000_000)


def measure(N: int, grid_ms: float) -> None:
    """Solve one chain and print a line."""
    system = RoutedSystem(
        ["small", "medium", "large"],
        [6.0, 12.0, 27.9],
        [[0.5, 0.3, 0.2]] * 3,
        [[1.0] * 3] * 3,
        N,
        grid_ms=grid_ms,
    )
    solve_chain(system.with_N(1), (1, 1, 1))  # compiles
    started = time.perf_counter()
    chain = solve_chain(system, (1, 1, 1), limits=LIMITS)
    seconds = time.perf_counter() - started
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2  # kilobytes on Linux
    print(
        f"{N:3d} {grid_ms:8g} {chain.states:11,} {chain.transition.nnz:13,} {seconds:8.1f} "
        f"{peak_gb:8.2f} {chain.method:>13} {chain.residual:9.0e} {chain.throughput_tok_s:9.2f}"
    )


def main() -> None:
    """Print a line for every case, or for the one asked for."""
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]), float(sys.argv[2]))
        return
    print(
        "  N  grid ms      states   transitions  seconds  peak GB        solver  residual     tok/s"
    )
    for N, grid_ms in CASES:
        run([sys.executable, __file__, str(N), str(grid_ms)], check=True)


if __name__ == "__main__":
    main()
