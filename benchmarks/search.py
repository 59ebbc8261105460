"""The search by racing against the exact one, and its time at scale: `python benchmarks/search.py`.

Prints how far the thresholds found by racing are from the exhaustive exact optimum on random
systems of two models (with exact confirmation of the finalists, and by simulation alone), then wall
and CPU seconds of tables that the exact search cannot make.
"""

from __future__ import annotations

import time

import numpy as np

from trmodel.markov import Limits, solve_chain
from trmodel.search import feasible_thresholds, tune_system
from trmodel.search.simulated import RowSearch
from trmodel.system import RoutedSystem

SYSTEMS = 50
TIE_PERCENT = 0.1


def random_system(seed: int) -> RoutedSystem:
    """Two models, N = 4..12, random routing, latencies that grow with the batch, contention."""
    rng = np.random.default_rng(seed)
    N = int(rng.integers(4, 13))
    p, q = rng.uniform(0.05, 0.6), rng.uniform(0.6, 1.0)
    first, second = rng.uniform(3, 10), rng.uniform(10, 40)
    growth = rng.uniform(0, 0.05, 2)[:, None] * np.arange(N)
    slow = rng.uniform(1.0, 1.5, 2) if seed % 2 else (1.0, 1.0)
    return RoutedSystem(
        ["small", "large"],
        [first * (1 + growth[0]), second * (1 + growth[1])],
        [[1 - p, p], [q, 1 - q]],
        np.ones((2, 2)),
        N,
        slow_down={(0, 1): (float(slow[0]), float(slow[1]))},
    )


def constant(latency_ms: list[float], P: list[list[float]], N: int) -> RoutedSystem:
    """A system of constant latencies."""
    M = len(P)
    return RoutedSystem([f"model {i}" for i in range(M)], latency_ms, P, np.ones((M, M)), N)


def optimality() -> None:
    """Compare the winners' exact throughput with the best of all live vectors."""
    searches = {
        "confirmed exactly": RowSearch(),
        "simulated only": RowSearch(limits=Limits(states=1)),
    }
    losses: dict[str, list[float]] = {name: [] for name in searches}
    same = dict.fromkeys(searches, 0)
    for seed in range(SYSTEMS):
        system = random_system(seed)
        exact = {B: solve_chain(system, B).throughput_tok_s for B in feasible_thresholds(system)}
        chosen = tune_system(system, [system.N], method="exact").row(system.N).B
        for name, search in searches.items():
            B = search.row(system, {}).B
            losses[name].append(100.0 * (1.0 - exact[B] / max(exact.values())))
            same[name] += B == chosen
    for name, lost in losses.items():
        within = sum(loss <= TIE_PERCENT * 1.001 for loss in lost)
        print(
            f"{SYSTEMS} random systems, {name}: {same[name]} with the exact search's thresholds, "
            f"{within} within {TIE_PERCENT} % of the optimum, largest loss {max(lost):.3f} %"
        )


def timing() -> None:
    """Print wall and CPU seconds of large tables."""
    r2r, three = [[0.65, 0.35], [1.0, 0.0]], [[0.5, 0.3, 0.2]] * 3
    cases = [
        ("M = 3, N = 4..16", constant([6.0, 12.0, 27.9], three, 16), range(4, 17), 60),
        ("M = 2, N = 256", constant([6.0, 27.9], r2r, 256), [256], 60),
        ("M = 2, N = 1024", constant([6.0, 27.9], r2r, 1024), [1024], 120),
    ]
    for name, system, wanted, bar in cases:
        wall, cpu = time.perf_counter(), time.process_time()
        table = tune_system(system, wanted)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        row = table.row(max(wanted))
        best = row.choice.best
        low, high = best.throughput_low_tok_s or 0.0, best.throughput_high_tok_s or 0.0
        print(
            f"{name}: {wall:.1f} s wall (at most {bar}), {cpu:.1f} s CPU; B = {row.B}, "
            f"{best.throughput_tok_s:.1f} ± {(high - low) / 2:.1f} tok/s, "
            f"{row.gain_percent:+.2f} % over eager"
        )


if __name__ == "__main__":
    tune_system(random_system(0), [3], method="simulated")  # compiles or loads the kernels
    optimality()
    timing()
