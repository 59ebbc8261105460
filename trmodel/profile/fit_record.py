"""What a fit found of a profile's overheads and slow-downs, and how sure it is of them."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from trmodel.documents import Document, Name, Number, Text
from trmodel.errors import InputError

ASYMMETRY = 1e-6
"""Part of the largest variance by which a covariance may miss being one, from rounding."""


class FittedParameter(Document):
    """One fitted number: the overhead of a model, or its slow-down beside another."""

    model: Name = Field(description="The model whose steps it makes longer.")
    beside: Name | None = Field(
        default=None,
        description="For a slow-down, the model that runs at the same time; null for an overhead.",
    )
    value: Number = Field(description="The estimate: milliseconds, or a factor.")
    interval: tuple[Number, Number] | None = Field(
        default=None, description="95 % interval of the estimate; null if there is none."
    )
    bounds: tuple[Number, Number] = Field(description="Within which it was fitted.")
    status: Text = Field(
        description="determined, weak, at bound, not identifiable, or kept (not fitted)."
    )


class FitRecord(Document):
    """Joint law of the overheads and slow-downs that were fitted: a multivariate t."""

    source: Text = Field(description="What was fitted to.")
    parameters: tuple[FittedParameter, ...] = Field(
        min_length=1, description="An overhead for each model, two slow-downs for each pair."
    )
    covariance: tuple[tuple[Number, ...], ...] | None = Field(
        default=None,
        description="Covariance of the parameters, in their order, 0 for those kept; null if the "
        "measurements were too few to tell.",
    )
    degrees: Annotated[Number, Field(gt=0)] | None = Field(
        default=None, description="Degrees of freedom of the t law; null for a normal law."
    )

    @field_validator("covariance")
    @classmethod
    def _of_the_parameters(
        cls, covariance: tuple[tuple[float, ...], ...] | None, info: ValidationInfo
    ) -> tuple[tuple[float, ...], ...] | None:
        if covariance is None or "parameters" not in info.data:
            return covariance
        P = len(info.data["parameters"])
        if len(covariance) != P or any(len(row) != P for row in covariance):
            raise InputError(f"must be {P} lists of {P} numbers, one for each of the parameters")
        C = np.array(covariance)
        slack = ASYMMETRY * max(float(np.abs(C).max()), 1e-300)
        if np.abs(C - C.T).max() > slack or np.linalg.eigvalsh((C + C.T) / 2).min() < -slack:
            raise InputError("must be a covariance: symmetric, without negative variances")
        return covariance
