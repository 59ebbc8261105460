"""Write a fit into a profile."""

from __future__ import annotations

import numpy as np

from trmodel.calibrate.intervals import Estimate
from trmodel.calibrate.result import Fit
from trmodel.errors import UsageError
from trmodel.profile import (
    FitRecord,
    FittedParameter,
    ModelProfile,
    Overhead,
    Profile,
    Provenance,
    SlowDown,
)


def fitted_profile(fit: Fit, name: str) -> Profile:
    """Return the profile of a fit; see `Fit.to_profile`."""
    profile = fit.profile.profile
    fitted = {
        (e.parameter.model, e.parameter.beside): e for e in fit.estimates if e.status != "kept"
    }
    negative = [
        e.parameter.model for (_, beside), e in fitted.items() if beside is None and e.value < 0
    ]
    if negative:
        raise UsageError(
            f"overhead of {', '.join(negative)}: is negative, so the decode table is too slow for "
            "the measurements; correct the table, or fit without negative overheads"
        )

    def with_overhead(model: ModelProfile) -> ModelProfile:
        if (model.name, None) not in fitted:
            return model
        estimate = fitted[model.name, None]
        overhead = Overhead(
            value_ms=_rounded(estimate.value), provenance=_provenance(fit, [estimate])
        )
        return model.model_copy(update={"overhead": overhead})

    slow_downs = {frozenset(entry.models): entry for entry in profile.slow_downs}
    for i, a in enumerate(fit.models):
        for b in fit.models[i + 1 :]:
            both = [fitted[pair] for pair in ((a, b), (b, a)) if pair in fitted]
            if not both:
                continue
            value = {e.parameter.model: e.value for e in fit.estimates if e.parameter.beside in
                     (a, b) and e.parameter.model in (a, b)}  # fmt: skip
            slow_downs[frozenset((a, b))] = SlowDown(
                models=(a, b),
                factors=(_rounded(value[a]), _rounded(value[b])),
                provenance=_provenance(fit, both),
            )
    description = f"{profile.description} Overheads and slow-downs fitted to measurements."
    return Profile.model_validate(
        profile.model_copy(
            update={
                "name": name,
                "description": description,
                "obtained": "fitted",
                "models": tuple(with_overhead(model) for model in profile.models),
                "slow_downs": tuple(slow_downs.values()),
                "fit": _record(fit),
            }
        ).model_dump(by_alias=True)
    )


def _record(fit: Fit) -> FitRecord:
    document, spread = fit.measurements.document, fit.spread
    parameters = [
        FittedParameter(
            model=each.parameter.model,
            beside=each.parameter.beside,
            value=_rounded(each.value),
            interval=each.interval and (_rounded(each.interval[0]), _rounded(each.interval[1])),
            bounds=(_rounded(bounds[0]), _rounded(bounds[1])),
            status=each.status,
        )
        for each, bounds in zip(fit.estimates, fit.bounds, strict=True)
    ]
    return FitRecord(
        source=f"{document.name}: {document.source}",
        parameters=tuple(parameters),
        covariance=None if spread.covariance is None else tuple(map(tuple, spread.covariance)),
        degrees=float(spread.degrees) if np.isfinite(spread.degrees) else None,
    )


def _rounded(value: float) -> float:
    """Four digits behind the point, more than any measurement tells."""
    return round(value, 4)


def _provenance(fit: Fit, estimates: list[Estimate]) -> Provenance:
    document = fit.measurements.document
    left_out = fit.left_out_mean_error_percent
    errors = (
        f"Mean absolute error {fit.mean_error_percent:.1f} %, "
        f"largest {fit.max_error_percent:.1f} %"
        + ("." if left_out is None else f", left out {left_out:.1f} %.")
    )
    said = []
    for e in estimates:
        unit = f" {e.parameter.unit}" if e.parameter.unit else ""
        interval = "no interval"
        if e.interval is not None:
            interval = f"95 % interval {e.interval[0]:.2f} to {e.interval[1]:.2f}{unit}"
        said.append(f"{e.parameter.name}: {interval}" + (f" ({e.remark})" if e.remark else ""))
    return Provenance(
        method="fitted",
        source=f"least squares on the log of {len(fit.points)} measured throughputs: "
        f"{document.source}",
        note=f"{'; '.join(said)}. {errors}",
    )
