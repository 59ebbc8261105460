"""Throughput against a delay: which thresholds leave nothing to be had for nothing.

One vector *dominates* another if it has at least its throughput and at most its delay, and is
better in one of the two. Those that nothing dominates are the *front*: to have more throughput than
at one of them, a longer delay must be accepted. Delays are simulated, with the same random numbers
for every vector, so that a vector may be dominated by chance: it *ties* with the front if nothing
is better for sure, that is, by more than 0.1 % of throughput or outside of the interval of its
delay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from trmodel.launch import shown_vector
from trmodel.search.choose import INDISTINGUISHABLE, Candidate
from trmodel.search.exact import count_vectors
from trmodel.search.objectives import Objective
from trmodel.search.spread import in_order
from trmodel.search.table import Row
from trmodel.simulate.intervals import Estimate, independent
from trmodel.simulate.result import Figures, deviations, merge
from trmodel.simulate.sections import Sections
from trmodel.simulate.simulator import Simulator
from trmodel.system import RoutedSystem

BATCHES = 200_000
CONFIDENCE = 0.95


class Place(StrEnum):
    """Where a point stands to the front."""

    front = "front"
    tie = "tie"
    dominated = "dominated"


@dataclass(frozen=True)
class Point:
    """One threshold vector with its throughput and its delay."""

    candidate: Candidate
    delay_ms: Estimate
    place: Place = Place.front

    @property
    def throughput_tok_s(self) -> float:
        """As tuning found it."""
        return self.candidate.throughput_tok_s

    def dominates(self, other: Point) -> bool:
        """Say whether this one is at least as good in both and better in one."""
        more, less = self.throughput_tok_s, self.delay_ms.value
        T, delay = other.throughput_tok_s, other.delay_ms.value
        return more >= T and less <= delay and (more > T or less < delay)

    def surely_dominates(self, other: Point) -> bool:
        """Say whether it does, and is better in one of the two beyond doubt."""
        T = other.throughput_tok_s
        return self.dominates(other) and (
            self.throughput_tok_s > T * (1.0 + INDISTINGUISHABLE)
            or self.delay_ms.high < other.delay_ms.low
        )


@dataclass(frozen=True)
class Pareto:
    """Every live threshold vector at one concurrency, in descending throughput.

    Attributes
    ----------
    delay
        The name of the delay: ``p99-itl-ms``.
    chosen, eager
        The vector that tuning chooses, and eager launching.
    """

    models: tuple[str, ...]
    N: int
    delay: str
    points: tuple[Point, ...]
    chosen: tuple[int, ...]
    eager: tuple[int, ...]
    seed: int
    batches: int
    origin: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def front(self) -> list[Point]:
        """What nothing dominates, in descending throughput and so in descending delay."""
        return [point for point in self.points if point.place is Place.front]

    def at(self, B: tuple[int, ...]) -> Point | None:
        """Return the point of a vector."""
        return next((point for point in self.points if point.candidate.B == B), None)

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat record per vector."""
        return [
            {
                "B": shown_vector(point.candidate.B),
                "throughput_tok_s": point.throughput_tok_s,
                "request_speed_tok_s": point.throughput_tok_s / self.N,
                "method": point.candidate.method,
                "delay_ms": point.delay_ms.value,
                "delay_low_ms": point.delay_ms.low,
                "delay_high_ms": point.delay_ms.high,
                "place": point.place.value,
                "chosen": point.candidate.B == self.chosen,
            }
            for point in self.points
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        rows = [
            record | {"B": list(point.candidate.B)}
            for record, point in zip(self.to_records(), self.points, strict=True)
        ]
        return {
            "schema": "trmodel/pareto",
            "schema_version": 1,
            **self.origin,
            "models": list(self.models),
            "N": self.N,
            "delay": self.delay,
            "chosen": list(self.chosen),
            "rows": rows,
            "confidence": CONFIDENCE,
            "batches": self.batches,
            "seed": self.seed,
            "warnings": list(self.warnings),
        }


Progress = Callable[[int, int], None]


def pareto_of_row(
    system: RoutedSystem,
    row: Row,
    models: tuple[str, ...],
    delay: Objective,
    *,
    seed: int = 0,
    batches: int = BATCHES,
    progress: Progress | None = None,
    origin: Mapping[str, Any] | None = None,
    warnings: tuple[str, ...] = (),
) -> Pareto:
    """Simulate the delay of every candidate of a row and find the front.

    Parameters
    ----------
    system
        At the row's N.
    row
        As `tune_system` gives it.
    delay
        See `trmodel.search.objectives.parse_delay`.
    batches
        Simulated for each vector.
    progress
        Called with vectors simulated and vectors in all.
    """

    def simulated(candidate: Candidate) -> Point:
        run = Simulator(system, candidate.B, seed=seed)
        sections = Sections.after_warm_up(run, batches)
        sections.lengthen()
        parts, _ = independent(sections.counts, deviations, merge)
        figures = Figures(parts, run.unit_ms, CONFIDENCE)
        if np.any(system.handoffs_ms):  # which are not in the exact chain
            T = figures.rate_per_s("tokens").value
            candidate = replace(candidate, throughput_tok_s=T, method="simulated")
        return Point(candidate, delay.measure(figures, system).value)

    points: list[Point] = []
    for point in in_order(simulated, ((candidate,) for candidate in row.candidates)):
        points.append(point)
        if progress:
            progress(len(points), len(row.candidates))
    return Pareto(
        models=models,
        N=row.N,
        delay=delay.label,
        points=placed(points),
        chosen=row.B,
        eager=row.choice.eager.B,
        seed=seed,
        batches=batches,
        origin=dict(origin or {}),
        warnings=(*warnings, *_selected(system, row)),
    )


def _selected(system: RoutedSystem, row: Row) -> list[str]:
    """Say that a search by racing has not tried every vector, if so."""
    live = count_vectors(system, row.N, {})
    if row.search == "exhaustive" or len(row.candidates) >= live:
        return []
    return [
        f"only {len(row.candidates)} of {live:,} live vectors are set side by side, those that the "
        "search for throughput tried; others may be on the front"
    ]


def placed(points: list[Point]) -> tuple[Point, ...]:
    """Say of each point where it stands, and sort: throughput down, then delay and sum up."""

    def place(point: Point) -> Place:
        if any(other.surely_dominates(point) for other in points):
            return Place.dominated
        return Place.tie if any(other.dominates(point) for other in points) else Place.front

    def order(point: Point) -> tuple[float, float, int, tuple[int, ...]]:
        B = point.candidate.B
        return -point.throughput_tok_s, point.delay_ms.value, sum(B), B

    found = [Point(point.candidate, point.delay_ms, place(point)) for point in points]
    return tuple(sorted(found, key=order))
