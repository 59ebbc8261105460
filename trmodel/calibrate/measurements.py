"""The measurement document: throughputs of a real server under known thresholds.

It is what overheads and slow-downs are fitted to, and what a prediction is compared with.
``docs/calibration.md`` describes the file; :func:`measurements_schema` gives its JSON Schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from trmodel.documents import (
    Document,
    Name,
    Number,
    StrPath,
    Text,
    WholeNumber,
    document_names,
    find_document,
    load_document,
)
from trmodel.errors import InfeasibleError, InputError
from trmodel.launch import require_live
from trmodel.system import MAX_CONCURRENCY

MEASUREMENTS_SCHEMA = "trmodel/measurements"
MEASUREMENTS_VERSION = 1
DATA = Path(__file__).parent / "data"

Placement = Literal["shared", "separate"]
Threshold = Annotated[WholeNumber, Field(ge=1, le=MAX_CONCURRENCY)]


class Measured(Document):
    """One measured throughput."""

    N: Annotated[WholeNumber, Field(ge=1, le=MAX_CONCURRENCY)] = Field(
        description="Requests in the closed loop."
    )
    B: tuple[Threshold, ...] = Field(
        description="One threshold for each model, in the order of models."
    )
    throughput_tok_s: Annotated[Number, Field(gt=0, le=1e9)] = Field(
        description="Output tokens per second of the whole server, in a steady state."
    )
    placement: Placement = Field(
        default="shared",
        description="shared: the models ran on the same GPUs and may slow each other; separate: "
        "each on GPUs of its own.",
    )
    note: Text | None = Field(default=None, description="Conditions and reservations.")


class Measurements(Document):
    """Throughputs that were measured on one machine under one routing."""

    schema_: Literal["trmodel/measurements"] = Field(
        alias="schema", description="Kind of document."
    )
    schema_version: Literal[1] = Field(description="Version of this format.")
    name: Name = Field(description="What to call the measurements in results.")
    source: Text = Field(description="Who measured, on what, how; the paper or the command.")
    models: tuple[Name, ...] = Field(
        min_length=1,
        description="Names of the models, distinct; thresholds are in this order.",
    )
    noise_percent: Annotated[Number, Field(gt=0, le=100)] | None = Field(
        default=None,
        description="By how much repeated measurements of one configuration differ from their "
        "mean, in percent; null if unknown.",
    )
    note: Text | None = Field(default=None, description="Anything a reader should know.")
    measurements: tuple[Measured, ...] = Field(
        min_length=1, max_length=10_000, description="The measurements, at least one."
    )

    @field_validator("models")
    @classmethod
    def _distinct(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(models)) < len(models):
            raise ValueError(f"names must be distinct, got {', '.join(models)}")
        return models

    @field_validator("measurements")
    @classmethod
    def _possible(cls, points: tuple[Measured, ...], info: ValidationInfo) -> tuple[Measured, ...]:
        problems = []
        M = len(info.data.get("models", points[0].B))
        for i, point in enumerate(points):
            if len(point.B) != M:
                problems.append(f"[{i}].B: must be {M} thresholds for {M} models, has "
                                f"{len(point.B)}")  # fmt: skip
                continue
            try:
                require_live(point.B, point.N)
            except InfeasibleError as error:
                problems.append(f"[{i}].B: {error}")
        if problems:
            raise InputError(problems)
        return points


@dataclass(frozen=True)
class LoadedMeasurements:
    """Measurements and where they came from.

    Attributes
    ----------
    origin
        "built-in NAME", the path as given, or "measurements NAME" if made in Python.
    """

    document: Measurements
    origin: str


def measurement_names() -> list[str]:
    """Return the names of the measurement files that ship with the package, sorted."""
    return document_names(DATA)


def load_measurements(source: StrPath | Measurements | LoadedMeasurements) -> LoadedMeasurements:
    """Load measurements.

    Parameters
    ----------
    source
        The path of a JSON file, or the name of a built-in one with or without ``.json``; a file
        that exists wins. Measurements made in Python are taken as they are.

    Raises
    ------
    InputError
        If there is no such file, or with every problem of it.

    Examples
    --------
    >>> len(load_measurements("paper-figure10").document.measurements)
    10
    """
    if isinstance(source, LoadedMeasurements):
        return source
    if isinstance(source, Measurements):
        return LoadedMeasurements(source, f"measurements {source.name}")
    path, origin = find_document(source, DATA, "measurement file")
    document, _ = load_document(Measurements, path, MEASUREMENTS_SCHEMA, MEASUREMENTS_VERSION)
    return LoadedMeasurements(document, origin)


def measurements_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a measurement document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Measurements.model_json_schema(by_alias=True),
    }
