"""The routing document, and how it is bound to the models of a profile.

After a step of model i a request goes to model j with probability p_ij, and c_ij tokens are then
committed to its output (arXiv:2610.12242, appendix D). A routing names its models, so that it can
be applied to any profile that has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, ValidationInfo, WithJsonSchema, field_validator

from trmodel.documents import Document, Name, Number, Text
from trmodel.errors import InputError
from trmodel.system_checks import probability_problems, token_problems

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


class Routing(Document):
    """Routing probabilities and committed tokens between M named models."""

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
    transition_probability: tuple[tuple[Probability, ...], ...] = Field(
        description="p_ij, M x M: probability that after a step of model i the request goes to "
        "model j. Each row sums to 1."
    )
    committed_tokens: tuple[tuple[Tokens, ...], ...] = Field(
        description="c_ij, M x M: output tokens committed when that happens."
    )
    entry: Name | None = Field(
        default=None, description="Model at which a request starts; the first when left out."
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

    @field_validator("transition_probability", "committed_tokens")
    @classmethod
    def _valid_matrix(
        cls, rows: tuple[tuple[float, ...], ...], info: ValidationInfo
    ) -> tuple[tuple[float, ...], ...]:
        M = len(info.data.get("models", rows))
        if len(rows) != M:
            raise ValueError(f"must have {M} rows for {M} models, has {len(rows)}")
        if ragged := [i for i, row in enumerate(rows) if len(row) != M]:
            raise InputError([f"[{i}]: must have {M} numbers, has {len(rows[i])}" for i in ragged])
        name = str(info.field_name)
        check = probability_problems if name == "transition_probability" else token_problems
        if problems := check(np.array(rows)):
            raise InputError([problem.removeprefix(name) for problem in problems])
        return rows

    @field_validator("entry")
    @classmethod
    def _known_entry(cls, entry: str | None, info: ValidationInfo) -> str | None:
        models = info.data.get("models")
        if entry is not None and models is not None and entry not in models:
            raise ValueError(f"{entry} is not one of the models {', '.join(models)}")
        return entry

    @property
    def entry_index(self) -> int:
        """Index of the entry model in ``models``."""
        return 0 if self.entry is None else self.models.index(self.entry)

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


class Preset(Routing):
    """A routing shipped with the package: published for some models, of use for others too."""

    binds_by_position: ClassVar[bool] = True
