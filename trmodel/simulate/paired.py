"""Several rules or systems on the same routing decisions, and what they differ by.

With one seed the n-th decision of a request is the same in every case (common random numbers).
Sections end after equal numbers of request-steps, not of time, so that section s holds about the
same decisions in every case: what luck of routing does to one it does to all, and it cancels in
the difference. For throughputs T_1 = Y_1 / X_1 and T_0 = Y_0 / X_0 (tokens over time),

    z_s = (y_1s - T_1 x_1s) / Y_1 - (y_0s - T_0 x_0s) / Y_0

are the sections' contributions to log(T_1 / T_0), whose half width is

    t(n - 1) sqrt(n / (n - 1) sum z_s^2),

with neighbours merged as in `trmodel.simulate.intervals`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trmodel.arrays import FloatArray
from trmodel.errors import UsageError
from trmodel.simulate.intervals import Estimate, around, independent
from trmodel.simulate.result import Simulation, deviations, merge
from trmodel.simulate.rules import Options
from trmodel.simulate.run import DEFAULT_BATCHES, answer_of, check_run
from trmodel.simulate.sections import SECTIONS, WARM_UP, Progress
from trmodel.simulate.simulator import Simulator
from trmodel.simulate.state import Counts
from trmodel.system import RoutedSystem

LONGEST = 64
"""Times the batches asked for, where a precision is wanted."""


@dataclass(frozen=True)
class Case:
    """One of the systems that are compared, and the rule by which it starts batches."""

    system: RoutedSystem
    B: Sequence[int] | Sequence[Sequence[int]]
    options: Options = field(default_factory=Options)


@dataclass(frozen=True)
class Comparison:
    """The answer of a paired simulation.

    Attributes
    ----------
    simulations
        By name of the case, in the order given.
    reference
        The case whose gains are given.
    gain_percent
        By name of each other case: throughput that the reference gains over it.
    """

    simulations: Mapping[str, Simulation]
    reference: str
    gain_percent: Mapping[str, Estimate]
    confidence: float


def simulate_paired(
    cases: Mapping[str, Case],
    reference: str,
    *,
    seed: int = 0,
    batches: int = DEFAULT_BATCHES,
    precision_percent: float | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Comparison:
    """Simulate cases on the same routing decisions.

    Parameters
    ----------
    cases
        At least one; pairing helps as far as their routings are the same.
    reference
        One of their names.
    batches
        About how many batches the reference completes; the others make as many request-steps.
    precision_percent
        Go on, doubling the runs up to `LONGEST` times, until every throughput's half width is
        below this percentage of it.
    seed, confidence
        See `trmodel.simulate.simulate`.

    Raises
    ------
    InputError, UsageError, InfeasibleError
        See `trmodel.simulate.simulate`.
    """
    check_run(batches, confidence, precision_percent)
    if reference not in cases:
        raise UsageError(f"reference: must be one of {', '.join(cases)}, got {reference}")
    runs = {name: _Run(case, seed) for name, case in cases.items()}
    warm_up = max(int(WARM_UP * batches), 1)
    goal = runs[reference].run_batches(warm_up)
    section = goal / warm_up * batches / SECTIONS
    sections: dict[str, list[Counts]] = {name: [] for name in runs}
    for run in runs.values():
        run.run_to(goal)
    length, start, merged = SECTIONS, goal, 1
    while True:
        for name, run in runs.items():
            for n in range(len(sections[name]), length):
                sections[name].append(run.run_to(start + (n + 1) * section))
                if progress:
                    done = sum(map(len, sections.values()))
                    progress(done, length * len(runs))
        simulations = {name: run.answer(sections[name], confidence) for name, run in runs.items()}
        wide = [
            found.throughput_tok_s.half_width / found.throughput_tok_s.value * 100.0
            for found in simulations.values()
        ]
        if precision_percent is None or max(wide) <= precision_percent or merged >= LONGEST:
            break
        # The run is made twice as long and its sections with it.
        merged, section = 2 * merged, 2.0 * section
        sections = {
            name: [merge(a, b) for a, b in zip(own[::2], own[1::2], strict=True)]
            for name, own in sections.items()
        }
    if precision_percent is not None and max(wide) > precision_percent:
        warning = f"the precision of {precision_percent:g} % was not reached: {max(wide):.2g} %"
        found = simulations[reference]
        simulations[reference] = replace(found, warnings=(*found.warnings, warning))
    gains = {
        name: gain(sections[reference], sections[name], confidence)
        for name in cases
        if name != reference
    }
    return Comparison(simulations, reference, gains, confidence)


def gain(first: Sequence[Counts], second: Sequence[Counts], confidence: float) -> Estimate:
    """Estimate how much more throughput the first has than the second, in percent.

    The sections are in pairs; both runs are in the same unit of time.
    """
    pairs, _ = independent(
        list(zip(first, second, strict=True)),
        _log_ratio_deviations,
        lambda a, b: (merge(a[0], b[0]), merge(a[1], b[1])),
    )
    z, n = _log_ratio_deviations(pairs), len(pairs)
    tokens, elapsed = (
        np.array([[float(getattr(c, name)[0]) for c in pair] for pair in pairs]).sum(axis=0)
        for name in ("tokens", "elapsed")
    )
    log_ratio = math.log(tokens[0] / elapsed[0]) - math.log(tokens[1] / elapsed[1])
    spread = math.sqrt(n / (n - 1) * float(z @ z))
    found = around(log_ratio, spread, n, confidence)
    return Estimate(*(100.0 * math.expm1(x) for x in (found.value, found.low, found.high)))


def _log_ratio_deviations(pairs: Sequence[tuple[Counts, Counts]]) -> FloatArray:
    first, second = zip(*pairs, strict=True)
    return np.asarray(_per_token(first) - _per_token(second))


def _per_token(sections: Sequence[Counts]) -> FloatArray:
    return deviations(sections) / sum(float(c.tokens[0]) for c in sections)


class _Run:
    """A simulation that is run on by request-steps."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.simulator = Simulator(case.system, case.B, case.options, seed)
        self.steps = 0.0
        self.batches = 0

    def run_batches(self, batches: int) -> float:
        """Run on and return how many request-steps have been made since the start."""
        self._count(self.simulator.run_batches(batches))
        return self.steps

    def run_to(self, goal: float) -> Counts:
        """Run until that many request-steps have been made since the start."""
        N = self.case.system.N
        counts = self.simulator.run_batches(0)
        while self.steps < goal:
            left = goal - self.steps
            # A batch makes at most N steps; far off, their mean says how many are safe.
            far = left > 100 * N and self.batches > 0
            batches = 0.9 * left * self.batches / self.steps if far else left / N
            counts = merge(counts, self._count(self.simulator.run_batches(max(int(batches), 1))))
        return counts

    def _count(self, counts: Counts) -> Counts:
        self.steps += float((counts.sizes @ np.arange(counts.sizes.shape[1])).sum())
        self.batches += int(counts.batches.sum())
        return counts

    def answer(self, sections: Sequence[Counts], confidence: float) -> Simulation:
        return answer_of(self.simulator, sections, self.case.options, confidence)
