"""The joint law of fitted parameters: from a fit, or from what a profile records of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trmodel.arrays import FloatArray
from trmodel.calibrate.problem import Parameter, in_profile
from trmodel.errors import UsageError
from trmodel.profile import FitRecord, Profile

SAME = 1e-3
"""How far a profile's number may be from the recorded estimate, which it rounds."""


@dataclass(frozen=True, eq=False)
class FittedLaw:
    """A multivariate t law of P parameters about their estimates, within bounds.

    Attributes
    ----------
    parameters, theta
        What was fitted, and the estimates (P,).
    covariance
        (P, P): zero for parameters that were kept; None if it is not known.
    degrees
        Of freedom; infinite for a normal law.
    bounds
        (low, high) of each parameter.
    source
        What was fitted to.
    """

    parameters: tuple[Parameter, ...]
    theta: FloatArray
    covariance: FloatArray | None
    degrees: float
    bounds: tuple[tuple[float, float], ...]
    source: str

    @property
    def models(self) -> set[str]:
        """Names of the models."""
        return {parameter.model for parameter in self.parameters}

    def draws(self, samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw parameters; see `trmodel.calibrate.Fit.draws`.

        Raises
        ------
        UsageError
            If the covariance is not known.
        """
        if self.covariance is None:
            raise UsageError(
                "fit: has as many parameters as measurements, so that their uncertainty is not "
                "known; state noise_percent in the measurements or give spreads"
            )
        lower, upper = np.array(self.bounds).T
        theta = self.theta
        kept = np.empty((0, len(theta)))
        for _ in range(200):
            # Rounding may leave variances of -1e-20, which are no reason to warn.
            normal = rng.multivariate_normal(
                np.zeros(len(theta)), self.covariance, samples, check_valid="ignore"
            )
            stretch = np.ones(samples)
            if np.isfinite(self.degrees):
                stretch = np.sqrt(self.degrees / rng.chisquare(self.degrees, samples))
            drawn = theta + normal * stretch[:, None]
            # Refused as a whole, not cut entry by entry: cutting would undo the correlations.
            inside = np.all((drawn >= lower) & (drawn <= upper), axis=1)
            kept = np.concatenate([kept, drawn[inside]])
            if len(kept) >= samples:
                return kept[:samples]
        return np.concatenate([kept, drawn.clip(lower, upper)])[:samples]


def recorded_law(record: FitRecord) -> FittedLaw:
    """Return the law that a profile records of the fit that it comes from."""
    return FittedLaw(
        parameters=tuple(Parameter(each.model, each.beside) for each in record.parameters),
        theta=np.array([each.value for each in record.parameters]),
        covariance=None if record.covariance is None else np.array(record.covariance),
        degrees=np.inf if record.degrees is None else record.degrees,
        bounds=tuple(each.bounds for each in record.parameters),
        source=record.source,
    )


def law_of_profile(profile: Profile, models: Sequence[str]) -> tuple[FittedLaw | None, str]:
    """Return the law of a profile's overheads and slow-downs, or why there is none.

    Parameters
    ----------
    profile
        With or without a record of a fit.
    models
        Those of the system that is in question.

    Returns
    -------
    The law, or None with the reason in words: no record, one of other models, without a covariance,
    or of other values than the profile has now.
    """
    if profile.fit is None:
        return None, "the profile records no fit"
    law = recorded_law(profile.fit)
    if law.models != set(models):
        return None, "the profile's fit is of other models"
    if law.covariance is None:
        return None, "the profile's fit does not know how sure it is"
    for parameter, value in zip(law.parameters, law.theta.tolist(), strict=True):
        now = in_profile(profile, parameter)
        if abs(now - value) > SAME:
            return None, f"the profile's {parameter.name} is {now:g}, but {value:.4g} in its fit"
    return law, ""
