"""The profile document: step latencies of the models on one machine, each with its provenance.

Every field carries its description, so that the JSON Schema (:func:`profile_schema`) documents
the file; ``docs/profiles.md`` explains it at more length.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from trmodel.documents import Document, Name, Number, Text, WholeNumber
from trmodel.errors import InputError
from trmodel.routing import Routing, load_preset
from trmodel.system import DEFAULT_GRID_MS, MAX_CONCURRENCY
from trmodel.system_checks import MAX_LATENCY_MS, MAX_SLOW_DOWN

PROFILE_SCHEMA = "trmodel/profile"
PROFILE_VERSION = 1

Method = Literal["measured", "imported", "published", "derived", "fitted", "assumed"]

BatchSize = Annotated[WholeNumber, Field(ge=1, le=MAX_CONCURRENCY)]
SlowDownFactor = Annotated[Number, Field(ge=1, le=MAX_SLOW_DOWN)]
LatencyMs = Annotated[Number, Field(gt=0, le=MAX_LATENCY_MS)]


class Provenance(Document):
    """How a number was obtained, so that a reader can judge it."""

    method: Method = Field(
        description="measured: on this machine by trmodel; imported: measured by another tool; "
        "published: printed in a paper or report; derived: computed from other measurements; "
        "fitted: chosen to make a model agree with measurements; assumed: a guess."
    )
    source: Text = Field(description="The tool, paper, file or reasoning behind the number.")
    note: Text | None = Field(default=None, description="Conditions and reservations.")


class DecodeTable(Document):
    """Duration of a decode step by batch size, linear between the listed sizes."""

    batch: tuple[BatchSize, ...] = Field(
        min_length=1,
        max_length=MAX_CONCURRENCY,
        description="Batch sizes (requests in the step), strictly increasing, the first one 1.",
    )
    latency_ms: tuple[LatencyMs, ...] = Field(
        max_length=MAX_CONCURRENCY,
        description="Duration of a step with each of these batch sizes, in milliseconds.",
    )
    context_tokens: Annotated[WholeNumber, Field(ge=0)] | None = Field(
        default=None,
        description="Context length of every request when timed, in tokens; null if unknown.",
    )
    provenance: Provenance = Field(description="Where the latencies come from.")

    @field_validator("batch")
    @classmethod
    def _increasing(cls, batch: tuple[int, ...]) -> tuple[int, ...]:
        problems = [
            f"[{i}]: must be above the one before, {batch[i - 1]}, got {batch[i]}"
            for i in range(1, len(batch))
            if batch[i] <= batch[i - 1]
        ]
        if batch[0] != 1:
            problems.insert(0, f"[0]: the first batch size must be 1, got {batch[0]}")
        if problems:
            raise InputError(problems)
        return batch

    @field_validator("latency_ms")
    @classmethod
    def _as_many(cls, latency_ms: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        n = len(info.data.get("batch", latency_ms))
        if len(latency_ms) != n:
            raise ValueError(f"{n} batch sizes are listed, got {len(latency_ms)} latencies")
        return latency_ms


class Overhead(Document):
    """Time that every step takes beyond the model's forward pass, whatever its batch size."""

    value_ms: Annotated[Number, Field(ge=0, le=MAX_LATENCY_MS)] = Field(
        description="Added to every decode latency, in milliseconds: router, hidden states, "
        "scheduling."
    )
    provenance: Provenance = Field(description="Where the value comes from.")


class ModelProfile(Document):
    """One model as it is served on the machine."""

    name: Name = Field(description="Name by which a routing refers to the model.")
    tensor_parallel: Annotated[WholeNumber, Field(ge=1)] = Field(
        description="Number of GPUs that the model is split over."
    )
    max_batch: BatchSize | None = Field(
        default=None,
        description="The most requests that one step can take; no bound when left out.",
    )
    decode: DecodeTable = Field(description="Duration of a decode step by batch size.")
    overhead: Overhead | None = Field(
        default=None, description="Added to every step; nothing when left out."
    )


class SlowDown(Document):
    """How much two models that run at the same time slow each other (shared GPUs)."""

    models: tuple[Name, Name] = Field(description="Names of two models of this profile.")
    factors: tuple[SlowDownFactor, SlowDownFactor] = Field(
        description="A step of the first and of the second takes this many times as long while "
        "both run; 1 is no contention. With more than two models running, the factors of the "
        "pairs multiply."
    )
    provenance: Provenance = Field(description="Where the factors come from.")


class Hardware(Document):
    """The machine."""

    gpu: Name = Field(description="GPU model, such as NVIDIA A100-SXM4-80GB.")
    gpus: Annotated[WholeNumber, Field(ge=1)] = Field(description="Number of GPUs used.")
    note: Text | None = Field(default=None, description="Placement of the models, limits, clocks.")


def _kind_of_routing(value: Any) -> str | None:
    if isinstance(value, str):
        return "<preset>"
    return "<inline>" if isinstance(value, (dict, Routing)) else None


DefaultRouting = Annotated[
    Annotated[Name, Tag("<preset>")] | Annotated[Routing, Tag("<inline>")],
    Discriminator(
        _kind_of_routing,
        custom_error_type="routing_kind",
        custom_error_message="must be the name of a preset or a routing object",
    ),
]


class Profile(Document):
    """Step latencies of token-level routing on one machine."""

    schema_: Literal["trmodel/profile"] = Field(alias="schema", description="Kind of document.")
    schema_version: Literal[1] = Field(description="Version of this format.")
    name: Name = Field(description="What to call the profile in results.")
    description: Text = Field(description="What the profile is for, in a sentence or two.")
    hardware: Hardware = Field(description="The machine on which the latencies hold.")
    software: dict[Name, Name] = Field(
        default_factory=dict, description="Versions: name of a package to its version."
    )
    obtained: Method = Field(
        description="How the profile as a whole was obtained; each table says more."
    )
    grid_ms: Annotated[Number, Field(gt=0, le=MAX_LATENCY_MS)] = Field(
        default=DEFAULT_GRID_MS,
        description="Time unit, in milliseconds, to which the exact chain rounds step latencies.",
    )
    models: tuple[ModelProfile, ...] = Field(
        min_length=1, description="The models that can be served, with distinct names."
    )
    slow_downs: tuple[SlowDown, ...] = Field(
        default=(),
        description="Pairs of models that share GPUs and slow each other; models that are not "
        "listed together do not.",
    )
    routing: DefaultRouting | None = Field(
        default=None,
        description="Default routing: the name of a preset (such as r2r), or a routing that names "
        "models of this profile. Without it a routing must be given with every command.",
    )

    @field_validator("models")
    @classmethod
    def _distinct(cls, models: tuple[ModelProfile, ...]) -> tuple[ModelProfile, ...]:
        names = [model.name for model in models]
        if len(set(names)) < len(names):
            raise ValueError(f"names must be distinct, got {', '.join(names)}")
        return models

    @field_validator("slow_downs")
    @classmethod
    def _known_pairs(
        cls, slow_downs: tuple[SlowDown, ...], info: ValidationInfo
    ) -> tuple[SlowDown, ...]:
        names = [model.name for model in info.data.get("models", ())]
        problems, seen = [], set()
        for i, entry in enumerate(slow_downs):
            unknown = [name for name in entry.models if names and name not in names]
            if unknown:
                problems.append(
                    f"[{i}].models: {', '.join(unknown)} not among the models {', '.join(names)}"
                )
            elif entry.models[0] == entry.models[1]:
                problems.append(f"[{i}].models: must be two different models")
            elif frozenset(entry.models) in seen:
                problems.append(f"[{i}].models: this pair is listed before")
            seen.add(frozenset(entry.models))
        if problems:
            raise InputError(problems)
        return slow_downs

    @field_validator("routing")
    @classmethod
    def _usable(cls, routing: str | Routing | None, info: ValidationInfo) -> str | Routing | None:
        if isinstance(routing, str):
            routing_document: Routing = load_preset(routing)
        elif routing is not None:
            routing_document = routing
        if routing is not None and "models" in info.data:
            routing_document.bind([model.name for model in info.data["models"]])
        return routing

    @property
    def model_names(self) -> list[str]:
        """Names of the models, in the order of the file."""
        return [model.name for model in self.models]


def profile_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a profile document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Profile.model_json_schema(by_alias=True),
    }
