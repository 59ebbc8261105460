"""``trmodel tune --uncertainty``: how sure the throughput and the choice of each row are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trmodel.calibrate.law import law_of_profile
from trmodel.calibrate.uncertainty import (
    MAX_CANDIDATES,
    NEAR_PERCENT,
    CandidateSpread,
    Uncertainty,
    uncertainty,
)
from trmodel.cli.output import Grid
from trmodel.errors import LimitError
from trmodel.launch import shown_vector
from trmodel.profile import Profile
from trmodel.search import Row, ThresholdTable
from trmodel.system import RoutedSystem

MOST_ROWS = 4
"""With more rows only the last is examined: samples of it cost more than all the others."""


def examined_rows(table: ThresholdTable) -> list[Row]:
    """Return the rows asked for if they are few, else the last one; of those that are exact."""
    rows = [row for row in table.wanted_rows if row.choice.best.method == "exact"]
    return rows if len(rows) <= MOST_ROWS else rows[-1:]


@dataclass(frozen=True)
class Asked:
    """What ``--uncertainty`` is to do; a spread that is None is the default."""

    p_percent: float | None
    latency_percent: float | None
    slow_down_percent: float | None
    samples: int
    seed: int
    deadline: float | None


def uncertain_rows(
    system: RoutedSystem,
    rows: Sequence[Row],
    profile: Profile,
    asked: Asked,
    progress: Callable[[int, int], None] | None,
) -> tuple[dict[int, Uncertainty], str, str | None]:
    """Examine rows, by N; each with the vectors that come within 3 % of its best, at most 12.

    Returns
    -------
    What was found, where its spreads come from, and why it ended early or None.
    """
    law, lacking = law_of_profile(profile, system.models)
    origin = (
        f"overheads and slow-downs are drawn from the profile's fit to {law.source}"
        if law is not None
        else f"spreads are stated, not measured: {lacking}"
    )
    found: dict[int, Uncertainty] = {}
    for row in rows:

        def report(done: int, total: int, before: int = len(found)) -> None:
            if progress:
                progress(before * total + done, len(rows) * total)

        floor = row.candidates[0].throughput_tok_s * (1.0 - NEAR_PERCENT / 100.0)
        near = [c.B for c in row.candidates if c.throughput_tok_s >= floor]
        try:
            found[row.N] = uncertainty(
                system.with_N(row.N),
                near[:MAX_CANDIDATES],
                p_percent=asked.p_percent,
                latency_percent=asked.latency_percent,
                slow_down_percent=asked.slow_down_percent,
                fit=law,
                samples=asked.samples,
                seed=asked.seed,
                deadline=asked.deadline,
                progress=report,
            )
        except LimitError as error:
            return found, origin, f"{error} (N = {row.N})"
        if stopped := found[row.N].stopped:
            return found, origin, f"{stopped} (N = {row.N})"
    return found, origin, None


def uncertainty_blocks(found: Mapping[int, Uncertainty]) -> list[str | Grid]:
    """Show what was found, a grid for each N."""
    blocks: list[str | Grid] = []
    for N, result in found.items():
        blocks += [
            f"N = {N}: {result.samples} samples (seed {result.seed}) of {result.spreads}",
            Grid(
                ("B", "best", "mean tok/s", "5 % to 95 %", "gain %", "loses %"),
                [_cells(each) for each in result.candidates],
                ("B",),
            ),
        ]
    blocks.append(
        f"best: share of the samples in which B is the best of these, which come within "
        f"{NEAR_PERCENT:g} % (at most {MAX_CANDIDATES}, and eager); gain: 5 % to 95 %;\n"
        "loses: mean throughput lost against the best B of each sample"
    )
    return blocks


def _cells(each: CandidateSpread) -> tuple[str, ...]:
    return (
        shown_vector(each.B),
        f"{each.probability_best:.0%}",
        f"{each.mean_tok_s:.1f}",
        f"{each.low_tok_s:.1f} to {each.high_tok_s:.1f}",
        f"{each.gain_low_percent:+.1f} to {each.gain_high_percent:+.1f}",
        f"{each.regret_percent:.2f}",
    )


def uncertainty_in_words(result: Uncertainty) -> str:
    """Say the interval and the probability of each candidate in a line, for CSV."""
    return "; ".join(
        f"{shown_vector(each.B)}: {each.probability_best:.0%} best, "
        f"{each.low_tok_s:.1f} to {each.high_tok_s:.1f} tok/s"
        for each in result.candidates
    )
