"""Explore every threshold vector of small systems: which can deadlock, and which never do.

Run as ``python tests/markov/liveness_survey.py`` it prints the table of docs/liveness.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from trmodel.launch import is_live
from trmodel.markov.enumeration import Limits, enumerate_states
from trmodel.markov.transitions import split_table
from trmodel.system import RoutedSystem

MAX_N, MAX_M = 6, 3
DISTINCT, EQUAL = (2, 3, 5), (1, 1, 1)
"""Step latencies in grid units; equal ones keep the models in step, so that fewer states occur."""
SPARSE = 3


@dataclass
class Tally:
    """Threshold vectors with 1 <= B_i <= N that meet the condition, and those outside it."""

    live: int = 0
    live_but_deadlocks: int = 0
    outside: int = 0
    outside_yet_never_deadlocks: int = 0


def routings(M: int) -> dict[str, np.ndarray]:
    """Transition matrices of M models by name; each reaches every model from the first."""
    back = np.zeros((M, M))
    back[:, 0] = 1.0
    back[0] = 1.0 / M
    found = {"any to any": np.full((M, M), 1.0 / M)}
    if M == 1:
        return found
    found["first decides, others return (r2r)"] = back
    found["deterministic cycle"] = np.roll(np.eye(M), 1, axis=1)
    rng = np.random.default_rng(M)
    while len(found) < 3 + SPARSE:
        support = rng.random((M, M)) < 0.5
        support[~support.any(axis=1), 0] = True
        P = support / support.sum(axis=1, keepdims=True)
        if len(survey_system(P, 1).reached) == M:
            found[f"random sparse: {shown_support(support)}"] = P
    return found


def shown_support(support: np.ndarray) -> str:
    """Write where each model can route to: ``0→01 1→0``."""
    rows = ("".join(str(j) for j in np.flatnonzero(row)) for row in support)
    return " ".join(f"{i}→{row}" for i, row in enumerate(rows))


def survey_system(
    P: np.ndarray,
    N: int,
    max_batch: int | None = None,
    latency: tuple[int, ...] = DISTINCT,
) -> RoutedSystem:
    M = len(P)
    names = [f"m{i}" for i in range(M)]
    return RoutedSystem(names, latency[:M], P, np.ones((M, M)), N, max_batch=max_batch, grid_ms=1.0)


def explored(system: RoutedSystem) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Yield every threshold vector with 1 <= B_i <= N and whether it reaches a deadlock."""
    splits = split_table(system)
    for B in product(range(1, system.N + 1), repeat=system.M):
        holding = enumerate_states(system, B, splits, Limits()).holding_units
        yield B, bool((holding == 0).any())


def survey(P: np.ndarray, *, bounded: bool, latency: tuple[int, ...] = DISTINCT) -> Tally:
    """Count over N = 1..6, with every largest batch below N (``bounded``) or none."""
    tally = Tally()
    for N in range(1, MAX_N + 1):
        for max_batch in range(1, N) if bounded else [N]:
            for B, deadlocks in explored(survey_system(P, N, max_batch, latency)):
                if is_live(B, N):
                    tally.live += 1
                    tally.live_but_deadlocks += deadlocks
                else:
                    tally.outside += 1
                    tally.outside_yet_never_deadlocks += not deadlocks
    return tally


def table() -> list[str]:
    """Lines of the Markdown table: how many vectors outside the condition never deadlock."""
    lines = [
        "| M | routing | outside | never deadlock | outside, batch < N | never deadlock |",
        "|---|---|---|---|---|---|",
    ]
    for M in range(2, MAX_M + 1):
        for name, P in routings(M).items():
            cells = [str(M), name]
            for bounded in (False, True):
                tally = survey(P, bounded=bounded)
                count = tally.outside_yet_never_deadlocks
                cells += [str(tally.outside), f"{count} ({count / tally.outside:.0%})"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
