"""Racing: which of many threshold vectors is best, by simulation, without simulating all for long.

All candidates are simulated side by side, with common random numbers and in *sections* of equal
simulated time. Rounds double what has been simulated. After each round, with the *leader* L the
candidate of the highest mean, a candidate a is *dropped* when the paired differences of its
sections, d_s = x_a,s - x_L,s, show that it is not the one to choose:

    mean(d) + q sd(d) / sqrt(n)  <  0,       or < -0.1 % of the leader if a has the smaller sum

(candidates within 0.1 % are ties, which go to the smaller thresholds: `trmodel.search.choose`).

**Guarantee.** q is the Student quantile for alpha / (candidates x rounds), alpha = 5 %. The true
best x* can only be dropped in a round in which some candidate's mean difference to it is above its
own bound. There are at most candidates x rounds of these comparisons, so that by Bonferroni's
inequality the best, or one that it ties with, is among the *finalists* with a probability of at
least 95 %, so far as the means of sections are independent and normal. Sections are long for that:
several times the mean time in which a request visits the model that it visits least, doubling with
every round. (Maron and Moore, The racing algorithm, Artificial Intelligence Review 11, 1997.)

The race ends when one candidate is left, when all that are left are known to tie, or when the work
that a race may cost is spent; then what is left cannot be told apart at that cost, which is said.
Finally the winner's throughput is simulated until its interval is as narrow as wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtrit

from trmodel.arrays import FloatArray
from trmodel.search.choose import INDISTINGUISHABLE
from trmodel.search.spread import in_order
from trmodel.simulate import Estimate, Options, Simulator
from trmodel.simulate.intervals import independent, ratio
from trmodel.system import RoutedSystem

ALPHA = 0.05
SECTIONS = 32
ROUNDS = 20
_CYCLES = 3.0
"""Mean times between two visits to the rarest model that make a section of the first round."""
_WARM_UP = 16
"""Sections of the first round that are simulated before and not counted."""
_BATCH_WORK = 20
"""What an event costs, in requests routed."""

Check = Callable[[float], None]
"""Called after every round with the share of the work that is spent; may raise to end a search."""


@dataclass(frozen=True)
class Effort:
    """How hard a race tries.

    Attributes
    ----------
    work
        The most that one race costs, in requests routed (an event counts as 20): some 4e7 of
        these take a second of one core.
    precision_percent
        Half width of the winner's 95 % interval, relative to its throughput, at which to stop.
    """

    work: float = 1.5e8
    precision_percent: float = 0.1


@dataclass
class Runner:
    """One candidate in a race.

    Attributes
    ----------
    section_ms
        Length of a section.
    until_ms
        How far it has been simulated.
    sections
        (n, 2): tokens and milliseconds of each section.
    work
        What that has cost, as in `Effort`.
    ratio
        Throughput over the leader's, in the sections of the last round that it was in.
    """

    B: tuple[int, ...]
    simulator: Simulator
    section_ms: float
    until_ms: float
    sections: FloatArray = field(default_factory=lambda: np.empty((0, 2)))
    work: float = 0.0
    ratio: float = 1.0

    @property
    def throughput_tok_s(self) -> float:
        """Mean over all sections, in tokens per second."""
        tokens, ms = self.sections.sum(axis=0)
        return float(tokens / ms * 1000.0)

    @property
    def by_section(self) -> FloatArray:
        """Throughput of each section; (n,)."""
        # (A section that one long step spans has no event: no token in no time.)
        return np.asarray(self.sections[:, 0] / np.maximum(self.sections[:, 1], 1e-9) * 1000.0)

    @property
    def interval(self) -> Estimate:
        """Throughput with its 95 % interval, by batch means."""
        pairs, _ = independent(list(self.sections), _deviations, np.add)
        apart = np.array(pairs)
        return ratio(apart[:, 0], apart[:, 1], 1.0 - ALPHA).scaled(1000.0)


@dataclass(frozen=True)
class Outcome:
    """How a race ended.

    Attributes
    ----------
    finalists
        Not dropped, highest throughput first.
    dropped
        The others; what they were worth when they were dropped.
    decided
        Whether the finalists are known to tie (or there is one).
    """

    finalists: tuple[Runner, ...]
    dropped: tuple[Runner, ...]
    decided: bool


def race(
    system: RoutedSystem,
    candidates: Sequence[tuple[int, ...]],
    *,
    seed: int = 0,
    effort: Effort = Effort(),
    check: Check | None = None,
) -> Outcome:
    """Race live threshold vectors of a system; the guarantee is stated above.

    Latencies and work are on the system's grid, as in the exact chain; handoff delays count.

    Raises
    ------
    UsageError, InfeasibleError
        If a vector is malformed or can deadlock.
    """
    left = [enter(system, B, seed) for B in candidates]
    gone: list[Runner] = []
    alpha = ALPHA / (len(left) * ROUNDS)
    decided = len(left) == 1
    for _ in range(ROUNDS):
        left = extended(left)
        left.sort(key=lambda runner: -runner.throughput_tok_s)
        left, dropped, decided = _judged(left, alpha)
        gone += dropped
        spent = sum(runner.work for runner in (*left, *gone))
        # The next round costs as much as all before of those that are left.
        following = spent + sum(runner.work for runner in left)
        if check:
            check(min(spent / effort.work, 1.0))
        if decided or following > effort.work:
            break
    gone.sort(key=lambda runner: -runner.throughput_tok_s)
    return Outcome(tuple(left), tuple(gone), decided)


def _judged(runners: list[Runner], alpha: float) -> tuple[list[Runner], list[Runner], bool]:
    """Split runners, best first, into those that stay and those that are dropped.

    Also say whether all that stay are known to tie with the leader.
    """
    leader, tolerance = runners[0], INDISTINGUISHABLE * runners[0].throughput_tok_s
    n = len(leader.sections)
    q = float(stdtrit(n - 1, 1.0 - alpha))
    leader.ratio = 1.0
    stay, dropped, decided = [leader], [], True
    for runner in runners[1:]:
        d = runner.by_section - leader.by_section
        mean, bound = float(d.mean()), q * float(d.std(ddof=1)) / math.sqrt(n)
        runner.ratio = 1.0 + mean / leader.throughput_tok_s
        if mean + bound < (-tolerance if sum(runner.B) < sum(leader.B) else 0.0):
            dropped.append(runner)
            continue
        stay.append(runner)
        decided = decided and abs(mean) + bound <= tolerance
    return stay, dropped, decided


def sharpened(
    runners: Sequence[Runner], effort: Effort, check: Check | None = None
) -> list[Runner]:
    """Simulate on until every interval is as narrow as wanted or the work is spent."""
    result = list(runners)
    while True:
        wide = [
            place
            for place, runner in enumerate(result)
            if 2.0 * runner.work < effort.work and _is_wide(runner, effort.precision_percent)
        ]
        if check:
            check(1.0)
        if not wide:
            return result
        for place, longer in zip(wide, extended([result[i] for i in wide]), strict=True):
            result[place] = longer


def _is_wide(runner: Runner, percent: float) -> bool:
    allowed = percent / 100.0 * runner.throughput_tok_s
    return not runner.interval.half_width <= allowed


def cycle_ms(system: RoutedSystem) -> float:
    """Mean time between a request's visits to the model that it visits least, without waiting.

    With s_i the share of model i in a request's steps in the long run, sum_i s_i L_i / min_i s_i,
    for the longest steps of all batch sizes and slow-downs, waking included. Longer than any single
    step.
    """
    kept = system.restricted()
    # P^n becomes its time average also where it is periodic.
    averaged = np.linalg.matrix_power(0.5 * (kept.transition_probability + np.eye(kept.U)), 1 << 40)
    by_model = np.bincount(kept.phase_model, averaged[kept.entry], kept.M)
    steps = kept.latency_ms.max(axis=1) + kept.wake_ms
    steps += np.bincount(kept.phase_model, kept.added_ms, kept.M)
    mean = float(by_model @ (steps * kept.slow_down.max(axis=0))) + float(kept.handoff_ms.max())
    return mean / float(by_model[by_model > 1e-6].min())


def enter(system: RoutedSystem, B: tuple[int, ...], seed: int) -> Runner:
    """Return a runner at the start, before its first section."""
    section_ms = _CYCLES * cycle_ms(system)
    simulator = Simulator(system, B, Options(on_grid=True), seed)
    return Runner(B, simulator, section_ms, _WARM_UP * section_ms)


def extended(runners: Sequence[Runner]) -> list[Runner]:
    """Simulate twice as long as so far, with half as many sections of twice the length.

    A runner at the start gets its first sections.
    """
    return list(in_order(_extend, ((runner,) for runner in runners)))


def _extend(runner: Runner) -> Runner:
    first = not len(runner.sections)
    if first:
        runner.simulator.run_until(runner.until_ms)
    rows = []
    for _ in range(SECTIONS):
        runner.until_ms += runner.section_ms
        counts = runner.simulator.run_until(runner.until_ms)
        rows.append((counts.tokens[0], counts.elapsed[0] * runner.simulator.unit_ms))
        routed = counts.sizes.sum(axis=0) @ np.arange(counts.sizes.shape[1])
        runner.work += float(routed + _BATCH_WORK * counts.batches.sum())
    sections = np.concatenate([runner.sections, np.array(rows)])
    if not first:
        sections = sections[::2] + sections[1::2]
        runner.section_ms *= 2.0
    runner.sections = sections
    return runner


def _deviations(sections: Sequence[FloatArray]) -> FloatArray:
    pairs = np.array(sections)
    tokens, ms = pairs.sum(axis=0)
    return np.asarray(pairs[:, 0] - tokens / ms * pairs[:, 1])
