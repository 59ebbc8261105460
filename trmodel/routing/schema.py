"""The routing document, and how it is bound to the models of a profile.

After a step of model i a request goes to model j with probability p_ij, and c_ij tokens are then
committed to its output (arXiv:2610.12242, appendix D). Where the time that a request has spent at
a model matters, i and j are *phases*, several of which may belong to one model (`trmodel.phases`).
A routing names its models, so that it can be applied to any profile that has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from trmodel.arrays import FloatArray
from trmodel.documents import Document, Name, Number, Text, WholeNumber
from trmodel.errors import InputError, UsageError
from trmodel.system import hand_over_with
from trmodel.system_checks import MAX_LATENCY_MS, probability_problems, token_problems

ROUTING_SCHEMA = "trmodel/routing"
ROUTING_VERSION = 1

# The ranges are checked by the functions that RoutedSystem uses; here they are documented.
Probability = Annotated[Number, WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]
Tokens = Annotated[Number, WithJsonSchema({"type": "number", "minimum": 0})]


@dataclass(frozen=True)
class Binding:
    """Where a routing finds its models in a profile.

    Parameters
    ----------
    order
        For each model of the routing, its index in the profile.
    warning
        One line, if models were bound by position and not by name.
    """

    order: tuple[int, ...]
    warning: str | None = None


class RoutingPhase(Document):
    """What a request is doing at its model, where that decides what comes next."""

    name: Name = Field(description="Unique among the phases.")
    model: Name = Field(description="The model that works on requests in this phase.")
    added_ms: Annotated[Number, Field(ge=0, le=MAX_LATENCY_MS)] = Field(
        default=0.0,
        description="Milliseconds that each request in this phase adds to its step.",
    )
    prompt_tokens: Annotated[WholeNumber, Field(ge=1, le=10_000_000)] | None = Field(
        default=None,
        description="Tokens of a prompt that the step reads; the time that this adds comes from "
        "the extend table of the profile.",
    )

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        if self.added_ms and self.prompt_tokens:
            raise ValueError("added_ms is what reading the prompt_tokens takes; give one of them")
        return self


class Routing(Document):
    """Routing probabilities and committed tokens between M named models, or phases of them."""

    binds_by_position: ClassVar[bool] = False

    schema_: Literal["trmodel/routing"] = Field(
        default="trmodel/routing",
        alias="schema",
        description="Kind of document; a file must state it, a routing inside a profile need not.",
    )
    schema_version: Literal[1] = Field(
        default=1,
        description="Version of the format; a file must state it, a routing inside a profile need "
        "not.",
    )
    name: Name = Field(description="What to call the routing in messages and results.")
    models: tuple[Name, ...] = Field(
        min_length=1,
        description="Names of the M models, distinct; rows and columns below are in this order.",
    )
    phases: tuple[RoutingPhase, ...] = Field(
        default=(),
        description="U phases, at least one for each model; rows and columns below are then in "
        "their order. Left out, each model is one.",
    )
    transition_probability: tuple[tuple[Probability, ...], ...] = Field(
        description="p_ij, M x M: probability that after a step of model i the request goes to "
        "model j. Each row sums to 1. With phases, U x U."
    )
    committed_tokens: tuple[tuple[Tokens, ...], ...] = Field(
        description="c_ij, M x M: output tokens committed when that happens. With phases, U x U."
    )
    entry: Name | None = Field(
        default=None,
        description="Model (or phase) at which a request starts; the first when left out.",
    )
    restart: Name | None = Field(
        default=None,
        description="Phase (or model) that opens a new reply: entering it completes the one "
        "before. Left out, routing does not say when a reply ends.",
    )
    source: Text = Field(description="Where the numbers come from.")
    note: Text | None = Field(default=None, description="Anything a reader should know.")
    paper: Name | None = Field(default=None, description="The paper that proposes the routing.")

    @field_validator("models")
    @classmethod
    def _distinct(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(models)) < len(models):
            raise ValueError(f"names must be distinct, got {', '.join(models)}")
        return models

    @field_validator("phases")
    @classmethod
    def _of_the_models(
        cls, phases: tuple[RoutingPhase, ...], info: ValidationInfo
    ) -> tuple[RoutingPhase, ...]:
        names = [phase.name for phase in phases]
        models = info.data.get("models")
        problems = []
        if len(set(names)) < len(names):
            problems.append(f"names must be distinct, got {', '.join(names)}")
        if phases and models is not None:
            problems += [
                f"[{u}].model: {phase.model} is not one of the models {', '.join(models)}"
                for u, phase in enumerate(phases)
                if phase.model not in models
            ]
            without = [name for name in models if name not in {phase.model for phase in phases}]
            problems += [f"{name} has none" for name in without]
        if problems:
            raise InputError(problems)
        return phases

    @field_validator("transition_probability", "committed_tokens")
    @classmethod
    def _valid_matrix(
        cls, rows: tuple[tuple[float, ...], ...], info: ValidationInfo
    ) -> tuple[tuple[float, ...], ...]:
        what, names = _places(info)
        U = len(rows if names is None else names)
        if len(rows) != U:
            raise ValueError(f"must have {U} rows for {U} {what}, has {len(rows)}")
        if ragged := [i for i, row in enumerate(rows) if len(row) != U]:
            raise InputError([f"[{i}]: must have {U} numbers, has {len(rows[i])}" for i in ragged])
        name = str(info.field_name)
        check = probability_problems if name == "transition_probability" else token_problems
        if problems := check(np.array(rows)):
            raise InputError([problem.removeprefix(name) for problem in problems])
        return rows

    @field_validator("entry", "restart")
    @classmethod
    def _known_place(cls, place: str | None, info: ValidationInfo) -> str | None:
        what, names = _places(info)
        if place is not None and names is not None and place not in names:
            raise ValueError(f"{place} is not one of the {what} {', '.join(names)}")
        return place

    @property
    def all_phases(self) -> tuple[RoutingPhase, ...]:
        """The phases; in a plain routing one for each model, under its name."""
        return self.phases or tuple(RoutingPhase(name=name, model=name) for name in self.models)

    @property
    def phase_models(self) -> tuple[int, ...]:
        """For each phase, the index of its model in ``models``."""
        return tuple(self.models.index(phase.model) for phase in self.all_phases)

    @property
    def entry_index(self) -> int:
        """Index of the entry among the phases; in a plain routing among the models."""
        return 0 if self.entry is None else self._index(self.entry)

    @property
    def restart_index(self) -> int | None:
        """Index of the phase that opens a new reply, or None."""
        return None if self.restart is None else self._index(self.restart)

    def _index(self, name: str) -> int:
        return [phase.name for phase in self.all_phases].index(name)

    @property
    def reached_models(self) -> tuple[int, ...]:
        """Indices of the models that a request can visit."""
        reached = [self.entry_index]
        for u in reached:
            row = self.transition_probability[u]
            reached += [v for v, p in enumerate(row) if p > 0 and v not in reached]
        return tuple(sorted({self.phase_models[u] for u in reached}))

    def with_p(self, p: float) -> Self:
        """Return a routing of two models whose first hands over with probability p.

        Raises
        ------
        UsageError
            If the routing has phases or not two models, or p is not in [0, 1].
        """
        if self.phases:
            raise UsageError(
                f"p: routing {self.name} has phases, in which no single p is the hand-over; make "
                "one with other parameters as docs/routing.md shows"
            )
        P = hand_over_with(p, np.array(self.transition_probability))
        return self.model_copy(update={"transition_probability": matrix_rows(P)})

    def bind(self, profile_models: Sequence[str]) -> Binding:
        """Find the routing's models among those of a profile, which may have more.

        Parameters
        ----------
        profile_models
            Names of the profile's models, in its order.

        Raises
        ------
        InputError
            If a model is missing, with both lists. A preset of as many models as the profile has
            is applied all the same, with a warning: models that match by name are bound by name,
            the others in the order in which they are listed.
        """
        available = list(profile_models)
        missing = [name for name in self.models if name not in available]
        if not missing:
            return Binding(tuple(available.index(name) for name in self.models))
        if not self.binds_by_position or len(self.models) != len(available):
            raise InputError(
                f"routing {self.name}: {', '.join(missing)} not in the profile; the routing is "
                f"for {', '.join(self.models)}, the profile has {', '.join(available)}; use a "
                "routing that names models of the profile"
            )
        left = iter([i for i, name in enumerate(available) if name not in self.models])
        order = tuple(
            available.index(name) if name in available else next(left) for name in self.models
        )
        return Binding(
            order,
            f"routing {self.name} was published for {', '.join(self.models)}; applied in that "
            f"order to {', '.join(available[i] for i in order)}",
        )

    def under_names_of(self, profile_models: Sequence[str]) -> Routing:
        """Return the routing with the names that a profile has for its models; see `bind`.

        Raises
        ------
        InputError
            If it cannot be applied to them.
        """
        names = [profile_models[i] for i in self.bind(profile_models).order]
        renamed = dict(zip(self.models, names, strict=True))
        data = self.model_dump(by_alias=True)
        places = {} if self.phases else renamed
        return Routing.model_validate(
            data
            | {
                "models": names,
                "phases": [phase | {"model": renamed[phase["model"]]} for phase in data["phases"]],
                "entry": places.get(self.entry or "", self.entry),
                "restart": places.get(self.restart or "", self.restart),
            }
        )


def _places(info: ValidationInfo) -> tuple[str, list[str] | None]:
    """Say what rows and columns stand for, and the names of these if they are known."""
    if phases := info.data.get("phases"):
        return "phases", [phase.name for phase in phases]
    known = "models" in info.data and "phases" in info.data
    return "models", list(info.data["models"]) if known else None


def matrix_rows(matrix: FloatArray) -> tuple[tuple[float, ...], ...]:
    """Return a matrix as the rows that a document holds."""
    return tuple(map(tuple, matrix.tolist()))


class Preset(Routing):
    """A routing shipped with the package: published for some models, of use for others too."""

    binds_by_position: ClassVar[bool] = True
