"""Open arrivals: the largest rate of requests at which objectives are still met.

Requests arrive in a Poisson stream of rate lambda; at most N are served at a time, the others wait
outside, first come first served. While n are live the thresholds are B(n).

**Capacity.** Once the queue outside is long, every finished reply is followed at once by the next
one: the system is then the closed loop of N requests. It keeps up with the arrivals if and only if
lambda is below the replies per second of that loop, which is the capacity. A loop that has several
rhythms may be in a slower one once requests come at random, so that in every run the queue outside
is watched as well: it *grows* if the next request to be admitted had, through the whole second
half, been waiting longer than ever in the first, or if through that half one waited and for sure
fewer replies end than requests arrive.

**Largest rate.** Rates from 10 % to 90 % of the capacity are simulated with the same random
numbers (the same requests at another pace); between the largest that meets all objectives and the
next one above it the rate is bisected. An objective that stays unclear counts as missed: the
answer is a rate at which all are met for sure, with the next one up at which that is not so, and
the lowest one at which some objective is missed for sure, bisected half as closely.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from trmodel.arrays import FloatArray
from trmodel.errors import InfeasibleError, UsageError
from trmodel.launch import is_live, shown_vector
from trmodel.search.arrivals_result import Arrivals, Load
from trmodel.search.objectives import Objective, Verdict
from trmodel.simulate.intervals import Estimate, independent
from trmodel.simulate.result import Figures, merge
from trmodel.simulate.rules import Options
from trmodel.simulate.sections import SECTIONS, WARM_UP, Sections
from trmodel.simulate.simulator import Simulator
from trmodel.simulate.state import FIRST_TOKEN, INTER_TOKEN, REPLY, Counts
from trmodel.system import RoutedSystem
from trmodel.system_checks import is_int, is_positive

REPLIES = 4_000
LONGER = 8
"""A run is lengthened up to this many times its length where an objective is unclear."""
CONFIDENCE = 0.99
CAPACITY_PERCENT = 1.5
"""Half width of the capacity's interval, unless that takes more replies than a rate may."""
CAPACITY_BATCHES, LONGEST_CAPACITY = 100_000, 64_000_000
GRID = tuple(round(0.1 * k, 1) for k in range(1, 10))
LOWEST = 0.01
"""Shares of the capacity at which rates are simulated, and the lowest tried."""

Progress = Callable[[int, int], None]
"""Called with rates simulated and rates in all, as far as is known."""


def largest_rate(
    system: RoutedSystem,
    thresholds: Sequence[int] | Sequence[Sequence[int]],
    objectives: Sequence[Objective],
    options: Options,
    *,
    seed: int = 0,
    replies: int = REPLIES,
    precision_percent: float = 1.0,
    progress: Progress | None = None,
) -> Arrivals:
    """Find the largest rate of Poisson arrivals at which all objectives are met.

    Parameters
    ----------
    system
        N is the most requests live at a time.
    thresholds
        One vector, or B(1), B(2), ...
    objectives
        None asks for the capacity alone.
    options
        ``hold_ms``, ``reply_tokens`` and the like; ``arrivals_per_s`` is ignored.
    replies
        Simulated at each rate, and up to eight times as many where an objective is unclear.
    precision_percent
        Width of the bracket, in percent of the capacity.

    Raises
    ------
    InfeasibleError
        If the objectives are not met at the lowest rate either, or thresholds can deadlock.
    UsageError
        If an argument makes no sense.
    """
    if not (is_int(replies) and replies >= SECTIONS):
        raise UsageError(f"replies: at least {SECTIONS} are needed, got {replies}")
    if not (is_positive(precision_percent) and precision_percent <= 10.0):
        raise UsageError(f"precision: must be above 0 and at most 10 %, got {precision_percent}")
    vectors = _vectors(system, thresholds, options)
    capacity = closed_loop_replies_per_s(system, vectors[-1], options, seed, replies)
    loads: dict[float, Load] = {}
    bisections = int(np.ceil(np.log2(100.0 * GRID[0] / precision_percent)))

    def load(share: float) -> Load:
        if share not in loads:
            rate = share * capacity.value
            loads[share] = simulate_load(
                system, vectors, objectives, replace(options, arrivals_per_s=rate), seed, replies
            )
            loads[share] = replace(
                loads[share],
                load_percent=100.0 * share,
                stable=loads[share].stable and rate < capacity.low,
                fails=loads[share].fails or rate > capacity.high,
            )
            if progress:
                progress(len(loads), max(len(GRID) + bisections, len(loads)))
        return loads[share]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        met = [
            share for share, found in zip(GRID, pool.map(load, GRID), strict=True) if found.meets
        ]
    if not met and load(LOWEST).meets:
        met = [LOWEST]
    if not met:
        raise InfeasibleError("\n".join(_unmet(load(LOWEST))))
    low = max(met)
    high = min([share for share in loads if share > low], default=1.0)
    low, high = _bisect(low, high, precision_percent, lambda share: not load(share).meets)
    # From here on up to where it fails for sure the simulation cannot tell.
    sure = min([share for share in loads if share > low and loads[share].fails], default=1.0)
    _bisect(high, sure, 2.0 * precision_percent, lambda share: load(share).fails)
    low = max(share for share in loads if loads[share].meets)
    high = min([share for share in loads if share > low], default=1.0)
    return Arrivals(
        models=system.models,
        N=system.N,
        thresholds=tuple(vectors),
        objectives=tuple(objectives),
        capacity_per_s=capacity,
        largest=load(low),
        above=loads.get(high),
        surely_above=next((loads[s] for s in sorted(loads) if s > low and loads[s].fails), None),
        loads=tuple(loads[share] for share in sorted(loads)),
        hold_ms=options.hold_ms,
        mean_reply_tokens=float(np.mean(options.reply_tokens)) if options.reply_tokens else None,
        confidence=CONFIDENCE,
        seed=seed,
        warnings=(*system.warnings, *_doubts(list(loads.values()), load(low))),
    )


def _bisect(
    low: float, high: float, precision_percent: float, beyond: Callable[[float], bool]
) -> tuple[float, float]:
    """Narrow down where shares of the capacity begin to be beyond something."""
    while 100.0 * (high - low) > precision_percent * (1.0 + 1e-9):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return low, high


def closed_loop_replies_per_s(
    system: RoutedSystem,
    B: Sequence[int],
    options: Options,
    seed: int = 0,
    replies: int = REPLIES,
) -> Estimate:
    """Estimate how many replies per second a closed loop of N requests completes.

    Raises
    ------
    UsageError
        If replies are so long that too few end.
    """
    run = Simulator(system, B, replace(options, arrivals_per_s=None), seed)
    sections = Sections.after_warm_up(run, CAPACITY_BATCHES)
    while True:
        sections.lengthen()
        parts, _ = independent(sections.counts, _reply_deviations, merge)
        figures = Figures(parts, run.unit_ms, CONFIDENCE)
        found = figures.rate_per_s("replies")
        sure = found.half_width <= CAPACITY_PERCENT / 100.0 * found.value
        enough = figures.whole.replies[0] >= LONGER * replies
        if sure or enough or sections.batches > LONGEST_CAPACITY:
            break
    if not found.low > 0.0:
        raise UsageError("reply_tokens: replies are too long for enough of them to be simulated")
    return found


def _reply_deviations(parts: Sequence[Counts]) -> FloatArray:
    replies = np.array([float(part.replies[0]) for part in parts])
    elapsed = np.array([float(part.elapsed[0]) for part in parts])
    return np.asarray(replies - replies.sum() / elapsed.sum() * elapsed)


def simulate_load(
    system: RoutedSystem,
    thresholds: Sequence[Sequence[int]],
    objectives: Sequence[Objective],
    options: Options,
    seed: int = 0,
    replies: int = REPLIES,
) -> Load:
    """Simulate one rate (``options.arrivals_per_s``), longer where an objective is unclear."""
    rate = options.arrivals_per_s
    if rate is None:
        raise UsageError("arrivals_per_s: a rate is needed")
    run = Simulator(system, thresholds, options, seed)
    length_ms = replies / rate * 1000.0
    run.run_until(WARM_UP * length_ms)
    sections = Sections(run, length_ms / SECTIONS)
    longest = LONGER * replies

    def first_tokens(parts: Sequence[Counts]) -> FloatArray:
        row = system.M + FIRST_TOKEN
        total = np.array([part.time_sums[row].sum() for part in parts])
        count = np.array([part.times[row].sum() for part in parts])
        return np.asarray(total - total.sum() / max(count.sum(), 1.0) * count)

    done = 0
    while True:
        sections.lengthen()
        done = max(2 * done, replies)
        parts, apart = independent(sections.counts, first_tokens, merge)
        figures = Figures(parts, run.unit_ms, CONFIDENCE)
        measured = tuple(objective.measure(figures, system) for objective in objectives)
        verdicts = {m.verdict for m in measured}
        half = len(sections.lags_ms) // 2
        late = min(sections.lags_ms[half:])
        behind = figures.rate_per_s("replies").high < rate
        growing = late > max(sections.lags_ms[:half]) or (late > 0.0 and behind)
        unclear = Verdict.unclear in verdicts and Verdict.missed not in verdicts
        if not unclear or growing or 2 * done > longest:
            break
    whole, M = figures.whole, system.M
    elapsed = float(whole.elapsed[0])
    return Load(
        rate_per_s=rate,
        load_percent=float("nan"),
        throughput_tok_s=figures.rate_per_s("tokens"),
        replies_per_s=figures.rate_per_s("replies"),
        busy_fractions=tuple((whole.busy / elapsed).tolist()),
        mean_live=float(whole.live[0]) / elapsed,
        request_speed_tok_s=figures.request_speed_tok_s,
        admission_delay_ms=figures.delays(range(M)),
        inter_token_ms=figures.delays([M + INTER_TOKEN]),
        first_token_ms=figures.delays([M + FIRST_TOKEN]),
        reply_ms=figures.delays([M + REPLY]),
        measured=measured,
        stable=not growing,
        fails=growing or Verdict.missed in verdicts,
        apart=apart,
        lag_ms=sections.lags_ms[-1],
        little_gap=figures.little_gap,
        replies=int(whole.replies[0]),
    )


def _vectors(
    system: RoutedSystem,
    thresholds: Sequence[int] | Sequence[Sequence[int]],
    options: Options,
) -> list[tuple[int, ...]]:
    """Return B(1), ..., B(N), each live unless a hold time ends every wait."""
    several = [thresholds] if isinstance(thresholds[0], (int, np.integer)) else list(thresholds)
    vectors = [system.check_thresholds(B) for B in several]  # type: ignore[arg-type]
    rows = [vectors[min(n, len(vectors)) - 1] for n in range(1, system.N + 1)]
    for n, B in enumerate(rows, start=1):
        if options.hold_ms is None and not is_live(B, n):
            raise InfeasibleError(
                f"B = {shown_vector(B)}: with {n} live requests they can wait for ever; give a "
                "hold time (--hold-ms), or a table B(n)"
            )
    return rows


def _unmet(lowest: Load) -> list[str]:
    missed = [m for m in lowest.measured if m.verdict is not Verdict.met]
    missed.sort(key=lambda m: -m.excess_percent)
    return [
        f"not met even at {lowest.rate_per_s:.3g} requests per second, {100.0 * LOWEST:g} % of the "
        f"capacity: {missed[0]}",
        *(f"nor: {m}" for m in missed[1:]),
    ]


def _doubts(loads: Sequence[Load], largest: Load) -> list[str]:
    doubts = []
    below = [load.rate_per_s for load in loads if load.rate_per_s < largest.rate_per_s]
    wrong = [load for load in loads if load.rate_per_s in below and not load.meets]
    if wrong:
        rates = ", ".join(f"{rate:.3g}" for rate in sorted(load.rate_per_s for load in wrong))
        doubts.append(f"objectives are not met at lower rates either: {rates} per second")
    if not largest.apart:
        doubts.append("sections of the run are correlated: intervals may be too narrow")
    return doubts
