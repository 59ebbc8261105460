"""What objectives make of the candidates of one concurrency, and how to say it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trmodel.launch import shown_vector
from trmodel.search.choose import INDISTINGUISHABLE, Candidate
from trmodel.search.objectives import Measured, Verdict

CONFIDENCE = 0.99
"""Of the intervals behind the verdicts."""
SHOWN = 5
"""Candidates of higher throughput that are named with what they miss."""


@dataclass(frozen=True)
class Examined:
    """A candidate and how it stands to each objective; ``batches`` were simulated (0: none)."""

    candidate: Candidate
    measured: tuple[Measured, ...]
    batches: int

    @property
    def meets(self) -> bool:
        """Whether every objective is met for sure."""
        return all(m.verdict is Verdict.met for m in self.measured)

    def misses_at_most(self, label: str) -> bool:
        """Whether every other objective was looked at and is met for sure."""
        return self.batches > 0 and all(
            m.verdict is Verdict.met for m in self.measured if m.objective.label != label
        )

    @property
    def unclear(self) -> bool:
        """Whether the simulation could not tell, and nothing else excludes it."""
        verdicts = {m.verdict for m in self.measured}
        return Verdict.unclear in verdicts and Verdict.missed not in verdicts

    @property
    def excess_percent(self) -> float:
        """The largest relative miss."""
        return max(m.excess_percent for m in self.measured)

    @property
    def missed(self) -> tuple[Measured, ...]:
        """What is not met, worst first."""
        wrong = [m for m in self.measured if m.verdict is not Verdict.met]
        return tuple(sorted(wrong, key=lambda m: -m.excess_percent))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "B": list(self.candidate.B),
            "throughput_tok_s": self.candidate.throughput_tok_s,
            "meets": self.meets,
            "measured": [m.to_dict() for m in self.measured],
            "batches": self.batches,
        }


@dataclass(frozen=True)
class Outcome:
    """What objectives make of one row of a threshold table.

    Attributes
    ----------
    unconstrained
        What tuning chooses without objectives.
    chosen
        The best that meets all; None if nothing does.
    nearest
        The candidate with the least largest miss; where nothing meets all.
    examined
        Every candidate examined, in descending throughput but for the first.
    candidates
        How many there are.
    """

    N: int
    unconstrained: Examined
    chosen: Examined | None
    nearest: Examined | None
    examined: tuple[Examined, ...]
    candidates: int

    @property
    def cost_percent(self) -> float:
        """Throughput that the objectives cost; nan if nothing meets them."""
        if self.chosen is None:
            return float("nan")
        T = self.unconstrained.candidate.throughput_tok_s
        return 100.0 * (1.0 - self.chosen.candidate.throughput_tok_s / T)

    @property
    def prices_percent(self) -> dict[str, float]:
        """Throughput that dropping each objective would add while the others hold.

        By what was examined: all that has more throughput than the chosen thresholds.
        """
        if self.chosen is None:
            return {}
        T = self.chosen.candidate.throughput_tok_s
        prices = {}
        for label in (m.objective.label for m in self.chosen.measured):
            free = [e.candidate.throughput_tok_s for e in self.examined if e.misses_at_most(label)]
            prices[label] = 100.0 * (max([T, *free]) / T - 1.0)
        return prices

    @property
    def binding(self) -> tuple[str, ...]:
        """The objectives that cost throughput, the dearest first.

        Where dropping one alone gains nothing: all that exclude the unconstrained best.
        """
        if self.chosen is self.unconstrained:
            return ()
        prices = self.prices_percent
        dear = [label for label in prices if prices[label] > 100.0 * INDISTINGUISHABLE]
        together = [m.objective.label for m in self.unconstrained.missed]
        return tuple(sorted(dear, key=lambda label: -prices[label]) or together)

    @property
    def tightest(self) -> Measured | None:
        """The objective with the least room at the chosen thresholds."""
        if self.chosen is None:
            return None
        return max(self.chosen.measured, key=lambda m: m.excess_percent)

    @property
    def unclear(self) -> tuple[Examined, ...]:
        """Candidates that count as missing because the simulation could not tell."""
        return tuple(e for e in self.examined if e.unclear)

    @property
    def at_best(self) -> tuple[tuple[Measured, Candidate], ...]:
        """For each objective alone, the examined candidate that comes best off."""
        pairs = []
        for place in range(len(self.unconstrained.measured)):
            best = min(self.examined, key=lambda e: e.measured[place].excess_percent)
            pairs.append((best.measured[place], best.candidate))
        return tuple(pairs)

    @property
    def lines(self) -> list[str]:
        """The outcome in words; the first line begins with the row."""
        if self.chosen is None:
            return self._unmet()
        found, free = self.chosen, self.unconstrained
        lines = [
            f"N = {self.N}: B = {shown_vector(found.candidate.B)} meets all objectives: "
            + _list(found.measured)
        ]
        if found is free:
            tightest = self.tightest
            assert tightest is not None
            lines.append(
                f"none excludes the best throughput; tightest: {tightest.objective.label}, "
                f"{tightest.excess_percent:+.1f} %"
            )
        else:
            lines.append(
                f"binds: {', '.join(map(self._priced, self.binding))}; without objectives B = "
                f"{shown_vector(free.candidate.B)} with {free.candidate.throughput_tok_s:.1f} "
                f"tok/s, where {_list(free.missed)}: costs {self.cost_percent:.1f} % of throughput"
            )
        return lines + self._doubts()

    def _priced(self, label: str) -> str:
        price = self.prices_percent[label]
        alone = len(self.unconstrained.measured) == 1
        return label if alone else f"{label} (dropping it alone adds {price:.1f} %)"

    def _unmet(self) -> list[str]:
        nearest = self.nearest
        assert nearest is not None
        lines = [
            f"N = {self.N}: none of {self.candidates} live vectors meets "
            + ", ".join(str(m.objective) for m in nearest.measured),
            f"nearest: B = {shown_vector(nearest.candidate.B)} with "
            f"{nearest.candidate.throughput_tok_s:.1f} tok/s: " + _list(nearest.measured),
        ]
        if len(nearest.measured) > 1:
            lines += [f"at best alone: {m} at B = {shown_vector(c.B)}" for m, c in self.at_best]
        return lines + self._doubts()

    def _doubts(self) -> list[str]:
        if not self.unclear:
            return []
        named = " ".join(shown_vector(e.candidate.B) for e in self.unclear[:SHOWN])
        more = " ..." if len(self.unclear) > SHOWN else ""
        return [
            f"not sure after {max(e.batches for e in self.unclear):,} batches, so counted as "
            f"missing: {named}{more}"
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        T = self.chosen.candidate.throughput_tok_s if self.chosen else 0.0
        better = [e for e in self.examined if e.candidate.throughput_tok_s > T and not e.meets]
        better.sort(key=lambda e: -e.candidate.throughput_tok_s)
        return {
            "met": self.chosen is not None,
            "chosen": self.chosen and self.chosen.to_dict(),
            "unconstrained": self.unconstrained.to_dict(),
            "nearest": self.nearest and self.nearest.to_dict(),
            "binding": list(self.binding),
            "prices_percent": self.prices_percent,
            "tightest": self.tightest and self.tightest.objective.label,
            "cost_percent": self.cost_percent,
            "excluded": [e.to_dict() for e in better[:SHOWN]],
            "unclear": [list(e.candidate.B) for e in self.unclear],
            "examined": len(self.examined),
            "candidates": self.candidates,
            "confidence": CONFIDENCE,
            "text": self.lines,
        }


def _list(measured: Iterable[Measured]) -> str:
    return ", ".join(map(str, measured))
