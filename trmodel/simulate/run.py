"""Simulate a system to a wanted length or a wanted precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trmodel.errors import InputError, UsageError
from trmodel.launch_table import LaunchTable
from trmodel.simulate.intervals import independent
from trmodel.simulate.result import Simulation, answer, deviations, merge
from trmodel.simulate.rules import Options
from trmodel.simulate.sections import SECTIONS, Progress, Sections
from trmodel.simulate.simulator import Simulator
from trmodel.simulate.state import Counts
from trmodel.system import RoutedSystem
from trmodel.system_checks import is_int

DEFAULT_BATCHES = 500_000
_NEGLIGIBLE = 1e-4
_CORRELATED = "sections of the run are correlated: intervals may be too narrow; run longer"


def simulate(
    system: RoutedSystem,
    B: Sequence[int] | Sequence[Sequence[int]],
    options: Options = Options(),
    *,
    seed: int = 0,
    batches: int = DEFAULT_BATCHES,
    precision_percent: float | None = None,
    max_batches: int | None = None,
    confidence: float = 0.95,
    table: LaunchTable | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """Simulate a system under thresholds (or another strategy) and estimate what it does.

    Parameters
    ----------
    system, B, options, seed, table
        See `Simulator`.
    batches
        About how many batches complete in the counted part of the run; a tenth of it comes before
        as warm-up.
    precision_percent
        Go on, doubling the run, until the throughput's half width is below this percentage of it.
    max_batches
        End then, with a warning; None for 64 times ``batches``.
    confidence
        Of the intervals.

    Raises
    ------
    InputError
        If nothing is committed, or a launch table lacks a state.
    UsageError, InfeasibleError
        If an argument makes no sense or the thresholds can deadlock.
    """
    check_run(batches, confidence, precision_percent)
    run = Simulator(system, B, options, seed, table)
    sections = Sections.after_warm_up(run, batches)
    most = 64 * batches if max_batches is None else max_batches
    while True:
        sections.lengthen(progress)
        result = answer_of(run, sections.counts, options, confidence)
        wanted = precision_percent is None or (
            result.throughput_tok_s.half_width
            <= precision_percent / 100.0 * result.throughput_tok_s.value
        )
        if wanted or 2 * result.batches > most:
            break
    if wanted:
        return result
    half = result.throughput_tok_s.half_width / result.throughput_tok_s.value * 100.0
    doubt = (
        f"the precision of {precision_percent:g} % was not reached: {half:.2g} % after "
        f"{result.batches:,} batches"
    )
    return replace(result, warnings=(*result.warnings, doubt))


def answer_of(
    run: Simulator, sections: Sequence[Counts], options: Options, confidence: float
) -> Simulation:
    """Put together the answer of a run, and warn where correlated sections make it doubtful.

    Raises
    ------
    InputError
        If nothing is committed.
    """
    if not any(float(c.tokens[0]) for c in sections):
        raise InputError("committed_tokens: the simulation committed no token")
    system = run.system
    merged, apart = independent(sections, deviations, merge)
    found = answer(
        system,
        merged,
        run.unit_ms,
        confidence,
        B=tuple(int(b) for b in run.rules.thresholds[system.N]),
        strategy=options.strategy.name.replace("_", "-"),
        seed=run.rules.seed,
        grid_ms=system.grid_ms if options.on_grid else None,
        warnings=system.restricted().warnings,
    )
    T = found.throughput_tok_s
    # Sections that hardly differ, as in a cycle, may be as correlated as they like.
    if not apart and T.half_width > _NEGLIGIBLE * T.value:
        return replace(found, warnings=(*found.warnings, _CORRELATED))
    return found


def check_run(batches: int, confidence: float, precision_percent: float | None) -> None:
    """Refuse lengths and precisions that make no sense.

    Raises
    ------
    UsageError
    """
    if not is_int(batches) or batches < SECTIONS:
        raise UsageError(f"batches: at least {SECTIONS} are needed, got {batches}")
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence: must be between 0 and 1, got {confidence}")
    if precision_percent is not None and not precision_percent > 0.0:
        raise UsageError(f"precision_percent: must be above 0, got {precision_percent}")
