"""The result of a calibration: estimates, errors, what would be picked, and the fitted profile."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trmodel._version import __version__
from trmodel.arrays import FloatArray
from trmodel.calibrate.intervals import Estimate, Spread
from trmodel.calibrate.law import FittedLaw
from trmodel.calibrate.measurements import LoadedMeasurements, Placement
from trmodel.profile import LoadedProfile, Profile

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class FittedPoint:
    """One measurement beside the fitted model.

    Attributes
    ----------
    fitted_tok_s, error_percent
        By the fit to all measurements; above 0: the model is too high.
    left_out_error_percent
        By the fit to the others; None if they are too few.
    limit_tok_s
        The throughput within which the bounds of the parameters keep the model, if the measured
        one is beyond it; else None.
    """

    N: int
    B: tuple[int, ...]
    placement: Placement
    measured_tok_s: float
    fitted_tok_s: float
    error_percent: float
    left_out_error_percent: float | None
    limit_tok_s: float | None = None


@dataclass(frozen=True)
class Pick:
    """What the fitted model picks among the thresholds measured at one concurrency.

    Attributes
    ----------
    picked
        Best by the model; within 1 % of the best the smallest thresholds.
    best
        Best by the measurements.
    regret_percent
        Measured throughput lost by taking the pick.
    """

    N: int
    placement: Placement
    picked: tuple[int, ...]
    best: tuple[int, ...]
    picked_tok_s: float
    best_tok_s: float
    regret_percent: float

    @property
    def differs(self) -> bool:
        """Whether the pick is not the measured optimum."""
        return self.picked != self.best


@dataclass(frozen=True, eq=False)
class Fit:
    """Overheads and slow-downs that make the exact chain agree with measured throughputs.

    Attributes
    ----------
    models
        In the order of the routing, which is that of every B here.
    estimates
        One per parameter: an overhead per model, two slow-downs per pair of models.
    spread
        Joint law of the estimates, see `draws`.
    context_tokens
        Context at which latencies were read: tokens, or [low, high]; None if none is known.
    starts, agreeing
        How many starts there were and how many found an optimum as good as the best.
    """

    profile: LoadedProfile
    measurements: LoadedMeasurements
    models: tuple[str, ...]
    estimates: tuple[Estimate, ...]
    points: tuple[FittedPoint, ...]
    picks: tuple[Pick, ...]
    spread: Spread
    bounds: tuple[tuple[float, float], ...]
    context_tokens: int | list[int] | None
    grid_ms: float
    starts: int
    agreeing: int

    @property
    def mean_error_percent(self) -> float:
        """Mean absolute error over the measurements."""
        return float(np.mean([abs(point.error_percent) for point in self.points]))

    @property
    def max_error_percent(self) -> float:
        """Largest absolute error."""
        return float(np.max([abs(point.error_percent) for point in self.points]))

    @property
    def left_out_mean_error_percent(self) -> float | None:
        """Mean absolute error on measurements left out of the fit; None if any is missing."""
        errors = [point.left_out_error_percent for point in self.points]
        known = [abs(error) for error in errors if error is not None]
        return float(np.mean(known)) if len(known) == len(errors) else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the fit unfit for use: points out of reach, errors far above the noise."""
        from trmodel.calibrate.quality import fit_warnings

        return fit_warnings(self)

    @property
    def theta(self) -> FloatArray:
        """(P,): the estimates in order."""
        return np.array([estimate.value for estimate in self.estimates])

    @property
    def law(self) -> FittedLaw:
        """Joint law of the estimates."""
        return FittedLaw(
            parameters=tuple(estimate.parameter for estimate in self.estimates),
            theta=self.theta,
            covariance=self.spread.covariance,
            degrees=self.spread.degrees,
            bounds=self.bounds,
            source=self.measurements.document.name,
        )

    def draws(self, samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw parameters from the joint law of the estimates, a multivariate t within bounds.

        Directions that the measurements do not determine stay at the estimate.

        Returns
        -------
        (samples, P): in the order of ``estimates``.

        Raises
        ------
        UsageError
            If the measurements are too few to say how uncertain the estimates are.
        """
        return self.law.draws(samples, rng)

    def to_profile(self, name: str) -> Profile:
        """Return the profile with the fitted overheads and slow-downs, each saying from what.

        What no measurement depends on stays as it was.

        Raises
        ------
        UsageError
            If an overhead is negative: a profile's tables must then be mended, not its overhead.
        """
        from trmodel.calibrate.export import fitted_profile

        return fitted_profile(self, name)

    def summary(self) -> str:
        """Return the fit as a text of several lines."""
        from trmodel.calibrate.text import fit_text

        return fit_text(self)

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat record per measurement, with a field ``B_<model>`` per threshold."""
        records = []
        for point in self.points:
            record = asdict(point)
            B = record.pop("B")
            names = [f"B_{name}" for name in self.models]
            records.append({"N": point.N, **dict(zip(names, B, strict=True)), **record})
        return records

    def to_pandas(self) -> pd.DataFrame:
        """Return the records as a data frame, one row per measurement."""
        import pandas as pd

        return pd.DataFrame.from_records(self.to_records())

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as plain values, ready for JSON."""
        from trmodel.calibrate.quality import reduced_chi_square

        sigma = self.spread.sigma
        return {
            "schema": "trmodel/fit",
            "schema_version": 1,
            "trmodel_version": __version__,
            "profile": {
                "name": self.profile.profile.name,
                "origin": self.profile.origin,
                "sha256": self.profile.sha256,
            },
            "measurements": {
                "name": self.measurements.document.name,
                "origin": self.measurements.origin,
                "source": self.measurements.document.source,
            },
            "models": list(self.models),
            "parameters": [
                {
                    "name": each.parameter.name,
                    "model": each.parameter.model,
                    "beside": each.parameter.beside,
                    "unit": each.parameter.unit,
                    "estimate": each.value,
                    "interval": None if each.interval is None else list(each.interval),
                    "status": each.status,
                    "remark": each.remark,
                }
                for each in self.estimates
            ],
            "warnings": list(self.warnings),
            "reduced_chi_square": reduced_chi_square(self),
            "residual_percent": None if sigma is None else 100.0 * sigma,
            "mean_error_percent": self.mean_error_percent,
            "max_error_percent": self.max_error_percent,
            "left_out_mean_error_percent": self.left_out_mean_error_percent,
            "points": [asdict(point) | {"B": list(point.B)} for point in self.points],
            "picks": [
                asdict(pick)
                | {"picked": list(pick.picked), "best": list(pick.best), "differs": pick.differs}
                for pick in self.picks
            ],
            "context_tokens": self.context_tokens,
            "grid_ms": self.grid_ms,
            "starts": self.starts,
            "agreeing_starts": self.agreeing,
        }
