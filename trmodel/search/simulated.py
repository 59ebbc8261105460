"""The search of one row by simulation: proposals, a race, refinement, confirmation.

1. `trmodel.search.proposals` names the candidates: all live vectors, or a selection.
2. They race (`trmodel.search.racing`).
3. After a selection the neighbours of the leader race against it, at a step that halves whenever
   the leader holds, down to one; then the best of all that were seen race once more.
4. Where the finalists' chains are small they are solved, and the choice rests on exact figures.
   Otherwise the winner and eager launching are simulated until their intervals are narrow, and
   the other candidates' figures are the winner's times their ratio in the race: with common random
   numbers differences are known better than the figures themselves.

The guarantee holds for each race. A row that was refined is thus a local optimum of which every
single comparison, not the whole, is that sure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trmodel.errors import LimitError
from trmodel.launch import shown_vector
from trmodel.markov import Limits, Solver
from trmodel.markov.enumeration import unordered
from trmodel.search.choose import Candidate, Choice, choose
from trmodel.search.exact import solve
from trmodel.search.proposals import Vector, free_models, neighbours, proposals
from trmodel.search.racing import Effort, Outcome, Runner, enter, extended, race, sharpened
from trmodel.search.spread import in_order
from trmodel.search.table import Row
from trmodel.system import RoutedSystem

CONFIRMED = 8
"""The most finalists whose chains are solved."""
CONFIRMATION = Limits(states=150_000, transitions=600_000)
"""The largest chains that are solved to confirm: about a second each."""
_REFINEMENTS = 40
_LAST = 16
"""How many of the best after refinement race once more, at full effort."""
_REFINING = 0.25
"""Share of the effort that a race of the refinement may cost."""


@dataclass(frozen=True)
class RowSearch:
    """How rows are searched by simulation.

    Attributes
    ----------
    seed
        Of the random numbers that all candidates share.
    solver, limits
        For confirmation; chains larger than these or `CONFIRMATION` are not solved.
    progress
        Called with the share of the row that is done, as far as can be told; may raise to end it.
    """

    seed: int = 0
    effort: Effort = field(default_factory=Effort)
    solver: Solver = "auto"
    limits: Limits = field(default_factory=Limits)
    progress: Callable[[float], None] = lambda _: None

    def row(self, system: RoutedSystem, fixed: Mapping[int, int]) -> Row:
        """Find the thresholds of a system at its N.

        Raises
        ------
        InfeasibleError
            If the fixed thresholds are not live.
        """
        proposed = proposals(system, fixed)
        outcome = race(
            system,
            proposed.vectors,
            seed=self.seed,
            effort=self.effort,
            check=lambda spent: self.progress(0.5 * spent),
        )
        seen = {runner.B: runner for runner in (*outcome.finalists, *outcome.dropped)}
        outcome = self._refined(system, fixed, outcome, proposed.step, seen)
        choice = self._choice(system, outcome, seen)
        notes = [f"found by racing {len(seen)} vectors"]
        if choice.best.method != "exact" and not outcome.decided:
            notes.append(_undecided(outcome))
        if choice.eager.method != choice.best.method:
            notes.append("eager is simulated")
        if np.any(system.handoff_ms):
            notes.append("with handoff delays")
        self.progress(1.0)
        return Row(system.N, choice, tuple(notes), search="racing")

    def _refined(
        self,
        system: RoutedSystem,
        fixed: Mapping[int, int],
        outcome: Outcome,
        step: int,
        seen: dict[Vector, Runner],
    ) -> Outcome:
        """Race leaders against their neighbours until one holds at a step of one, then the best."""
        if step == 1:
            return outcome
        free = free_models(system, fixed)
        effort = replace(self.effort, work=_REFINING * self.effort.work)
        leader = outcome.finalists[0].B
        for turn in range(_REFINEMENTS):
            near = [B for B in neighbours(leader, step, free, system.N) if B not in seen]
            held = True
            if near:
                outcome = race(system, [leader, *near], seed=self.seed, effort=effort)
                seen.update({r.B: r for r in (*outcome.finalists, *outcome.dropped)})
                held, leader = outcome.finalists[0].B == leader, outcome.finalists[0].B
            self.progress(0.5 + 0.3 * turn / _REFINEMENTS)
            if held and step == 1:
                break
            step = max(step // 2, 1) if held else step
        best = sorted(seen.values(), key=lambda runner: -runner.throughput_tok_s)[:_LAST]
        last = list(dict.fromkeys([leader, *(runner.B for runner in best)]))
        outcome = race(system, last, seed=self.seed, effort=self.effort)
        seen.update({r.B: r for r in (*outcome.finalists, *outcome.dropped)})
        return outcome

    def _choice(
        self, system: RoutedSystem, outcome: Outcome, seen: Mapping[Vector, Runner]
    ) -> Choice:
        """Choose among the finalists, by exact figures where that is possible."""
        eager = (1,) * system.M
        finalists = [runner.B for runner in outcome.finalists]
        others = [B for B in seen if B not in finalists]
        leader = outcome.finalists[0]
        rough = {B: _figure(runner, leader) for B, runner in seen.items()}
        exact = self._confirmed(system, finalists[:CONFIRMED])
        if exact:
            known = {candidate.B: candidate for candidate in exact}
            solved = [known[eager]] if eager in known else self._confirmed(system, [eager])
            start = (solved or self._sharp(system, [eager], seen))[0]
            factor = known[leader.B].throughput_tok_s / rough[leader.B].throughput_tok_s
            rest = [_scaled(rough[B], factor) for B in (*finalists[CONFIRMED:], *others)]
            return choose(exact, start, rest)
        choice = choose([rough[B] for B in finalists], rough[leader.B], [rough[B] for B in others])
        sharp = self._sharp(system, list({choice.best.B, eager}), seen)
        figures = {candidate.B: candidate for candidate in sharp}
        return _with_figures(choice, figures[choice.best.B], figures[eager])

    def _confirmed(self, system: RoutedSystem, vectors: Sequence[Vector]) -> list[Candidate]:
        """Solve the chains of vectors; none if one is too large, or lacks what the system has."""
        found: list[Candidate] = []
        if np.any(system.handoff_ms) or unordered(system):
            return found
        limits = Limits(
            min(self.limits.states, CONFIRMATION.states),
            min(self.limits.transitions, CONFIRMATION.transitions),
        )
        solved = in_order(solve, ((system, B, None, self.solver, limits) for B in vectors))
        for result in solved:
            if isinstance(result, LimitError):
                solved.close()
                return []
            found.append(result[0])
        return found

    def _sharp(
        self, system: RoutedSystem, vectors: Sequence[Vector], seen: Mapping[Vector, Runner]
    ) -> list[Candidate]:
        """Simulate vectors until their intervals are narrow."""
        runners = [seen.get(B) or extended([enter(system, B, self.seed)])[0] for B in vectors]
        long = sharpened(runners, self.effort, lambda _: self.progress(0.95))
        return [_with_interval(runner) for runner in long]


def _figure(runner: Runner, leader: Runner) -> Candidate:
    """The leader's throughput times the runner's ratio to the leader of its race."""
    T = leader.throughput_tok_s * runner.ratio
    return Candidate(runner.B, T, None, "simulated", None, None)


def _scaled(candidate: Candidate, factor: float) -> Candidate:
    return replace(candidate, throughput_tok_s=factor * candidate.throughput_tok_s)


def _with_figures(choice: Choice, best: Candidate, eager: Candidate) -> Choice:
    """Give the chosen candidate its final figure, and scale the others to keep their ratios."""
    factor = best.throughput_tok_s / choice.best.throughput_tok_s

    def scaled(candidate: Candidate) -> Candidate:
        return best if candidate.B == best.B else _scaled(candidate, factor)

    second = choice.runner_up
    return Choice(
        best,
        eager,
        second and replace(second, throughput_tok_s=factor * second.throughput_tok_s),
        tuple(scaled(candidate) for candidate in choice.ranked),
        tuple(scaled(candidate) for candidate in choice.tied),
    )


def _with_interval(runner: Runner) -> Candidate:
    found = runner.interval
    own = runner.throughput_tok_s
    return Candidate(runner.B, own, None, "simulated", None, None, found.low, found.high)


def _undecided(outcome: Outcome) -> str:
    """Say which finalists the race could not separate, and how far apart they seem."""
    first, *_, last = outcome.finalists
    spread = 100.0 * (1.0 - last.throughput_tok_s / first.throughput_tok_s)
    named = " ".join(shown_vector(runner.B) for runner in outcome.finalists[:4])
    more = " ..." if len(outcome.finalists) > 4 else ""
    return f"undecided within {spread:.2g} %: {named}{more}"
