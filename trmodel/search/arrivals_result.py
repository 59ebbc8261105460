"""What was found out about open arrivals: figures by rate, and the largest that will do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trmodel.search.objectives import Measured, Objective, Verdict
from trmodel.simulate.intervals import Estimate
from trmodel.simulate.result import Delays


@dataclass(frozen=True)
class Load:
    """What a system does at one rate of arrivals.

    Attributes
    ----------
    load_percent
        The rate in percent of the capacity.
    busy_fractions
        Of each model.
    mean_live
        Requests admitted and not finished; request speed is throughput over these.
    stable
        Below the capacity, and no growing queue outside.
    fails
        Whether it surely does not keep up or some objective is missed for sure.
    apart
        Whether the sections behind the intervals look independent.
    lag_ms
        How long the next request had been waiting outside at the end.
    little_gap
        See `trmodel.simulate.Simulation`.
    """

    rate_per_s: float
    load_percent: float
    throughput_tok_s: Estimate
    replies_per_s: Estimate
    busy_fractions: tuple[float, ...]
    mean_live: float
    request_speed_tok_s: Estimate
    admission_delay_ms: Delays
    inter_token_ms: Delays
    first_token_ms: Delays
    reply_ms: Delays
    measured: tuple[Measured, ...]
    stable: bool
    fails: bool
    apart: bool
    lag_ms: float
    little_gap: float
    replies: int

    @property
    def missed(self) -> tuple[Measured, ...]:
        """Objectives that are not met for sure."""
        return tuple(m for m in self.measured if m.verdict is not Verdict.met)

    @property
    def meets(self) -> bool:
        """Whether the system keeps up and every objective is met for sure."""
        return self.stable and not self.missed

    @property
    def why_not(self) -> str:
        """What is not met, in words; nothing if all is."""
        reasons = [
            m.objective.label + (" ?" if m.verdict is Verdict.unclear else "") for m in self.missed
        ]
        return ", ".join(([] if self.stable else ["does not keep up"]) + reasons)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        plain = asdict(self) | {"measured": [m.to_dict() for m in self.measured]}
        return plain | {"meets": self.meets}

    def to_record(self) -> dict[str, Any]:
        """Return one flat record."""
        return {
            "rate_per_s": self.rate_per_s,
            "load_percent": self.load_percent,
            "throughput_tok_s": self.throughput_tok_s.value,
            "mean_live": self.mean_live,
            "request_speed_tok_s": self.request_speed_tok_s.value,
            "busy_fractions": " ".join(f"{busy:.6g}" for busy in self.busy_fractions),
            "p99_inter_token_ms": self.inter_token_ms.p99.value,
            "mean_first_token_ms": self.first_token_ms.mean.value,
            "p99_first_token_ms": self.first_token_ms.p99.value,
            "mean_reply_ms": self.reply_ms.mean.value,
            "p99_reply_ms": self.reply_ms.p99.value,
            **{m.objective.label: m.value.value for m in self.measured},
            "stable": self.stable,
            "meets": self.meets,
        }


@dataclass(frozen=True)
class Arrivals:
    """The largest rate of arrivals, and what happens on the way to it.

    Attributes
    ----------
    thresholds
        B(1), ..., B(N).
    capacity_per_s
        Replies per second at which the system no longer keeps up.
    largest
        At the largest rate that meets all objectives.
    above
        At the next one up, which does not for sure; None where that is the capacity itself.
    surely_above
        At the lowest simulated rate above which fails for sure; None where there is none.
    loads
        Every rate simulated, in ascending order.
    mean_reply_tokens
        None where the routing ends replies.
    """

    models: tuple[str, ...]
    N: int
    thresholds: tuple[tuple[int, ...], ...]
    objectives: tuple[Objective, ...]
    capacity_per_s: Estimate
    largest: Load
    above: Load | None
    surely_above: Load | None
    loads: tuple[Load, ...]
    hold_ms: float | None
    mean_reply_tokens: float | None
    confidence: float
    seed: int
    origin: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def binding(self) -> tuple[str, ...]:
        """What is not met above the largest rate."""
        if self.above is None:
            return ("capacity",)
        capacity = () if self.above.stable else ("capacity",)
        return (*capacity, *(m.objective.label for m in self.above.missed))

    @property
    def bracket_per_s(self) -> tuple[float, float]:
        """A rate at which all is met for sure, and one at which it is not for sure."""
        return self.largest.rate_per_s, self._rate(self.above)

    @property
    def surely_too_much_per_s(self) -> float:
        """The lowest simulated rate that fails for sure, or the capacity."""
        return self._rate(self.surely_above)

    def _rate(self, load: Load | None) -> float:
        return self.capacity_per_s.value if load is None else load.rate_per_s

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "schema": "trmodel/arrivals",
            "schema_version": 1,
            **self.origin,
            "models": list(self.models),
            "N": self.N,
            "thresholds": [list(B) for B in self.thresholds],
            "hold_ms": self.hold_ms,
            "mean_reply_tokens": self.mean_reply_tokens,
            "objectives": [str(objective) for objective in self.objectives],
            "capacity_per_s": asdict(self.capacity_per_s),
            "largest_rate_per_s": self.largest.rate_per_s,
            "bracket_per_s": list(self.bracket_per_s),
            "surely_too_much_per_s": self.surely_too_much_per_s,
            "binding": list(self.binding),
            "rows": [load.to_dict() for load in self.loads],
            "confidence": self.confidence,
            "method": "simulated",
            "seed": self.seed,
            "warnings": list(self.warnings),
        }
