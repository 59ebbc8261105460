"""What a simulation found: every figure with its confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trmodel.arrays import FloatArray, IntArray
from trmodel.ledger import CostLedger
from trmodel.simulate.distribution import Distribution
from trmodel.simulate.intervals import Estimate, ratio
from trmodel.simulate.state import FIRST_TOKEN, INTER_TOKEN, REPLY, Counts
from trmodel.system import RoutedSystem


@dataclass(frozen=True)
class Delays:
    """A distribution of times in milliseconds; nan where there were none."""

    mean: Estimate
    p50: Estimate
    p90: Estimate
    p99: Estimate
    count: float


@dataclass(frozen=True)
class SimulatedModel:
    """What one model did; the fields of the exact chain's `ModelMetrics`, and delays."""

    name: str
    busy_fraction: float
    batches_per_s: float
    step_share: float
    mean_batch: float
    batch_distribution: tuple[float, ...]
    mean_waiting: float
    admission_delay_ms: Delays
    ledger: CostLedger


@dataclass(frozen=True)
class Simulation:
    """The answer of a simulation.

    Attributes
    ----------
    B
        Thresholds at n = N.
    confidence
        Of every interval.
    admission_delay_ms
        From joining a model's queue to the start of the batch, over all models.
    inter_token_ms
        Between tokens that one request commits; those of one step are 0 apart.
    first_token_ms, reply_ms
        From the arrival of a request to its first token and to its end; waiting outside included.
    little_gap
        Largest difference, over the models, between the mean number waiting and arrival rate times
        mean delay, in requests: 0 but for what is cut at both ends of the run.
    batches, sections
        Batches completed, and the sections of the run behind the intervals.
    """

    models: tuple[str, ...]
    N: int
    B: tuple[int, ...]
    strategy: str
    throughput_tok_s: Estimate
    request_speed_tok_s: float
    replies_per_s: Estimate
    mean_live: float
    admission_delay_ms: Delays
    inter_token_ms: Delays
    first_token_ms: Delays
    reply_ms: Delays
    per_model: tuple[SimulatedModel, ...]
    ledger: CostLedger
    confidence: float
    little_gap: float
    simulated_ms: float
    batches: int
    sections: int
    seed: int
    grid_ms: float | None
    warnings: tuple[str, ...]
    method: str = "simulated"

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, ready for JSON."""
        document = asdict(self)
        document["ledger"]["total_ms"] = self.ledger.total_ms
        return document


def merge(first: Counts, second: Counts) -> Counts:
    """Add up what two neighbouring sections counted; the timeline is left out."""
    return Counts(*(a + b if len(a) == len(b) else a for a, b in zip(first, second, strict=True)))  # type: ignore[arg-type]


def deviations(sections: Sequence[Counts]) -> FloatArray:
    """How many tokens each section is above or below what its time would give; (n,)."""
    tokens = np.array([float(c.tokens[0]) for c in sections])
    elapsed = np.array([float(c.elapsed[0]) for c in sections])
    return np.asarray(tokens - tokens.sum() / elapsed.sum() * elapsed)


class Figures:
    """Reads figures with intervals off the sections of a run.

    Parameters
    ----------
    sections
        At least two.
    unit_ms
        Length of the time unit in which they were counted.
    """

    def __init__(self, sections: Sequence[Counts], unit_ms: float, confidence: float) -> None:
        self.sections, self.unit_ms, self.confidence = list(sections), unit_ms, confidence
        whole = self.sections[0]
        for section in self.sections[1:]:
            whole = merge(whole, section)
        self.whole = whole
        self.elapsed = np.array([float(c.elapsed[0]) for c in self.sections])

    def rate_per_s(self, name: str) -> Estimate:
        """Estimate how often per second a count grows."""
        counted = np.array([float(getattr(c, name)[0]) for c in self.sections])
        return ratio(counted, self.elapsed, self.confidence).scaled(1000.0 / self.unit_ms)

    def delays(self, rows: Sequence[int]) -> Delays:
        """Estimate mean and quantiles of gathered distributions, put together."""
        parts = [self._distribution(c, rows) for c in self.sections]
        totals = np.array([part.total_ms.sum() for part in parts])
        counts = np.array([part.n for part in parts])
        p50, p90, p99 = (self.quantile_ms(rows, q) for q in (0.5, 0.9, 0.99))
        mean = ratio(totals, counts, self.confidence)
        return Delays(mean, p50, p90, p99, float(counts.sum()))

    def share_above(self, rows: Sequence[int], limit_ms: float) -> Estimate:
        """Estimate the share of gathered times that are above a limit, by their bins."""
        parts = [self._distribution(c, rows) for c in self.sections]
        counts = np.array([part.n for part in parts])
        above = np.array([part.share_above(limit_ms) for part in parts]) * counts
        return ratio(above, counts, self.confidence)

    def quantile_ms(self, rows: Sequence[int], q: float) -> Estimate:
        """Estimate a quantile; see `trmodel.simulate.intervals`."""
        whole = self._distribution(self.whole, rows)
        if not whole.n:
            return Estimate(math.nan, math.nan, math.nan)
        place = whole.place(q)
        times = np.array([c.times[list(rows)].sum(axis=0) for c in self.sections])
        counts = times.sum(axis=1)
        reach = ratio(times[:, place:].sum(axis=1), counts, self.confidence)
        above = ratio(times[:, place + 1 :].sum(axis=1), counts, self.confidence)
        low, high = max(q - reach.half_width, 1e-9), min(q + above.half_width, 1.0)
        return Estimate(whole.quantile_ms(q), whole.quantile_ms(low), whole.quantile_ms(high))

    @property
    def request_speed_tok_s(self) -> Estimate:
        """Tokens per second of one live request: throughput over the mean number live."""
        tokens = np.array([float(c.tokens[0]) for c in self.sections])
        live = np.array([float(c.live[0]) for c in self.sections])
        return ratio(tokens, live, self.confidence).scaled(1000.0 / self.unit_ms)

    def _distribution(self, counts: Counts, rows: Sequence[int]) -> Distribution:
        chosen = list(rows)
        return Distribution(
            counts.times[chosen].sum(axis=0), counts.time_sums[chosen].sum(axis=0) * self.unit_ms
        )

    @property
    def little_gap(self) -> float:
        """See `Simulation.little_gap`."""
        M, time = len(self.whole.busy), float(self.whole.elapsed[0])
        waiting = self.whole.waiting_idle + self.whole.waiting_busy
        return float(np.max(np.abs(waiting - self.whole.time_sums[:M].sum(axis=1))) / time)

    def per_model(self, system: RoutedSystem) -> tuple[SimulatedModel, ...]:
        """Describe every model of the system."""
        whole, time = self.whole, float(self.whole.elapsed[0])
        sizes = np.arange(whole.sizes.shape[1])
        steps = whole.sizes @ sizes
        per_token = self._per_token
        return tuple(
            SimulatedModel(
                name=name,
                busy_fraction=float(whole.busy[i]) / time,
                batches_per_s=float(whole.batches[i]) / time * 1000.0 / self.unit_ms,
                step_share=float(steps[i] / steps.sum()),
                mean_batch=float(steps[i] / max(whole.batches[i], 1)),
                batch_distribution=_shares(whole.sizes[i, 1 : system.max_batch[i] + 1]),
                mean_waiting=float(whole.waiting_idle[i] + whole.waiting_busy[i]) / time,
                admission_delay_ms=self.delays([i]),
                ledger=CostLedger(
                    forward_ms=per_token(whole.running[i]),
                    threshold_wait_ms=per_token(whole.waiting_idle[i]),
                    batch_wait_ms=per_token(whole.waiting_busy[i]),
                ),
            )
            for i, name in enumerate(system.models)
        )

    @property
    def ledger(self) -> CostLedger:
        """Of all models together."""
        whole, per_token = self.whole, self._per_token
        return CostLedger(
            forward_ms=per_token(whole.running.sum()),
            threshold_wait_ms=per_token(whole.waiting_idle.sum()),
            batch_wait_ms=per_token(whole.waiting_busy.sum()),
            handoff_ms=per_token(whole.transit[0]),
        )

    def _per_token(self, time: float) -> float:
        return float(time) * self.unit_ms / float(self.whole.tokens[0])


def _shares(counted: IntArray) -> tuple[float, ...]:
    return tuple((counted / max(counted.sum(), 1)).tolist())


def answer(
    system: RoutedSystem,
    sections: Sequence[Counts],
    unit_ms: float,
    confidence: float,
    **known: Any,
) -> Simulation:
    """Put together the answer of a run from its sections and what is known of it beside them."""
    figures = Figures(sections, unit_ms, confidence)
    M, whole = system.M, figures.whole
    throughput = figures.rate_per_s("tokens")
    mean_live = float(whole.live[0] / whole.elapsed[0])
    return Simulation(
        models=system.models,
        N=system.N,
        throughput_tok_s=throughput,
        request_speed_tok_s=throughput.value / mean_live,
        replies_per_s=figures.rate_per_s("replies"),
        mean_live=mean_live,
        admission_delay_ms=figures.delays(range(M)),
        inter_token_ms=figures.delays([M + INTER_TOKEN]),
        first_token_ms=figures.delays([M + FIRST_TOKEN]),
        reply_ms=figures.delays([M + REPLY]),
        per_model=figures.per_model(system),
        ledger=figures.ledger,
        confidence=confidence,
        little_gap=figures.little_gap,
        simulated_ms=float(whole.elapsed[0]) * unit_ms,
        batches=int(whole.batches.sum()),
        sections=len(sections),
        **known,
    )
