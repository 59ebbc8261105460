"""Which threshold vectors are worth simulating where there are too many to simulate all.

Up to `ALL` live vectors all are proposed. Of more, a grid over the simplex of live vectors is
evaluated in the fluid limit (`trmodel.simulate.fluid`), then the neighbourhoods of its best points
at ever smaller steps. Proposed are the best of all these and, because the fluid limit can be wrong
by some percent where a model is about to change its rhythm, a coarse grid regardless of it. What
lies between is found by the refinement around the winner of the race.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from trmodel.launch import is_live
from trmodel.search.feasible import feasible_thresholds
from trmodel.search.spread import in_order
from trmodel.simulate.fluid import fluid
from trmodel.system import RoutedSystem

ALL = 1000
_GRID, _COARSE = 500, 40
"""The most points of the grids."""
_BEST, _REFINED = 24, 6
Vector = tuple[int, ...]


@dataclass(frozen=True)
class Proposals:
    """Candidates for a race.

    Attributes
    ----------
    step
        Distance of the points of the finest grid; 1 where all live vectors are proposed.
    """

    vectors: list[Vector]
    step: int
    fluid_evaluations: int = 0


def proposals(system: RoutedSystem, fixed: Mapping[int, int]) -> Proposals:
    """Propose live threshold vectors of a system, eager launching first where it may be chosen.

    Raises
    ------
    InfeasibleError
        If the fixed thresholds leave no live vector.
    """
    free = free_models(system, fixed)
    slack = system.N - 1 - sum(b - 1 for b in fixed.values())
    if slack < 0 or comb(slack + len(free), len(free)) <= ALL:
        return Proposals(feasible_thresholds(system, fixed), 1)
    cells = _cells(len(free), _GRID)
    values: dict[Vector, float] = {}
    start = [fixed.get(i, 1) for i in range(system.M)]

    def evaluate(vectors: Sequence[Vector]) -> None:
        new = [B for B in dict.fromkeys(vectors) if B not in values]
        found = in_order(_fluid_tok_s, ((system, B) for B in new))
        values.update(zip(new, found, strict=True))

    def best(count: int) -> list[Vector]:
        return sorted(values, key=lambda B: (-values[B], sum(B), B))[:count]

    evaluate(_grid(start, free, slack, cells))
    step = max(slack // cells, 1)
    finest = step
    while finest > 1:
        finest //= 2
        evaluate([n for B in best(_REFINED) for n in neighbours(B, finest, free, system.N)])
    coarse = _grid(start, free, slack, _cells(len(free), _COARSE))
    return Proposals(list(dict.fromkeys([*coarse, *best(_BEST)])), step, len(values))


def free_models(system: RoutedSystem, fixed: Mapping[int, int]) -> list[int]:
    """The models whose thresholds are to be chosen."""
    return [i for i in system.reached if i not in fixed]


def neighbours(B: Vector, step: int, free: Sequence[int], N: int) -> list[Vector]:
    """Live vectors one step away: one threshold changed, or one raised and another lowered."""
    moves = [{i: sign * step} for i in free for sign in (-1, 1)]
    moves += [{i: step, j: -step} for i in free for j in free if i != j]
    found = []
    for move in moves:
        moved = tuple(max(b + move.get(i, 0), 1) for i, b in enumerate(B))
        if moved != B and is_live(moved, N):
            found.append(moved)
    return list(dict.fromkeys(found))


def _cells(dimensions: int, points: int) -> int:
    """The finest division of a simplex that has at most so many grid points, at least 1."""
    cells = 1
    while comb(cells + 1 + dimensions, dimensions) <= points:
        cells += 1
    return cells


def _grid(start: Sequence[int], free: Sequence[int], slack: int, cells: int) -> list[Vector]:
    """Vectors whose free thresholds share 0/cells, 1/cells, ... of the slack."""
    rows = np.indices((cells + 1,) * len(free)).reshape(len(free), -1).T
    rows = rows[rows.sum(axis=1) <= cells]
    vectors = []
    for row in sorted(rows.tolist(), key=sum):
        B = list(start)
        for i, part in zip(free, row, strict=True):
            B[i] = 1 + part * slack // cells
        vectors.append(tuple(B))
    return vectors


def _fluid_tok_s(system: RoutedSystem, B: Vector) -> float:
    return fluid(system, B).throughput_tok_s
