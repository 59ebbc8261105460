"""Why a row of a threshold table is what it is: what was rejected, tied and gained, what binds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trmodel.calibrate import Driver, gain_drivers
from trmodel.launch import shown_vector
from trmodel.ledger import CostLedger
from trmodel.markov import ModelMetrics, Prediction, Solver, predict_chain
from trmodel.profile import CapacityCheck
from trmodel.search import Candidate, Row
from trmodel.search.exact import count_vectors
from trmodel.simulate import Options, SimulatedModel, Simulation, simulate
from trmodel.system import RoutedSystem

PARTS = (
    ("forward", "forward_ms"),
    ("wait for thresholds", "threshold_wait_ms"),
    ("wait for running batches", "batch_wait_ms"),
)


@dataclass(frozen=True)
class Explanation:
    """What stands behind one row.

    Attributes
    ----------
    can_deadlock, vectors
        How many of the vectors with entries up to N were rejected because they can deadlock.
    chosen, eager
        The predictions under the chosen thresholds and under eager launching, or simulations
        where the row is not exact.
    memory
        Whether the requests fit into GPU memory, in words.
    drivers
        What the gain rests on; none if the choice is eager launching or not exact.
    """

    row: Row
    can_deadlock: int
    vectors: int
    chosen: Prediction | Simulation
    eager: Prediction | Simulation
    memory: str
    drivers: Sequence[Driver]

    @property
    def lines(self) -> list[str]:
        """The explanation in words; the first line names the row."""
        row = self.row
        return [
            f"N = {row.N}: B = {shown_vector(row.B)} gives {row.throughput_tok_s:.1f} tok/s, "
            f"{row.gain_percent:+.1f} % over eager ({row.choice.eager.throughput_tok_s:.1f})",
            self._why(),
            f"rejected: {self.can_deadlock} of {self.vectors} vectors can deadlock, "
            "sum(B_i - 1) >= N",
            *self._time(),
            self._binds(),
            *(f"driver, {driver.reading}" for driver in self.drivers),
            f"memory: {self.memory}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values, ready for JSON."""
        return {
            "text": self.lines,
            "evaluated": self.row.evaluated,
            "can_deadlock": self.can_deadlock,
            "tied": [
                {"B": list(c.B), "throughput_tok_s": c.throughput_tok_s} for c in self._ties()
            ],
            "ledger": _plain(self.chosen.ledger),
            "eager_ledger": _plain(self.eager.ledger),
            "busiest_model": self._busiest().name,
            "drivers": [driver.to_dict() for driver in self.drivers],
            "memory": self.memory,
        }

    def _vectors(self) -> str:
        return "vectors raced" if self.row.search == "racing" else "live vectors"

    def _ties(self) -> list[Candidate]:
        return [c for c in self.row.choice.tied if c is not self.row.choice.best]

    def _why(self) -> str:
        choice, count = self.row.choice, self.row.evaluated
        ties, second, top = self._ties(), choice.runner_up, choice.ranked[0]
        if top not in choice.tied and choice.best in choice.ranked:
            excess = 100.0 * (top.throughput_tok_s / self.row.throughput_tok_s - 1.0)
            return (
                f"why: chosen for the objectives, of {count} live vectors; without "
                f"them {shown_vector(top.B)} gives {excess:+.1f} %"
            )
        if second is None:
            return "why: it is the only live vector"
        if not ties:
            return (
                f"why: best of {count} {self._vectors()}; the runner-up "
                f"{shown_vector(second.B)} loses {second.loss_percent:.2f} %"
            )
        named = ", ".join(
            f"{shown_vector(c.B)} "
            f"({100.0 * (c.throughput_tok_s / self.row.throughput_tok_s - 1.0):+.3f} %)"
            for c in ties[:4]
        ) + (f" and {len(ties) - 4} more" if len(ties) > 4 else "")
        return (
            f"why: of {count} {self._vectors()} those within 0.1 % of the best tie, and "
            f"the smallest is taken; also {named}"
        )

    def _time(self) -> list[str]:
        before, after = self.eager.ledger, self.chosen.ledger
        parts = ", ".join(
            f"{name} {getattr(before, part):.2f} -> {getattr(after, part):.2f}"
            for name, part in PARTS
        )
        return [
            f"ms per token, eager -> chosen: {before.total_ms:.2f} -> {after.total_ms:.2f}",
            f"of these: {parts}",
        ]

    def _busiest(self) -> ModelMetrics | SimulatedModel:
        models: Sequence[ModelMetrics | SimulatedModel] = self.chosen.per_model
        return max(models, key=lambda model: model.busy_fraction)

    def _binds(self) -> str:
        busiest = self._busiest()
        before = next(m for m in self.eager.per_model if m.name == busiest.name)
        return (
            f"binds: {busiest.name}, busy {before.busy_fraction:.1%} -> "
            f"{busiest.busy_fraction:.1%}, mean batch {before.mean_batch:.2f} -> "
            f"{busiest.mean_batch:.2f}"
        )


def explain_row(
    system: RoutedSystem, row: Row, fixed: Collection[int], solver: Solver, memory: CapacityCheck
) -> Explanation:
    """Explain a row.

    Parameters
    ----------
    system
        The one that was tuned, at any N that covers the row.
    fixed
        Models whose thresholds were given.
    solver
        The one that was used.
    memory
        The most requests that fit.
    """
    system = system.with_N(row.N)
    free = [i for i in system.reached if i not in fixed]
    given = {i: row.B[i] for i in fixed}
    exact = row.choice.best.method == row.choice.eager.method == "exact"

    def figures(B: tuple[int, ...]) -> Prediction | Simulation:
        if exact:
            return predict_chain(system, B, solver=solver)
        return simulate(system, B, Options(on_grid=True))

    return Explanation(
        row,
        system.N ** len(free) - count_vectors(system, system.N, given),
        system.N ** len(free),
        figures(row.B),
        figures((1,) * system.M),
        memory.message or f"at most {memory.largest_N} requests fit",
        gain_drivers(system, row.B) if exact and max(row.B) > 1 else (),
    )


def _plain(ledger: CostLedger) -> dict[str, float]:
    return asdict(ledger) | {"total_ms": ledger.total_ms}
