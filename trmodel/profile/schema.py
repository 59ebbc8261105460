"""The profile document: step latencies of the models on one machine, each with its provenance.

Every field carries its description, so that the JSON Schema (:func:`profile_schema`) documents
the file; ``docs/profiles.md`` explains it at more length.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from trmodel.documents import Document, Name, Number, Text, WholeNumber
from trmodel.errors import InputError
from trmodel.profile.fit_record import FitRecord
from trmodel.profile.tables import (
    BatchSize,
    DecodeTable,
    ExtendTable,
    Method,
    Provenance,
    WholeValued,
)
from trmodel.routing import Routing, load_preset
from trmodel.system import DEFAULT_GRID_MS
from trmodel.system_checks import MAX_LATENCY_MS, MAX_SLOW_DOWN

__all__ = [
    "DecodeTable",
    "ExtendTable",
    "FitRecord",
    "Handoff",
    "HandoffPair",
    "Hardware",
    "Memory",
    "Method",
    "ModelProfile",
    "Overhead",
    "Profile",
    "Provenance",
    "SlowDown",
    "Wake",
    "profile_schema",
]

PROFILE_SCHEMA = "trmodel/profile"
PROFILE_VERSION = 1

SlowDownFactor = Annotated[Number, Field(ge=1, le=MAX_SLOW_DOWN)]
DelayMs = Annotated[Number, Field(ge=0, le=MAX_LATENCY_MS)]
Bytes = Annotated[WholeValued, Field(ge=1)]


class Overhead(Document):
    """Time that every step takes beyond the model's forward pass, whatever its batch size."""

    value_ms: DelayMs = Field(
        description="Added to every decode latency, in milliseconds: router, hidden states, "
        "scheduling."
    )
    provenance: Provenance = Field(description="Where the value comes from.")


class Wake(Document):
    """Time that a step takes longer where the model was idle before, whatever its batch size."""

    value_ms: DelayMs = Field(
        description="Added to a step of a model that was idle before, in milliseconds: threads are "
        "woken, caches and clocks are cold."
    )
    provenance: Provenance = Field(description="Where the value comes from.")


class Memory(Document):
    """What a model keeps in GPU memory, all its GPUs together; each holds an equal share."""

    weight_bytes: Bytes = Field(description="Weights of the whole model, in bytes.")
    kv_bytes_per_token: Bytes = Field(
        description="KV cache of one token of one request in the whole model, in bytes."
    )
    provenance: Provenance = Field(description="Where the two numbers come from.")


class ModelProfile(Document):
    """One model as it is served on the machine."""

    name: Name = Field(description="Name by which a routing refers to the model.")
    tensor_parallel: Annotated[WholeNumber, Field(ge=1)] = Field(
        description="Number of GPUs that the model is split over."
    )
    gpus: tuple[Annotated[WholeNumber, Field(ge=0)], ...] | None = Field(
        default=None,
        description="Indices of these GPUs, from 0; models may share GPUs. Null if unknown.",
    )
    max_batch: BatchSize | None = Field(
        default=None,
        description="The most requests that one step can take; no bound when left out.",
    )
    decode: DecodeTable = Field(description="Duration of a decode step by batch and context.")
    extend: ExtendTable | None = Field(
        default=None,
        description="Duration of a step that takes in handed-over requests, by batch and new "
        "tokens; as long as a decode step when left out.",
    )
    overhead: Overhead | None = Field(
        default=None, description="Added to every step; nothing when left out."
    )
    wake: Wake | None = Field(
        default=None,
        description="Added to a step if the model was idle before; nothing when left out.",
    )
    memory: Memory | None = Field(
        default=None, description="What the model keeps in GPU memory; needed for the KV capacity."
    )

    @field_validator("gpus")
    @classmethod
    def _one_for_each_part(
        cls, gpus: tuple[int, ...] | None, info: ValidationInfo
    ) -> tuple[int, ...] | None:
        parts = info.data.get("tensor_parallel")
        if gpus is not None and len(set(gpus)) < len(gpus):
            raise ValueError(f"must be distinct, got {', '.join(map(str, gpus))}")
        if gpus is not None and parts is not None and len(gpus) != parts:
            raise ValueError(
                f"must list {parts} GPUs, one for each of tensor_parallel, got {len(gpus)}"
            )
        return gpus


class SlowDown(Document):
    """How much two models that run at the same time slow each other (shared GPUs)."""

    models: tuple[Name, Name] = Field(description="Names of two models of this profile.")
    factors: tuple[SlowDownFactor, SlowDownFactor] = Field(
        description="A step of the first and of the second takes this many times as long while "
        "both run; 1 is no contention. With more than two models running, the factors of the "
        "pairs multiply."
    )
    provenance: Provenance = Field(description="Where the factors come from.")


class HandoffPair(Document):
    """Handoff latency of one pair of models that differs from the others."""

    source: Name = Field(description="Model that the request leaves.")
    destination: Name = Field(description="Model that it joins.")
    latency_ms: DelayMs = Field(description="Delay between the two, in milliseconds.")


class Handoff(Document):
    """Delay between leaving a model and joining the queue of another; it occupies no model."""

    latency_ms: DelayMs = Field(description="Delay of every pair of models, in milliseconds.")
    pairs: tuple[HandoffPair, ...] = Field(
        default=(), description="Exceptions: pairs of models with a delay of their own."
    )
    provenance: Provenance = Field(description="Where the delays come from.")


class Hardware(Document):
    """The machine."""

    gpu: Name = Field(description="GPU model, such as NVIDIA A100-SXM4-80GB.")
    gpus: Annotated[WholeNumber, Field(ge=1)] = Field(description="Number of GPUs used.")
    gpu_memory_bytes: Bytes | None = Field(
        default=None, description="Memory of one GPU, in bytes; needed for the KV capacity."
    )
    reserved_bytes: Annotated[WholeValued, Field(ge=0)] | None = Field(
        default=None,
        description="Bytes of each GPU that hold neither weights nor KV cache: workspace, CUDA "
        "graphs, activations; needed for the KV capacity.",
    )
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
    context_tokens: Annotated[WholeNumber, Field(ge=1)] | None = Field(
        default=None,
        description="Default context length of the requests, in tokens.",
    )
    models: tuple[ModelProfile, ...] = Field(
        min_length=1, description="The models that can be served, with distinct names."
    )
    slow_downs: tuple[SlowDown, ...] = Field(
        default=(),
        description="Pairs of models that share GPUs and slow each other; models that are not "
        "listed together do not.",
    )
    handoff: Handoff | None = Field(
        default=None, description="Delay of a handoff between models; none when left out."
    )
    fit: FitRecord | None = Field(
        default=None, description="How sure the overheads and slow-downs are, if they were fitted."
    )
    routing: DefaultRouting | None = Field(
        default=None,
        description="Default routing: the name of a preset (such as r2r), or a routing that names "
        "models of this profile. Without it a routing must be given with every command.",
    )

    @field_validator("models")
    @classmethod
    def _distinct_and_placed(
        cls, models: tuple[ModelProfile, ...], info: ValidationInfo
    ) -> tuple[ModelProfile, ...]:
        names = [model.name for model in models]
        if len(set(names)) < len(names):
            raise ValueError(f"names must be distinct, got {', '.join(names)}")
        count = info.data["hardware"].gpus if "hardware" in info.data else None
        problems = [
            f"[{i}].gpus[{k}]: must be below the number of GPUs, {count}, got {gpu}"
            for i, model in enumerate(models)
            for k, gpu in enumerate(model.gpus or ())
            if count is not None and gpu >= count
        ]
        if problems:
            raise InputError(problems)
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

    @field_validator("handoff")
    @classmethod
    def _known_handoffs(cls, handoff: Handoff | None, info: ValidationInfo) -> Handoff | None:
        names = [model.name for model in info.data.get("models", ())]
        problems, seen = [], set()
        for i, entry in enumerate(handoff.pairs if handoff else ()):
            pair = (entry.source, entry.destination)
            if unknown := [name for name in pair if names and name not in names]:
                problems.append(
                    f".pairs[{i}]: {', '.join(unknown)} not among the models {', '.join(names)}"
                )
            elif entry.source == entry.destination:
                problems.append(f".pairs[{i}]: must be two different models")
            elif pair in seen:
                problems.append(f".pairs[{i}]: this pair is listed before")
            seen.add(pair)
        if problems:
            raise InputError(problems)
        return handoff

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
