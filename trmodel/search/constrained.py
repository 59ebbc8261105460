"""The best thresholds among those that meet objectives of service.

Candidates are examined from the highest throughput down, each by a simulation with the same random
numbers, until one meets every objective. A simulation is doubled as long as some objective is
unclear and none is missed; what is unclear after `LONGEST` batches counts as missed.

Throughput ranks the candidates as tuning found it, exactly where chains are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trmodel.errors import InfeasibleError
from trmodel.search.choose import INDISTINGUISHABLE, Candidate, choose
from trmodel.search.objectives import SPEED, Objective, Verdict
from trmodel.search.outcome import CONFIDENCE, Examined, Outcome
from trmodel.search.table import Row, ThresholdTable
from trmodel.simulate.intervals import Estimate, independent
from trmodel.simulate.result import Figures, deviations, merge
from trmodel.simulate.sections import Sections
from trmodel.simulate.simulator import Simulator
from trmodel.system import RoutedSystem

SHORTEST, LONGEST = 50_000, 1_600_000
"""Batches simulated at first and at most for one candidate."""


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
    search = {**table.search, "objectives": [str(objective) for objective in objectives]}
    return Constrained(replace(table, rows=rows, search=search), outcomes)


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
