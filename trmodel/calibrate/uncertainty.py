"""From the uncertainty of a system's numbers to that of throughput and of the best thresholds."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from trmodel.arrays import FloatArray
from trmodel.calibrate.law import FittedLaw
from trmodel.calibrate.result import Fit
from trmodel.calibrate.spreads import (
    LATENCY_PERCENT,
    P_PERCENT,
    SLOW_DOWN_PERCENT,
    Spreads,
    drawn_systems,
)
from trmodel.errors import LimitError, UsageError
from trmodel.launch import require_live
from trmodel.markov import Limits, solve_chain
from trmodel.markov.transitions import split_table
from trmodel.search import feasible_thresholds
from trmodel.search.tune import Progress
from trmodel.system import RoutedSystem

NEAR_PERCENT = 3.0
MAX_CANDIDATES = 12
MAX_SAMPLES = 10_000
"""Percentiles are as good with fewer; each is a system in memory and many chains."""
LOW, HIGH = 5.0, 95.0


@dataclass(frozen=True)
class CandidateSpread:
    """What the samples say of one threshold vector.

    Attributes
    ----------
    nominal_tok_s
        Throughput of the system as given.
    mean_tok_s, low_tok_s, high_tok_s
        Mean, 5th and 95th percentile over the samples.
    gain_low_percent, gain_high_percent
        5th and 95th percentile of the gain over eager launching, in the same samples.
    probability_best
        Part of the samples in which it is the best of the candidates.
    regret_percent
        Mean throughput lost against the best candidate of each sample.
    """

    B: tuple[int, ...]
    nominal_tok_s: float
    mean_tok_s: float
    low_tok_s: float
    high_tok_s: float
    gain_low_percent: float
    gain_high_percent: float
    probability_best: float
    regret_percent: float


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Intervals of throughput and probabilities of being best, by the same samples for all.

    Attributes
    ----------
    candidates
        Most probably best first.
    rule
        How the candidates were chosen.
    throughput_tok_s
        (samples, candidates): what all of it is computed from.
    stopped
        Why there are fewer samples than were asked for, or None.
    """

    models: tuple[str, ...]
    N: int
    candidates: tuple[CandidateSpread, ...]
    rule: str
    spreads: Spreads
    samples: int
    seed: int
    throughput_tok_s: FloatArray
    stopped: str | None = None

    def of(self, B: Sequence[int]) -> CandidateSpread:
        """Return what the samples say of one candidate.

        Raises
        ------
        UsageError
            If it is none.
        """
        for candidate in self.candidates:
            if candidate.B == tuple(B):
                return candidate
        raise UsageError(f"B: {tuple(B)} is not among the candidates")

    def summary(self) -> str:
        """Return the result as a text of several lines."""
        from trmodel.calibrate.text import uncertainty_text

        return uncertainty_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, ready for JSON."""
        return {
            "schema": "trmodel/uncertainty",
            "schema_version": 1,
            "models": list(self.models),
            "N": self.N,
            "samples": self.samples,
            "seed": self.seed,
            "stopped": self.stopped,
            "spreads": str(self.spreads),
            "rule": self.rule,
            "candidates": [asdict(each) | {"B": list(each.B)} for each in self.candidates],
        }


def uncertainty(
    system: RoutedSystem,
    candidates: Sequence[Sequence[int]] | None = None,
    *,
    p_percent: float | None = None,
    p_interval: tuple[float, float] | None = None,
    latency_percent: float | None = None,
    slow_down_percent: float | None = None,
    fit: Fit | FittedLaw | None = None,
    samples: int = 200,
    seed: int = 0,
    limits: Limits = Limits(),
    deadline: float | None = None,
    progress: Progress | None = None,
) -> Uncertainty:
    """Draw systems about a nominal one and compare thresholds on each of them.

    Every candidate is solved by the exact chain on the same drawn systems (common random numbers),
    so that differences between candidates are not blurred by the draws.

    Parameters
    ----------
    system
        The nominal system, at the concurrency in question.
    candidates
        Threshold vectors; None for those within 3 % of the best at the nominal system, at most 12.
        Eager launching is always added, for the gain.
    p_percent
        Relative standard deviation of each probability of handing over; None for 10.
    p_interval
        Instead, a 95 % interval of the probability that the first of two models hands over.
    latency_percent, slow_down_percent
        Relative standard deviations of a factor on all latencies of a model and of each slow-down;
        None for 3 and 10, or for 0 with a fit.
    fit
        Draw overheads and slow-downs jointly from this fit, or from what a profile records of one
        (`law_of_profile`); ``system`` is then one of its profile.
    samples, seed
        Number of drawn systems, from 2 to 10,000, and of the random stream.
    deadline
        When to stop with the samples there are, as `time.monotonic` tells it.
    progress
        Called with drawn systems solved and in all.

    Raises
    ------
    UsageError, InfeasibleError
        If an argument makes no sense or a candidate can deadlock.
    LimitError
        If a chain is too large, or the deadline passes before there are two samples.
    """
    if not 2 <= samples <= MAX_SAMPLES:
        raise UsageError(f"samples: from 2 to {MAX_SAMPLES} can be drawn, got {samples}")
    law = fit.law if isinstance(fit, Fit) else fit
    given = {
        "p_percent": p_percent,
        "latency_percent": latency_percent,
        "slow_down_percent": slow_down_percent,
    }
    spreads = Spreads(
        p_percent=P_PERCENT if p_percent is None else p_percent,
        p_interval=p_interval,
        latency_percent=_default(latency_percent, LATENCY_PERCENT, law),
        slow_down_percent=_default(slow_down_percent, SLOW_DOWN_PERCENT, law),
        fit=law,
        defaults=frozenset(name for name, value in given.items() if value is None),
    )
    drawn = drawn_systems(system, spreads, samples, seed)
    eager = (1,) * system.M
    with ThreadPoolExecutor(os.cpu_count()) as pool, threadpool_limits(1, user_api="blas"):
        if candidates is None:
            every = feasible_thresholds(system)
            one = pool.map(lambda B: solve_chain(system, B, limits=limits).throughput_tok_s, every)
            nominal = dict(zip(every, one, strict=True))
            compared, rule = _near_best(nominal)
        else:
            compared = [system.check_thresholds(B) for B in candidates]
            for B in compared:
                require_live(B, system.N)
            rule = "as given"
        compared = list(dict.fromkeys([*compared, eager]))

        def solve(one: RoutedSystem) -> list[float] | None:
            if deadline is not None and time.monotonic() > deadline:
                return None
            splits = split_table(one.restricted())
            return [
                solve_chain(one, B, limits=limits, splits=splits).throughput_tok_s for B in compared
            ]

        at_nominal = solve(system)
        rows: list[list[float]] = []
        for row in pool.map(solve, drawn):
            if row is None:
                break
            rows.append(row)
            if progress:
                progress(len(rows), samples)
    if at_nominal is None or len(rows) < 2:
        raise LimitError("the time limit was reached before two samples of the uncertainty")
    T = np.array(rows)
    few = f"the time limit was reached after {len(rows)} of {samples} samples"
    found = [_spread_of(T, c, B, at_nominal[c], eager_column=compared.index(eager))
             for c, B in enumerate(compared)]  # fmt: skip
    order = sorted(range(len(found)), key=lambda c: (-found[c].probability_best, sum(found[c].B)))
    return Uncertainty(
        models=system.models,
        N=system.N,
        candidates=tuple(found[c] for c in order),
        rule=rule,
        spreads=spreads,
        samples=len(rows),
        seed=seed,
        throughput_tok_s=T[:, order],
        stopped=few if len(rows) < samples else None,
    )


def _default(given: float | None, value: float, fit: FittedLaw | None) -> float:
    if given is not None:
        return given
    return value if fit is None else 0.0


def _near_best(nominal: dict[tuple[int, ...], float]) -> tuple[list[tuple[int, ...]], str]:
    floor = max(nominal.values()) * (1.0 - NEAR_PERCENT / 100.0)
    near = sorted((B for B in nominal if nominal[B] >= floor), key=lambda B: -nominal[B])
    rule = f"within {NEAR_PERCENT:g} % of the best at the nominal system"
    if len(near) > MAX_CANDIDATES:
        rule += f", the best {MAX_CANDIDATES} of {len(near)}"
    return near[:MAX_CANDIDATES], rule


def _spread_of(
    T: FloatArray, column: int, B: tuple[int, ...], nominal: float, eager_column: int
) -> CandidateSpread:
    own = T[:, column]
    best = T.max(axis=1)
    low, high = np.percentile(own, [LOW, HIGH])
    gain = np.percentile(100.0 * (own / T[:, eager_column] - 1.0), [LOW, HIGH])
    return CandidateSpread(
        B=B,
        nominal_tok_s=nominal,
        mean_tok_s=float(own.mean()),
        low_tok_s=float(low),
        high_tok_s=float(high),
        gain_low_percent=float(gain[0]),
        gain_high_percent=float(gain[1]),
        probability_best=float(np.mean(T.argmax(axis=1) == column)),
        regret_percent=float(100.0 * np.mean(1.0 - own / best)),
    )
