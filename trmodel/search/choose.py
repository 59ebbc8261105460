"""Choosing a threshold vector among evaluated candidates, and saying what the choice is worth.

Candidates whose throughput is within 0.1 % of the best are ones the model cannot tell apart; of
these the smallest is chosen (least sum, then higher throughput), because small thresholds wait
less and stay live at fewer requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trmodel.launch import shown_vector

INDISTINGUISHABLE = 1e-3
"""Relative difference in throughput below which the model cannot tell thresholds apart."""
NOT_WORTH_IT_PERCENT = 1.0
"""A gain over eager launching below this is not worth delayed batching."""
WORSE_PERCENT = 0.05
"""A loss against eager launching below this is shown as none."""
ALTERNATIVES = 5


@dataclass(frozen=True)
class Candidate:
    """One evaluated threshold vector.

    Attributes
    ----------
    method
        How the figure was obtained: ``exact`` or ``simulated``.
    states, solver, residual
        Of an exact chain: its size, stationary solver, and ||pi T - pi||_1.
    throughput_low_tok_s, throughput_high_tok_s
        95 % interval of a simulated figure; None of an exact one, and of candidates that were
        dropped early.
    """

    B: tuple[int, ...]
    throughput_tok_s: float
    states: int | None
    method: str
    solver: str | None
    residual: float | None
    throughput_low_tok_s: float | None = None
    throughput_high_tok_s: float | None = None


@dataclass(frozen=True)
class RunnerUp:
    """The best of the candidates that were not chosen.

    ``loss_percent`` is what it loses against the chosen one; negative, by at most 0.1, where a
    smaller vector was preferred to an indistinguishable one.
    """

    B: tuple[int, ...]
    throughput_tok_s: float
    loss_percent: float


@dataclass(frozen=True)
class Choice:
    """The chosen candidate and its company.

    Attributes
    ----------
    eager
        Eager launching, B = (1, ..., 1): what is gained is gained over it. It is no candidate
        where other thresholds are fixed.
    ranked
        All candidates, best throughput first; those that a race dropped come last.
    tied
        Those the model cannot tell from the best, the chosen one included.
    """

    best: Candidate
    eager: Candidate
    runner_up: RunnerUp | None
    ranked: tuple[Candidate, ...]
    tied: tuple[Candidate, ...]

    @property
    def gain_percent(self) -> float:
        """Throughput gained over eager launching."""
        return 100.0 * (self.best.throughput_tok_s / self.eager.throughput_tok_s - 1.0)


def choose(
    candidates: Sequence[Candidate], eager: Candidate, dropped: Sequence[Candidate] = ()
) -> Choice:
    """Choose among at least one candidate by the rule above; ``dropped`` are not chosen."""
    ranked = sorted(candidates, key=lambda c: (-c.throughput_tok_s, sum(c.B), c.B))
    floor = ranked[0].throughput_tok_s * (1.0 - INDISTINGUISHABLE)
    tied = [c for c in ranked if c.throughput_tok_s >= floor]
    best = min(tied, key=lambda c: (sum(c.B), -c.throughput_tok_s, c.B))
    ranked += sorted(dropped, key=lambda c: (-c.throughput_tok_s, sum(c.B), c.B))
    others = [c for c in ranked if c is not best]
    runner_up = None
    if others:
        T = others[0].throughput_tok_s
        runner_up = RunnerUp(others[0].B, T, 100.0 * (1.0 - T / best.throughput_tok_s))
    return Choice(best, eager, runner_up, tuple(ranked), tuple(tied))


def notes(choice: Choice) -> list[str]:
    """Say in words what a user should know before taking the advice."""
    result = []
    gain = choice.gain_percent
    if gain <= -WORSE_PERCENT:
        result.append(f"worse than eager by {-gain:.1f} %")
    elif len(choice.ranked) > 1 and gain < NOT_WORTH_IT_PERCENT:
        result.append(f"not worth it: gain over eager {gain:.1f} %")
    if len(choice.tied) > 1:
        others = [shown_vector(c.B) for c in choice.tied if c is not choice.best]
        named = " ".join(others[:3]) + (" ..." if len(others) > 3 else "")
        result.append(f"flat: within 0.1 % also {named}")
    return result
