"""What comes of comparing measured points with predictions: numbers, rows, a document."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from trmodel.profile.context import Context
    from trmodel.report import Measurement


@dataclass(frozen=True)
class ValidatedPoint:
    """One measured point and its predictions, in tokens per second.

    Attributes
    ----------
    predicted_tok_s
        At the routing frequencies that the run had.
    nominal_tok_s
        At the routing's own p_ij.
    own_tok_s
        At the realised frequencies, from the step and handoff latencies of this very run: what
        differs from ``predicted_tok_s`` is the machine's doing since the profile was measured.
    interval_percent
        Half width of the measurement's confidence interval.
    context
        Of the predictions, in tokens; None for the profile's.
    """

    N: int
    B: tuple[int, ...]
    measured_tok_s: float
    interval_percent: float
    predicted_tok_s: float
    nominal_tok_s: float
    own_tok_s: float
    method: str
    context: Context | None

    @property
    def error_percent(self) -> float:
        """Of the prediction; above 0: too high."""
        return 100.0 * (self.predicted_tok_s / self.measured_tok_s - 1.0)

    @property
    def nominal_error_percent(self) -> float:
        """Of the prediction that knows only the nominal routing."""
        return 100.0 * (self.nominal_tok_s / self.measured_tok_s - 1.0)

    @property
    def own_error_percent(self) -> float:
        """Of the prediction from the run's own latencies: that of the model alone."""
        return 100.0 * (self.own_tok_s / self.measured_tok_s - 1.0)


@dataclass(frozen=True)
class Ranking:
    """How the thresholds of one N compare, measured and predicted.

    Several points of the same thresholds count with their mean.

    Attributes
    ----------
    kendall_tau
        1 if both order them alike, -1 if the other way round.
    best_measured, best_predicted
        The best thresholds by each.
    also_predicted
        Larger ones that the prediction cannot tell from its best.
    regret_percent
        Throughput lost by using the predicted best.
    """

    N: int
    kendall_tau: float
    best_measured: tuple[int, ...]
    best_predicted: tuple[int, ...]
    also_predicted: tuple[tuple[int, ...], ...]
    regret_percent: float


@dataclass(frozen=True)
class Validation:
    """All points in order, and for every N with several thresholds the ranking."""

    points: tuple[ValidatedPoint, ...]
    rankings: tuple[Ranking, ...]

    @property
    def mean_error_percent(self) -> float:
        """Mean of the absolute errors."""
        return float(np.mean([abs(point.error_percent) for point in self.points]))

    @property
    def mean_own_error_percent(self) -> float:
        """Mean of the absolute errors from the runs' own latencies."""
        return float(np.mean([abs(point.own_error_percent) for point in self.points]))

    @property
    def max_error_percent(self) -> float:
        """Largest absolute error."""
        return max(abs(point.error_percent) for point in self.points)

    @property
    def max_regret_percent(self) -> float | None:
        """Largest regret, if an N has several thresholds."""
        return max((ranking.regret_percent for ranking in self.rankings), default=None)

    def measurements(self) -> list[Measurement]:
        """Return the points for `trmodel.report.comparison_figure`."""
        from trmodel.report import Measurement

        return [
            Measurement(
                point.N,
                point.B,
                point.measured_tok_s,
                {point.method: point.predicted_tok_s, "own steps": point.own_tok_s},
            )
            for point in self.points
        ]

    def point_rows(self, decimals: int = 1) -> list[dict[str, Any]]:
        """Return the points as rows of a table, by heading; errors with so many decimals."""
        return [
            {
                "N": point.N,
                "B": point.B,
                "measured": f"{point.measured_tok_s:.1f}",
                "± %": f"{point.interval_percent:.1f}",
                "predicted": f"{point.predicted_tok_s:.1f}",
                "error %": f"{point.error_percent:+.{decimals}f}",
                "nominal %": f"{point.nominal_error_percent:+.{decimals}f}",
                "own %": f"{point.own_error_percent:+.{decimals}f}",
            }
            for point in self.points
        ]

    def ranking_rows(self, decimals: int = 1) -> list[dict[str, Any]]:
        """Return the rankings as rows of a table, by heading; regrets with so many decimals."""
        return [
            {
                "N": ranking.N,
                "best measured B": ranking.best_measured,
                "best predicted B": ranking.best_predicted,
                "as good by the prediction": " ".join(map(str, ranking.also_predicted)) or "none",
                "Kendall tau": f"{ranking.kendall_tau:.2f}",
                "regret %": f"{ranking.regret_percent:.{decimals}f}",
            }
            for ranking in self.rankings
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "schema": "trmodel/validation",
            "schema_version": 1,
            "mean_error_percent": self.mean_error_percent,
            "max_error_percent": self.max_error_percent,
            "max_regret_percent": self.max_regret_percent,
            "points": [
                {
                    **asdict(point),
                    "error_percent": point.error_percent,
                    "nominal_error_percent": point.nominal_error_percent,
                    "own_error_percent": point.own_error_percent,
                }
                for point in self.points
            ],
            "rankings": [asdict(ranking) for ranking in self.rankings],
        }
