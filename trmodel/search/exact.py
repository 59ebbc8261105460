"""The exact search: a chain for every live vector, and what that will cost.

The cost of a row is estimated from the chain of eager launching, which is the largest or nearly:
its transitions grow about as a power of n, taken from its enumeration at a few small n. A chain of
t transitions costs t (1 + t / 300,000): larger ones also mix more slowly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from math import comb

from trmodel.errors import LimitError
from trmodel.markov import Limits, Solver, solve_chain
from trmodel.markov.enumeration import enumerate_states, unordered
from trmodel.markov.transitions import Splits, split_table
from trmodel.search.choose import Candidate
from trmodel.system import RoutedSystem

TABLE_COST = 1.6e10
"""The most that the exact search of a whole table may cost to be the automatic choice: some
minutes on two cores. Two models up to N = 32 stay below it."""
ROW_COST = 3e7
"""The same of one row in a table that is too large for that: a second or two."""
_LARGE_ENOUGH = 100_000
_SLOWER = 300_000.0
_PROBES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_PROBE_LIMITS = Limits(states=500_000, transitions=2_000_000)

Solved = tuple[Candidate, int]
"""A candidate and the number of its chain's recurrent classes."""


def solve(
    system: RoutedSystem,
    B: tuple[int, ...],
    splits: Splits | None,
    solver: Solver,
    limits: Limits,
) -> Solved | LimitError:
    """Solve one chain; a limit is returned, so that chains before it still count."""
    try:
        chain = solve_chain(system, B, solver=solver, limits=limits, splits=splits)
    except LimitError as error:
        return error
    candidate = Candidate(
        B, chain.throughput_tok_s, chain.states, "exact", chain.method, chain.residual
    )
    return candidate, chain.recurrent_classes


def count_vectors(system: RoutedSystem, n: int, fixed: Mapping[int, int]) -> int:
    """How many live vectors there are at n, with the fixed thresholds lowered if need be."""
    free = len([i for i in system.reached if i not in fixed])
    spent = sum(b - 1 for b in fixed.values())
    return comb(max(n - 1 - spent, 0) + free, free)


def row_costs(
    system: RoutedSystem, concurrencies: Iterable[int], fixed: Mapping[int, int]
) -> dict[int, float]:
    """Estimate the cost of the exact search of each row, as defined above.

    Infinite where the chain does not hold the system, or a state has no room in its encoding.
    """
    transitions = _growth(system)
    costs = {}
    for n in concurrencies:
        if unordered(system.with_N(n)):
            costs[n] = math.inf
            continue
        size = transitions(n)
        costs[n] = count_vectors(system, n, fixed) * size * (1.0 + size / _SLOWER)
    return costs


def _growth(system: RoutedSystem) -> Callable[[int], float]:
    """Transitions of the eager chain as a function of n."""
    known = {1: 2.0}
    for n in _PROBES:
        if n > system.N or unordered(system.with_N(n)):
            break
        small = system.with_N(n).restricted()
        try:
            found = enumerate_states(small, (1,) * small.M, split_table(small), _PROBE_LIMITS)
        except LimitError:
            return lambda n: known.get(n, math.inf)
        known[n] = float(found.transition.nnz)
        if known[n] > _LARGE_ENOUGH:
            break

    def transitions(n: int) -> float:
        # The two probes around n, or the last two.
        above = min((m for m in known if m >= n), default=max(known))
        below = max((m for m in known if m < above), default=above)
        if above == below:
            return known[above]
        power = math.log(known[above] / known[below]) / math.log(above / below)
        return known[above] * float((n / above) ** power)

    return transitions
