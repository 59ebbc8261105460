"""``trmodel predict --symbolic``: the throughput as an exact function, beside the numeric one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trmodel.markov.symbolic import SymbolicThroughput, symbolic_throughput
from trmodel.system import RoutedSystem


@dataclass(frozen=True)
class Symbolic:
    """A throughput as a function of routing, and its value at the routing of the system."""

    found: SymbolicThroughput
    values: dict[str, float]

    @property
    def at_routing(self) -> float:
        """The throughput that the function gives at the system's own routing."""
        return self.found.at(**self.values)

    def to_dict(self) -> dict[str, Any]:
        """Return the function as plain values, ready for JSON; its text is valid Python."""
        return {
            "expression": str(self.found.expression),
            "values": self.values,
            "states": self.found.states,
            "throughput_tok_s": self.at_routing,
        }

    def lines(self, numeric: float) -> list[str]:
        """Say the function, its value and how far the numeric chain is from it."""
        names = ", ".join(self.values)
        given = ", ".join(f"{name} = {value:g}" for name, value in self.values.items())
        value = self.at_routing
        return [
            f"{_T(names)} = {self.found.expression} tok/s, exactly ({self.found.states} states)",
            f"{_T(given)} = {value:.12g}; numeric chain: {numeric:.12g}, "
            f"relative difference {abs(numeric / value - 1.0):.0e}",
        ]


def _T(arguments: str) -> str:
    """Return T as a function of what is open, as a constant where nothing is."""
    return f"T({arguments})" if arguments else "T"


def symbolic(system: RoutedSystem, B: Sequence[int]) -> Symbolic:
    """Find the throughput as a function of the routing probabilities left open.

    Raises
    ------
    UsageError, LimitError, InfeasibleError
        See `symbolic_throughput`.
    """
    found = symbolic_throughput(system, B)
    values = {symbol.name: _value(system, symbol.name) for symbol in found.symbols}
    return Symbolic(found, values)


def _value(system: RoutedSystem, name: str) -> float:
    """Return the probability that a symbol stands for: p is P[0][1], p_ij is P[i][j]."""
    if name == "p":
        return float(system.transition_probability[0, 1])
    i = system.entry
    return float(system.transition_probability[i, int(name.removeprefix(f"p_{i}"))])
