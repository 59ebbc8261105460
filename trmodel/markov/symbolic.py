"""Exact throughput as a rational function of the routing probabilities, for small chains.

The states and transitions are those of `trmodel.markov.transitions`, with exact split
probabilities: multinomials in symbols and rationals instead of floating-point numbers. The chain
is solved by Grassmann, Taksar and Heyman's elimination over the field of rational functions and
the answer has no rounding error at all, so that it also serves as an oracle for the numeric chain.

Numbers are taken at their decimal value: a probability of 0.35 is 7/20.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import factorial, prod
from typing import Any

import numpy as np
import sympy
from scipy.sparse import coo_array

from trmodel.errors import LimitError, UsageError
from trmodel.launch import require_live, shown_vector
from trmodel.markov.structure import recurrent_classes
from trmodel.markov.transitions import complete, compositions, launch
from trmodel.system import RoutedSystem

MAX_STATES = 30
"""Beyond this, expressions are long and slow to find, and nobody reads them."""

Row = dict[int, Any]
"""Successors of a state with their probabilities, elements of the field."""


@dataclass(frozen=True)
class SymbolicThroughput:
    """Throughput in tokens per second as a rational function.

    Attributes
    ----------
    expression
        A sympy expression in ``symbols``, in lowest terms and factored.
    symbols
        Routing probabilities left open: ``p`` with two models, else ``p_ij`` of the entry model
        i. Empty if routing leaves no choice.
    states
        Number of states reachable from the start.
    """

    expression: sympy.Expr
    symbols: tuple[sympy.Symbol, ...]
    states: int

    def at(self, **values: float | Fraction) -> float:
        """Evaluate at a value for each symbol, such as ``at(p=0.35)``; tokens per second.

        Evaluation is exact and rounded once, at the end. Where a probability vanishes that does
        not vanish in the system (p = 0 or 1) this is the limit of the throughput.

        Raises
        ------
        UsageError
            If a symbol lacks a value, the values are not probabilities, or there is no limit.
        """
        names = [symbol.name for symbol in self.symbols]
        if set(values) != set(names):
            raise UsageError(
                f"values are needed for {', '.join(names) or 'no symbol'}; "
                f"got {', '.join(values) or 'none'}"
            )
        impossible = UsageError(f"{', '.join(names)}: must be probabilities, together at most 1")
        if not all(0 <= value <= 1 for value in values.values()):
            raise impossible
        exact = {symbol: _rational(values[symbol.name]) for symbol in self.symbols}
        if sum(exact.values()) > 1:
            raise impossible
        throughput = self.expression.subs(exact)
        if not throughput.is_finite:
            raise UsageError(f"{', '.join(names)}: the throughput has no limit here")
        return float(throughput)


def symbolic_throughput(
    system: RoutedSystem, B: Sequence[int], *, max_states: int = MAX_STATES
) -> SymbolicThroughput:
    """Find the throughput of a small system as a rational function of its routing.

    With two models the symbol is p = P[0][1], and P[0] = [1 - p, p]. Otherwise the row of the
    entry model i gets a symbol p_ij for every j != i, with p_ii = 1 - sum_j p_ij; if p_ii is
    zero, the last p_ij takes that part. Probabilities that are zero in the system stay zero, and
    all other rows keep their values.

    Parameters
    ----------
    system
        Any system; models that routing never reaches are left out.
    B
        One threshold for each model.
    max_states
        Largest chain to solve.

    Raises
    ------
    InfeasibleError
        If B can deadlock.
    LimitError
        If the chain has more than ``max_states`` states.
    UsageError
        If a latency or waking is not a whole number of grid units, models slow each other, models
        have several phases, or the chain has several recurrent classes, so that its long run
        depends on chance.
    """
    thresholds = system.check_thresholds(B)
    require_live(thresholds, system.N)
    if not system.plain:
        raise UsageError(
            "phases: an exact expression needs routing of one phase per model; use the numeric "
            "chain"
        )
    P, symbols = _exact_routing(system)
    keep = system.reached
    P = [[P[i][j] for j in keep] for i in keep]
    thresholds = tuple(thresholds[i] for i in keep)
    system = system.restricted()
    _require_whole_latencies(system)
    field = sympy.QQ.frac_field(*symbols) if symbols else sympy.QQ
    P = [[field.from_sympy(p) for p in row] for row in P]
    rows, holding, finished = _explore(system, thresholds, P, field, max_states)

    pi = _stationary(rows, field)
    tokens = [
        sum((p * field.from_sympy(_rational(c)) for p, c in zip(*pair, strict=True)), field.zero)
        for pair in zip(P, system.committed_tokens, strict=True)
    ]
    committed, time = field.zero, field.zero
    for s, share in pi.items():
        time += share * holding[s]
        for size, mean in zip(finished[s], tokens, strict=True):
            committed += share * mean * size
    units_per_s = field.from_sympy(1000 / _rational(system.grid_ms))
    throughput = sympy.factor(field.to_sympy(committed / time * units_per_s))
    return SymbolicThroughput(throughput, symbols, len(rows))


def _rational(value: float | Fraction) -> sympy.Rational:
    """Return a number at its decimal value: the shortest decimal that reads back as it."""
    return sympy.Rational(str(value))


def _exact_routing(
    system: RoutedSystem,
) -> tuple[list[list[sympy.Expr]], tuple[sympy.Symbol, ...]]:
    """Return P with exact entries, each row summing to exactly one, and its symbols."""
    P = []
    for row in system.transition_probability:
        exact = [_rational(p) for p in row]
        # Three times 0.333... is not one; the system allows a small deviation.
        P.append([p / sum(exact) for p in exact])
    i = 0 if system.M == 2 else system.entry
    nonzero = [j for j, p in enumerate(P[i]) if p > 0]
    rest = i if i in nonzero else nonzero[-1]
    if i not in system.reached:
        return P, ()
    free = [j for j in nonzero if j != rest]
    names = ["p"] if system.M == 2 else [f"p_{i}{j}" for j in free]
    symbols = tuple(sympy.Symbol(name) for name, _ in zip(names, free, strict=False))
    for j, symbol in zip(free, symbols, strict=True):
        P[i][j] = symbol
    P[i][rest] = sympy.Integer(1) - sum(symbols)
    return P, symbols


def _require_whole_latencies(system: RoutedSystem) -> None:
    if np.any(system.slow_down != 1.0):
        raise UsageError("slow_down: an exact throughput needs models that do not slow each other")
    grid = _rational(system.grid_ms)
    for i, size in enumerate(system.max_batch):
        for b, latency in enumerate(system.latency_ms[i, :size]):
            if not (_rational(latency) / grid).is_integer:
                raise UsageError(
                    f"latency_ms[{i}][{b}]: {latency:g} ms is not a whole number of grid units of "
                    f"{system.grid_ms:g} ms, which an exact throughput needs"
                )
    for i, wake in enumerate(system.wake_ms):
        if not (_rational(wake) / grid).is_integer:
            raise UsageError(
                f"wake_ms[{i}]: {wake:g} ms is not a whole number of grid units of "
                f"{system.grid_ms:g} ms, which an exact throughput needs"
            )


def _explore(
    system: RoutedSystem, B: tuple[int, ...], P: list[list[Any]], field: Any, max_states: int
) -> tuple[list[Row], list[int], list[list[int]]]:
    """Enumerate breadth-first; return transitions, holding times and completed batches."""
    rule = (np.array(B), np.array(system.max_batch), system.latency_units, system.wake_units)
    k, b = np.zeros((2, system.M), dtype=np.int64)
    r = system.wake_units.copy()
    k[system.entry] = system.N
    launch(k, b, r, *rule)
    number = {_key(k, b, r): 0}
    states = [(k, b, r)]
    rows: list[Row] = []
    holding: list[int] = []
    finished: list[list[int]] = []
    for k, b, r in states:
        done = np.zeros_like(b)
        b, r = b.copy(), r.copy()
        holding.append(int(complete(b, r, system.slow_down, done)))
        finished.append(done.tolist())
        row: Row = {}
        for waiting, probability in _arrivals(k, finished[-1], P, field).items():
            successor = np.array(waiting), b.copy(), r.copy()
            launch(*successor, *rule)
            target = number.setdefault(_key(*successor), len(states))
            if target == len(states):
                states.append(successor)
            if len(states) > max_states:
                raise LimitError(
                    f"N = {system.N}, B = {shown_vector(B)}: an exact expression is limited to "
                    f"{max_states} states; use the numeric chain, a smaller N or a larger threshold"
                )
            row[target] = row.get(target, field.zero) + probability
        rows.append(row)
    return rows, holding, finished


def _key(*vectors: np.ndarray) -> bytes:
    return b"".join(vector.tobytes() for vector in vectors)


def _arrivals(
    k: np.ndarray, finished: list[int], P: list[list[Any]], field: Any
) -> dict[tuple[int, ...], Any]:
    """Queue lengths after the splits of the finished batches, with their probabilities."""
    outcomes = {tuple(k.tolist()): field.one}
    for size, row in zip(finished, P, strict=True):
        destinations = [j for j, p in enumerate(row) if p]
        before, outcomes = outcomes, {}
        for counts in compositions(size, len(destinations)).tolist():
            probability = field.convert(factorial(size) // prod(map(factorial, counts)))
            probability *= prod((row[j] ** n for j, n in zip(destinations, counts, strict=True)))
            for waiting, so_far in before.items():
                after = list(waiting)
                for j, n in zip(destinations, counts, strict=True):
                    after[j] += n
                key = tuple(after)
                outcomes[key] = outcomes.get(key, field.zero) + so_far * probability
    return outcomes


def _stationary(rows: list[Row], field: Any) -> Row:
    """Solve for stationary weights (not normalised) of the recurrent states by elimination."""
    edges = [(s, t) for s, row in enumerate(rows) for t in row]
    pattern = coo_array((np.ones(len(edges)), np.array(edges).T), shape=(len(rows),) * 2)
    classes = recurrent_classes(pattern.tocsr())
    if len(classes) > 1:
        raise UsageError(
            f"the chain has {len(classes)} recurrent classes, so its long run depends on chance "
            "and no single expression gives its throughput; use the numeric chain"
        )
    order = classes[0].tolist()
    A = {s: dict(rows[s]) for s in order}
    for n in range(len(order) - 1, 0, -1):
        s, left = order[n], order[:n]
        onward = {t: A[s][t] for t in left if t in A[s]}
        leaving = sum(onward.values(), field.zero)
        for i in left:
            if s in A[i]:
                A[i][s] /= leaving
                for t, probability in onward.items():
                    A[i][t] = A[i].get(t, field.zero) + A[i][s] * probability
    pi = {order[0]: field.one}
    for s in order[1:]:
        pi[s] = sum((share * A[i][s] for i, share in pi.items() if s in A[i]), field.zero)
    return pi
