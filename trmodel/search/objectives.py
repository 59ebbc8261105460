"""Objectives of service: limits on delays and on the speed of a request, and whether they are met.

An objective is written ``NAME=LIMIT``:

- ``p99-itl-ms=60``: 99 % of the times between tokens of a request are at most 60 ms; likewise
  ``p50``, ``p90`` and ``mean``, and in place of ``itl`` also ``admission`` (from joining a model's
  queue to the start of the batch), ``ttft`` (from the arrival of a request to its first token) and
  ``reply`` (to its end);
- ``p99-admission-ms:MODEL=40``: the admission delay at one model;
- ``min-request-speed=12``: a request gets at least 12 tokens per second, T / E[live requests]. At
  a fixed concurrency N that is T / N, which is largest where T is.

**Verdict.** Delays come from a simulation, so whether a limit is met is itself an estimate. That
a quantile q is at most x means that a share of at most 1 - q is above x; this share has a proper
confidence interval where the quantile of a lumpy distribution has none. An objective is *met* if
the whole interval is on the right side, *missed* if it is all on the wrong one, else *unclear*.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from trmodel.errors import UsageError
from trmodel.simulate.intervals import Estimate
from trmodel.simulate.result import Figures
from trmodel.simulate.state import FIRST_TOKEN, INTER_TOKEN, REPLY
from trmodel.system import RoutedSystem

STATISTICS = ("mean", "p50", "p90", "p99")
ADMISSION, SPEED = "admission", "min-request-speed"
DELAYS = {"itl": INTER_TOKEN, "ttft": FIRST_TOKEN, "reply": REPLY, ADMISSION: None}
KNOWN = (
    f"p99-itl-ms, p99-admission-ms, p99-admission-ms:MODEL, p99-ttft-ms, p99-reply-ms "
    f"(or {', '.join(STATISTICS[:-1])} for p99), {SPEED}"
)
_DELAY = re.compile(rf"({'|'.join(STATISTICS)})-({'|'.join(DELAYS)})-ms")


class Verdict(StrEnum):
    """Whether an objective is met, as far as the simulation can tell."""

    met = "met"
    missed = "missed"
    unclear = "unclear"


@dataclass(frozen=True)
class Objective:
    """One limit.

    Attributes
    ----------
    name
        Without the model: ``p99-itl-ms``.
    limit
        Milliseconds that must not be exceeded; tokens per second that must be reached.
    model
        Index of the model that an admission delay is about; None for all together.
    label
        As the user wrote it: the name, and the model.
    """

    name: str
    limit: float
    model: int | None
    label: str

    def __str__(self) -> str:
        return f"{self.label} {'>=' if self.name == SPEED else '<='} {self.limit:g}"

    @property
    def statistic(self) -> str:
        """``mean``, ``p50``, ``p90`` or ``p99``."""
        return self.name.partition("-")[0]

    @property
    def delay(self) -> str:
        """``itl``, ``admission``, ``ttft`` or ``reply``."""
        return self.name.split("-")[1]

    @property
    def needs_replies(self) -> bool:
        """Whether it is about replies that begin and end."""
        return self.name != SPEED and self.delay in ("ttft", "reply")

    def measure(self, figures: Figures, system: RoutedSystem) -> Measured:
        """Estimate the figure from a simulation of the system and compare it with the limit."""
        if self.name == SPEED:
            return self.of(figures.request_speed_tok_s)
        rows = self._rows(system)
        if self.statistic == "mean":
            return self.of(figures.delays(rows).mean)
        q = float(self.statistic[1:]) / 100.0
        share = figures.share_above(rows, self.limit)
        return Measured(self, figures.quantile_ms(rows, q), _verdict(share, 1.0 - q))

    def of(self, value: Estimate) -> Measured:
        """Compare a figure with the limit by its own interval."""
        if self.name == SPEED:
            return Measured(self, value, _verdict(value.scaled(-1.0), -self.limit))
        return Measured(self, value, _verdict(value, self.limit))

    def _rows(self, system: RoutedSystem) -> Sequence[int]:
        place = DELAYS[self.delay]
        if place is not None:
            return [system.M + place]
        return range(system.M) if self.model is None else [self.model]


@dataclass(frozen=True)
class Measured:
    """The figure that an objective is about, and the verdict."""

    objective: Objective
    value: Estimate
    verdict: Verdict

    @property
    def excess_percent(self) -> float:
        """How far a delay is above its limit, or a speed's limit above it; negative: room left."""
        value, limit = self.value.value, self.objective.limit
        if self.objective.name == SPEED:
            return 100.0 * (limit / value - 1.0)
        return 100.0 * (value / limit - 1.0)

    def __str__(self) -> str:
        value = self.value
        sure = f" [{value.low:.4g}, {value.high:.4g}]" if _spread(value) else ""
        room = f"{self.verdict}, {self.excess_percent:+.1f} %"
        return f"{self.objective.label} {value.value:.4g}{sure} ({room})"

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as plain values, ready for JSON."""
        return {
            "objective": self.objective.label,
            "limit": self.objective.limit,
            "value": self.value.value,
            "low": min(self.value.low, self.value.high),
            "high": max(self.value.low, self.value.high),
            "verdict": self.verdict.value,
            "excess_percent": self.excess_percent,
        }


def _spread(value: Estimate) -> bool:
    """Whether the ends of an interval can be told apart."""
    return value.half_width > 1e-6 * abs(value.value)


def _verdict(value: Estimate, limit: float) -> Verdict:
    """Say whether a value is at most a limit."""
    low, high = min(value.low, value.high), max(value.low, value.high)
    slack = 1e-9 * abs(limit)
    if high <= limit + slack:
        return Verdict.met
    return Verdict.missed if low > limit + slack else Verdict.unclear


def parse_delay(text: str, system: RoutedSystem, replies_end: bool) -> Objective:
    """Read the name of a delay, such as ``p99-itl-ms``, as an objective that no delay misses.

    Raises
    ------
    UsageError
        Naming what is wrong and what would be right.
    """
    (found,) = parse_objectives([f"{text}=1"], system, replies_end, "delay")
    if found.name == SPEED:
        raise UsageError(f"delay: {SPEED} is no delay; name one such as p99-itl-ms")
    return replace(found, limit=float("inf"))


def parse_objectives(
    texts: Sequence[str], system: RoutedSystem, replies_end: bool, option: str = "slo"
) -> tuple[Objective, ...]:
    """Read objectives as users write them.

    Parameters
    ----------
    texts
        Such as ``p99-itl-ms=60``.
    replies_end
        Whether replies begin and end in what is simulated.
    option
        What errors are about.

    Raises
    ------
    UsageError
        Naming what is wrong and what would be right.
    """
    objectives = [_parse(text, system, option) for text in texts]
    labels = [objective.label for objective in objectives]
    for objective in objectives:
        if labels.count(objective.label) > 1:
            raise UsageError(f"{option}: {objective.label} is given twice")
        if objective.needs_replies and not replies_end:
            raise UsageError(
                f"{option}: {objective.label}: replies never end in this routing; use trmodel "
                "arrivals, or a routing that completes replies"
            )
    return tuple(objectives)


def _parse(text: str, system: RoutedSystem, option: str) -> Objective:
    label, equals, number = (part.strip() for part in text.rpartition("="))
    if not equals:
        raise UsageError(f'{option}: must be like p99-itl-ms=60, got "{text[:60]}"')
    name, colon, model = label.partition(":")
    found = _DELAY.fullmatch(name)
    if not found and name != SPEED:
        raise UsageError(f'{option}: "{name[:60]}" is not an objective; known are {KNOWN}')
    try:
        limit = float(number)
    except ValueError:
        limit = float("nan")
    if not 0.0 < limit < float("inf"):
        raise UsageError(
            f'{option}: {label}: the limit must be a number above 0, got "{number[:40]}"'
        )
    place = None
    if colon:
        if not found or found[2] != ADMISSION:
            raise UsageError(f"{option}: {label}: only an admission delay is about one model")
        reached = [system.models[i] for i in system.reached]
        if model not in reached:
            raise UsageError(f'{option}: {name}: "{model[:60]}" is none of {", ".join(reached)}')
        place = system.models.index(model)
    return Objective(name, limit, place, label)
