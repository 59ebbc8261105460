"""The best thresholds among those that meet objectives of service.

Candidates are examined from the highest throughput down, each by a simulation with the same random
numbers, until one meets every objective. A simulation is doubled as long as some objective is
unclear and none is missed; what is unclear after `LONGEST` batches counts as missed.

Throughput ranks the candidates as tuning found it, exactly where chains are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trmodel.errors import InfeasibleError
from trmodel.launch import shown_vector
from trmodel.search.choose import INDISTINGUISHABLE, Candidate, choose
from trmodel.search.objectives import SPEED, Measured, Objective, Verdict
from trmodel.search.table import Row, ThresholdTable
from trmodel.simulate.intervals import Estimate, independent
from trmodel.simulate.result import Figures, deviations, merge
from trmodel.simulate.sections import Sections
from trmodel.simulate.simulator import Simulator
from trmodel.system import RoutedSystem

SHORTEST, LONGEST = 50_000, 1_600_000
"""Batches simulated at first and at most for one candidate."""
CONFIDENCE = 0.99
SHOWN = 5
"""Candidates of higher throughput that are named with what they miss."""


@dataclass(frozen=True)
class Examined:
    """A candidate and how it stands to each objective; ``batches`` were simulated (0: none)."""

    candidate: Candidate
    measured: tuple[Measured, ...]
    batches: int

    @property
    def meets(self) -> bool:
        """Whether every objective is met for sure."""
        return all(m.verdict is Verdict.met for m in self.measured)

    @property
    def unclear(self) -> bool:
        """Whether the simulation could not tell, and nothing else excludes it."""
        verdicts = {m.verdict for m in self.measured}
        return Verdict.unclear in verdicts and Verdict.missed not in verdicts

    @property
    def excess_percent(self) -> float:
        """The largest relative miss."""
        return max(m.excess_percent for m in self.measured)

    @property
    def missed(self) -> tuple[Measured, ...]:
        """What is not met, worst first."""
        wrong = [m for m in self.measured if m.verdict is not Verdict.met]
        return tuple(sorted(wrong, key=lambda m: -m.excess_percent))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "B": list(self.candidate.B),
            "throughput_tok_s": self.candidate.throughput_tok_s,
            "meets": self.meets,
            "measured": [m.to_dict() for m in self.measured],
            "batches": self.batches,
        }


@dataclass(frozen=True)
class Outcome:
    """What objectives make of one row of a threshold table.

    Attributes
    ----------
    unconstrained
        What tuning chooses without objectives.
    chosen
        The best that meets all; None if nothing does.
    nearest
        The candidate with the least largest miss; where nothing meets all.
    examined
        Every candidate examined, in descending throughput but for the first.
    candidates
        How many there are.
    """

    N: int
    unconstrained: Examined
    chosen: Examined | None
    nearest: Examined | None
    examined: tuple[Examined, ...]
    candidates: int

    @property
    def cost_percent(self) -> float:
        """Throughput that the objectives cost; nan if nothing meets them."""
        if self.chosen is None:
            return float("nan")
        T = self.unconstrained.candidate.throughput_tok_s
        return 100.0 * (1.0 - self.chosen.candidate.throughput_tok_s / T)

    @property
    def binding(self) -> tuple[str, ...]:
        """The objectives that exclude the unconstrained best, the worst missed first."""
        return tuple(m.objective.label for m in self.unconstrained.missed)

    @property
    def tightest(self) -> Measured | None:
        """The objective with the least room at the chosen thresholds."""
        if self.chosen is None:
            return None
        return max(self.chosen.measured, key=lambda m: m.excess_percent)

    @property
    def unclear(self) -> tuple[Examined, ...]:
        """Candidates that count as missing because the simulation could not tell."""
        return tuple(e for e in self.examined if e.unclear)

    @property
    def at_best(self) -> tuple[tuple[Measured, Candidate], ...]:
        """For each objective alone, the examined candidate that comes best off."""
        pairs = []
        for place in range(len(self.unconstrained.measured)):
            best = min(self.examined, key=lambda e: e.measured[place].excess_percent)
            pairs.append((best.measured[place], best.candidate))
        return tuple(pairs)

    @property
    def lines(self) -> list[str]:
        """The outcome in words; the first line begins with the row."""
        if self.chosen is None:
            return self._unmet()
        found, free = self.chosen, self.unconstrained
        lines = [
            f"N = {self.N}: B = {shown_vector(found.candidate.B)} meets all objectives: "
            + _list(found.measured)
        ]
        if found is free:
            tightest = self.tightest
            assert tightest is not None
            lines.append(
                f"none excludes the best throughput; tightest: {tightest.objective.label}, "
                f"{tightest.excess_percent:+.1f} %"
            )
        else:
            lines.append(
                f"binds: {', '.join(self.binding)}; without objectives B = "
                f"{shown_vector(free.candidate.B)} with {free.candidate.throughput_tok_s:.1f} "
                f"tok/s, where {_list(free.missed)}: costs {self.cost_percent:.1f} % of throughput"
            )
        return lines + self._doubts()

    def _unmet(self) -> list[str]:
        nearest = self.nearest
        assert nearest is not None
        lines = [
            f"N = {self.N}: none of {self.candidates} live vectors meets "
            + ", ".join(str(m.objective) for m in nearest.measured),
            f"nearest: B = {shown_vector(nearest.candidate.B)} with "
            f"{nearest.candidate.throughput_tok_s:.1f} tok/s: " + _list(nearest.measured),
        ]
        if len(nearest.measured) > 1:
            lines += [f"at best alone: {m} at B = {shown_vector(c.B)}" for m, c in self.at_best]
        return lines + self._doubts()

    def _doubts(self) -> list[str]:
        if not self.unclear:
            return []
        named = " ".join(shown_vector(e.candidate.B) for e in self.unclear[:SHOWN])
        more = " ..." if len(self.unclear) > SHOWN else ""
        return [
            f"not sure after {max(e.batches for e in self.unclear):,} batches, so counted as "
            f"missing: {named}{more}"
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        T = self.chosen.candidate.throughput_tok_s if self.chosen else 0.0
        better = [e for e in self.examined if e.candidate.throughput_tok_s > T and not e.meets]
        better.sort(key=lambda e: -e.candidate.throughput_tok_s)
        return {
            "met": self.chosen is not None,
            "chosen": self.chosen and self.chosen.to_dict(),
            "unconstrained": self.unconstrained.to_dict(),
            "nearest": self.nearest and self.nearest.to_dict(),
            "binding": list(self.binding),
            "tightest": self.tightest and self.tightest.objective.label,
            "cost_percent": self.cost_percent,
            "excluded": [e.to_dict() for e in better[:SHOWN]],
            "unclear": [list(e.candidate.B) for e in self.unclear],
            "examined": len(self.examined),
            "candidates": self.candidates,
            "confidence": CONFIDENCE,
            "text": self.lines,
        }


@dataclass(frozen=True)
class Constrained:
    """A threshold table under objectives.

    Attributes
    ----------
    table
        Its rows hold the best thresholds that meet the objectives. A row where nothing does holds
        the nearest miss and says so in its notes.
    outcomes
        By N.
    """

    table: ThresholdTable
    outcomes: dict[int, Outcome]

    @property
    def unmet(self) -> list[Outcome]:
        """The outcomes of the rows asked for where nothing meets the objectives."""
        return [self.outcomes[row.N] for row in self.table if self.outcomes[row.N].chosen is None]


Progress = Callable[[int, int], None]
"""Called with rows done and rows in all."""


def constrain_table(
    system: RoutedSystem,
    table: ThresholdTable,
    objectives: Sequence[Objective],
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Constrained:
    """Replace the choice of every row by the best thresholds that meet the objectives.

    Parameters
    ----------
    system
        The one that was tuned.
    table
        As `tune_system` gives it.
    objectives
        At least one; see `parse_objectives`.
    seed
        Of the simulations.

    Raises
    ------
    InfeasibleError
        If in none of the rows asked for anything meets them, with the nearest misses.
    """
    wanted = {row.N for row in table}
    # What was asked for comes first: if all of it fails, nothing else matters.
    order = sorted(table.rows, key=lambda row: row.N not in wanted)
    outcomes: dict[int, Outcome] = {}
    for row in order:
        if len(outcomes) == len(wanted) and all(o.chosen is None for o in outcomes.values()):
            break
        outcomes[row.N] = constrain_row(system.with_N(row.N), row, objectives, seed=seed)
        if progress:
            progress(len(outcomes), len(order))
    if all(outcomes[N].chosen is None for N in wanted):
        raise InfeasibleError("\n".join(line for N in wanted for line in outcomes[N].lines))
    rows = tuple(_constrained_row(row, outcomes[row.N]) for row in table.rows)
    return Constrained(replace(table, rows=rows), outcomes)


def constrain_row(
    system: RoutedSystem, row: Row, objectives: Sequence[Objective], *, seed: int = 0
) -> Outcome:
    """Find the best candidate of a row that meets the objectives; see `constrain_table`."""
    free = row.choice.best
    first = examine(system, free, objectives, seed=seed)
    examined, found = [first], [first] if first.meets else []
    if not found:
        for candidate in row.candidates:
            if found and candidate.throughput_tok_s < found[0].candidate.throughput_tok_s * (
                1.0 - INDISTINGUISHABLE
            ):
                break
            if candidate.B != free.B:
                examined.append(examine(system, candidate, objectives, seed=seed))
                found += [examined[-1]] if examined[-1].meets else []
    best = choose([e.candidate for e in found], row.choice.eager).best if found else None
    chosen = next((e for e in found if e.candidate is best), None)
    nearest = None
    if chosen is None:
        examined = [_complete(system, e, objectives, seed) for e in examined]
        nearest = min(examined, key=lambda e: e.excess_percent)
        first = examined[0]
    return Outcome(row.N, first, chosen, nearest, tuple(examined), len(row.candidates))


def examine(
    system: RoutedSystem,
    candidate: Candidate,
    objectives: Sequence[Objective],
    *,
    seed: int = 0,
    to_the_end: bool = False,
) -> Examined:
    """Simulate a candidate until it is clear how it stands to the objectives.

    With an exact throughput the mean speed of a request needs no simulation, and where it is
    missed none is made, unless every figure is wanted (``to_the_end``).
    """
    speed = _exact_speed(system, candidate)
    known = {o: o.of(speed) for o in objectives if o.name == SPEED and speed}
    simulated = [o for o in objectives if o not in known]
    missed = any(m.verdict is Verdict.missed for m in known.values())
    if not simulated or (missed and not to_the_end):
        return Examined(candidate, tuple(known.values()), 0)
    run = Simulator(system, candidate.B, seed=seed)
    sections = Sections.after_warm_up(run, SHORTEST)
    while True:
        sections.lengthen()
        parts, _ = independent(sections.counts, deviations, merge)
        figures = Figures(parts, run.unit_ms, CONFIDENCE)
        found = known | {o: o.measure(figures, system) for o in simulated}
        result = Examined(candidate, tuple(found[o] for o in objectives), sections.batches)
        if not result.unclear or 2 * sections.batches > LONGEST:
            return result


def _complete(
    system: RoutedSystem, examined: Examined, objectives: Sequence[Objective], seed: int
) -> Examined:
    """Measure what an early verdict left out."""
    if len(examined.measured) == len(objectives):
        return examined
    return examine(system, examined.candidate, objectives, seed=seed, to_the_end=True)


def _exact_speed(system: RoutedSystem, candidate: Candidate) -> Estimate | None:
    if candidate.method != "exact":
        return None
    speed = candidate.throughput_tok_s / system.N
    return Estimate(speed, speed, speed)


def _constrained_row(row: Row, outcome: Outcome) -> Row:
    if outcome.chosen is None:
        assert outcome.nearest is not None
        best = outcome.nearest.candidate
        tied: tuple[Candidate, ...] = (best,)
        notes = (f"misses {', '.join(m.objective.label for m in outcome.nearest.missed)}",)
    elif outcome.chosen is outcome.unconstrained:
        return row
    else:
        best = outcome.chosen.candidate
        tied = tuple(e.candidate for e in outcome.examined if e.meets)
        notes = (f"for {', '.join(outcome.binding)}: -{outcome.cost_percent:.1f} %",)
    choice = replace(row.choice, best=best, runner_up=None, tied=tied)
    return replace(row, choice=choice, extra_notes=(*row.extra_notes, *notes))


def _list(measured: Iterable[Measured]) -> str:
    return ", ".join(map(str, measured))
