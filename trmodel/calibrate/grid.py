"""How far an answer depends on the grid of the chain.

The chain rounds latencies, and under contention the work left at a completion, to ``grid_ms``.
Solving it again on finer grids states the error that this makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from trmodel.errors import LimitError
from trmodel.markov import Limits, solve_chain
from trmodel.system import RoutedSystem


@dataclass(frozen=True)
class GridStep:
    """Throughput on one grid."""

    grid_ms: float
    throughput_tok_s: float
    states: int


@dataclass(frozen=True)
class GridCheck:
    """Throughput on the system's grid and on ever finer ones.

    Attributes
    ----------
    steps
        The system's own grid first, each next one half as wide.
    stopped
        Why no finer grid was tried although asked for, or None.
    """

    B: tuple[int, ...]
    steps: tuple[GridStep, ...]
    stopped: str | None = None

    @property
    def shift_percent(self) -> float | None:
        """Throughput on the system's grid relative to the finest; None without a finer one."""
        if len(self.steps) < 2:
            return None
        return 100.0 * (self.steps[0].throughput_tok_s / self.steps[-1].throughput_tok_s - 1.0)

    @property
    def error_percent(self) -> float | None:
        """The largest distance of any two of the grids: the stated error of the grid.

        Rounding does not shrink evenly with the grid, so that one small shift can be luck.
        """
        if len(self.steps) < 2:
            return None
        values = [step.throughput_tok_s for step in self.steps]
        return 100.0 * (max(values) / min(values) - 1.0)

    def summary(self) -> str:
        """Return the check in a sentence."""
        first, last = self.steps[0], self.steps[-1]
        if self.shift_percent is None or self.error_percent is None:
            return f"grid {first.grid_ms:g} ms: not checked, {self.stopped}"
        return (
            f"grid {first.grid_ms:g} ms: {first.throughput_tok_s:.2f} tok/s, on "
            f"{last.grid_ms:g} ms {last.throughput_tok_s:.2f}; shift {self.shift_percent:+.2f} %, "
            f"stated error {self.error_percent:.2f} %"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain values, ready for JSON."""
        return asdict(self) | {
            "B": list(self.B),
            "shift_percent": self.shift_percent,
            "error_percent": self.error_percent,
        }


def grid_check(
    system: RoutedSystem, B: Sequence[int], *, halvings: int = 2, limits: Limits = Limits()
) -> GridCheck:
    """Solve the chain on the system's grid and on grids halved up to ``halvings`` times.

    Each halving about doubles the states of a chain. It stops where one outgrows the limits.

    Raises
    ------
    InfeasibleError, UsageError, LimitError
        See `solve_chain`; a limit met by the system's own grid is an error.
    """
    steps: list[GridStep] = []
    stopped = None
    for k in range(halvings + 1):
        finer = replace(system, grid_ms=system.grid_ms / 2**k)
        try:
            chain = solve_chain(finer, B, limits=limits)
        except LimitError as error:
            if not steps:
                raise
            stopped = str(error)
            break
        steps.append(GridStep(finer.grid_ms, chain.throughput_tok_s, chain.states))
    return GridCheck(system.check_thresholds(B), tuple(steps), stopped)
