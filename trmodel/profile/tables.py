"""The latency tables of a profile document: decode steps, and steps that extend.

Each number may carry a status, and each table says where it comes from. How values between the
listed ones are found is in :mod:`trmodel.profile.interpolate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
)

from trmodel.documents import Document, Number, Text, WholeNumber
from trmodel.errors import InputError
from trmodel.system import MAX_CONCURRENCY
from trmodel.system_checks import MAX_LATENCY_MS

Method = Literal["measured", "imported", "published", "derived", "fitted", "assumed"]
Status = Literal["measured", "interpolated", "extrapolated"]


def _without_exponent(value: Any) -> Any:
    """Take 9e10 for the whole number that it is, as JSON does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeValued = Annotated[WholeNumber, BeforeValidator(_without_exponent)]
"""A whole number that may be written with an exponent, as numbers of bytes often are."""
BatchSize = Annotated[WholeNumber, Field(ge=1, le=MAX_CONCURRENCY)]
ContextTokens = Annotated[WholeNumber, Field(ge=0)]
LatencyMs = Annotated[Number, Field(gt=0, le=MAX_LATENCY_MS)]


def _kind_of_table(value: Any) -> str:
    nested = isinstance(value, (list, tuple)) and value and isinstance(value[0], (list, tuple))
    return "<rows>" if nested else "<row>"


def _kind_of_context(value: Any) -> str:
    return "<several>" if isinstance(value, (list, tuple)) else "<one>"


LatencyRow = Annotated[tuple[LatencyMs, ...], Field(max_length=MAX_CONCURRENCY)]
LatencyRows = tuple[LatencyRow, ...]
StatusRow = tuple[Status, ...]
StatusRows = tuple[StatusRow, ...]
# One list or a list of lists; told apart before validation, so that errors name one of them.
RowOrRows = Annotated[
    Annotated[LatencyRow, Tag("<row>")] | Annotated[LatencyRows, Tag("<rows>")],
    Discriminator(_kind_of_table),
]
StatusRowOrRows = Annotated[
    Annotated[StatusRow, Tag("<row>")] | Annotated[StatusRows, Tag("<rows>")],
    Discriminator(_kind_of_table),
]
Contexts = Annotated[
    Annotated[ContextTokens, Tag("<one>")]
    | Annotated[tuple[ContextTokens, ...], Field(min_length=1), Tag("<several>")],
    Discriminator(_kind_of_context),
]


def not_increasing(values: Sequence[int]) -> list[str]:
    """List the values that are not above the one before, each with its place."""
    return [
        f"[{i}]: must be above the one before, {values[i - 1]}, got {values[i]}"
        for i in range(1, len(values))
        if values[i] <= values[i - 1]
    ]


def _check_increasing(values: tuple[int, ...]) -> tuple[int, ...]:
    if problems := not_increasing(values):
        raise InputError(problems)
    return values


def _check_batch(batch: tuple[int, ...]) -> tuple[int, ...]:
    problems = not_increasing(batch)
    if batch[0] != 1:
        problems.insert(0, f"[0]: the first batch size must be 1, got {batch[0]}")
    if problems:
        raise InputError(problems)
    return batch


def _check_rows(rows: LatencyRows, count: int | None, columns: int | None, by: str) -> None:
    """Check that there are ``count`` rows of ``columns`` latencies; None if those are unknown."""
    problems = []
    if count is not None and len(rows) != count:
        problems.append(f"{count} {by} are listed, got {len(rows)} rows of latencies")
    problems += [
        f"[{i}]: {columns} batch sizes are listed, got {len(row)} latencies"
        for i, row in enumerate(rows)
        if columns is not None and len(row) != columns
    ]
    if problems:
        raise InputError(problems)


def _check_status(status: Any, latency_ms: Any) -> None:
    """Check that the statuses have the shape of the latencies; None if those are unknown."""
    if status is None or latency_ms is None:
        return
    nested = _kind_of_table(latency_ms) == "<rows>"
    fits = len(status) == len(latency_ms) and (_kind_of_table(status) == "<rows>") == nested
    if fits and nested:
        fits = all(len(s) == len(row) for s, row in zip(status, latency_ms, strict=True))
    if not fits:
        raise ValueError("must have the shape of latency_ms, one status for each latency")


class Provenance(Document):
    """How a number was obtained, so that a reader can judge it."""

    method: Method = Field(
        description="measured: on this machine by trmodel; imported: measured by another tool; "
        "published: printed in a paper or report; derived: computed from other measurements; "
        "fitted: chosen to make a model agree with measurements; assumed: a guess."
    )
    source: Text = Field(description="The tool, paper, file or reasoning behind the number.")
    note: Text | None = Field(default=None, description="Conditions and reservations.")


class StepTable(Document):
    """What tables of steps have in common; each has ``batch``, ``latency_ms`` and ``status``.

    The fields stay in the tables, since a check sees those before it only.
    """

    _batch = field_validator("batch", check_fields=False)(_check_batch)

    @field_validator("status", check_fields=False)
    @classmethod
    def _status_of_each(cls, status: Any, info: ValidationInfo) -> Any:
        _check_status(status, info.data.get("latency_ms"))
        return status

    @property
    def rows(self) -> LatencyRows:
        """Latencies in milliseconds as a list of rows by batch."""
        return cast(LatencyRows, _as_rows(getattr(self, "latency_ms")))  # noqa: B009

    @property
    def status_rows(self) -> StatusRows:
        """Statuses in the shape of ``rows``."""
        status = getattr(self, "status")  # noqa: B009
        if status:
            return cast(StatusRows, _as_rows(status))
        measured: Status = "measured"
        return tuple((measured,) * len(row) for row in self.rows)


class DecodeTable(StepTable):
    """Duration of a decode step by batch size and context, linear between the listed ones."""

    batch: tuple[BatchSize, ...] = Field(
        min_length=1,
        max_length=MAX_CONCURRENCY,
        description="Batch sizes (requests in the step), strictly increasing, the first one 1.",
    )
    context_tokens: Contexts | None = Field(
        default=None,
        description="Context length of every request when timed, in tokens: one number, or a "
        "strictly increasing list with a row of latencies for each; null if unknown.",
    )
    latency_ms: RowOrRows = Field(
        description="Duration of a step with each of these batch sizes, in milliseconds; a list "
        "of such lists, one for each context, when context_tokens is a list."
    )
    padded_batches: tuple[BatchSize, ...] | None = Field(
        default=None,
        min_length=1,
        description="Sizes to which batches are padded (CUDA graphs), strictly increasing: a "
        "batch takes as long as the next of them; above the last one, as long as its own size.",
    )
    status: StatusRowOrRows | None = Field(
        default=None,
        description="For each latency, whether it was measured, interpolated or extrapolated by "
        "whoever made the table; all measured when left out.",
    )
    provenance: Provenance = Field(description="Where the latencies come from.")

    @field_validator("padded_batches")
    @classmethod
    def _increasing_padding(cls, padded: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return padded if padded is None else _check_increasing(padded)

    @field_validator("context_tokens")
    @classmethod
    def _increasing_contexts(cls, context: Any) -> Any:
        return _check_increasing(context) if isinstance(context, tuple) else context

    @field_validator("latency_ms")
    @classmethod
    def _as_many(cls, latency_ms: Any, info: ValidationInfo) -> Any:
        n = len(info.data["batch"]) if "batch" in info.data else None
        nested = _kind_of_table(latency_ms) == "<rows>"
        if "context_tokens" in info.data:
            contexts = info.data["context_tokens"]
            if isinstance(contexts, tuple) and not nested:
                raise ValueError(
                    f"must be a list of {len(contexts)} lists, one for each of the context_tokens"
                )
            if nested and not isinstance(contexts, tuple):
                raise ValueError("has several rows: context_tokens must list their contexts")
            if nested:
                _check_rows(latency_ms, len(contexts), n, "contexts")
        if not nested and n is not None and len(latency_ms) != n:
            raise ValueError(f"{n} batch sizes are listed, got {len(latency_ms)} latencies")
        return latency_ms

    @property
    def contexts(self) -> tuple[int, ...]:
        """Listed contexts in tokens, one for each row; empty if unknown."""
        context = self.context_tokens
        return context if isinstance(context, tuple) else () if context is None else (context,)


class ExtendTable(StepTable):
    """Duration of a step in which every request brings several tokens that the model has not seen.

    Such a step is what takes in handed-over requests: the model reads what the others wrote.
    """

    batch: tuple[BatchSize, ...] = Field(
        min_length=1,
        max_length=MAX_CONCURRENCY,
        description="Batch sizes (requests in the step), strictly increasing, the first one 1.",
    )
    new_tokens: tuple[Annotated[WholeNumber, Field(ge=1)], ...] = Field(
        min_length=1,
        description="New tokens of each request in the step, strictly increasing, at least 1.",
    )
    latency_ms: LatencyRows = Field(
        description="Duration of the step in milliseconds: a row for each of the new_tokens, a "
        "column for each batch size."
    )
    context_tokens: ContextTokens | None = Field(
        default=None,
        description="Cached tokens of every request when timed; null if unknown.",
    )
    context_growth: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] | None = Field(
        default=None,
        description="For each of the new_tokens, how many times as much as a decode step of the "
        "same batch such a step grows with the context. All 1 when left out: both read the cache "
        "once.",
    )
    status: StatusRows | None = Field(
        default=None,
        description="For each latency, whether it was measured, interpolated or extrapolated by "
        "whoever made the table; all measured when left out.",
    )
    provenance: Provenance = Field(description="Where the latencies come from.")

    _new_tokens = field_validator("new_tokens")(_check_increasing)

    @field_validator("context_growth")
    @classmethod
    def _one_for_each(
        cls, growth: tuple[float, ...] | None, info: ValidationInfo
    ) -> tuple[float, ...] | None:
        new_tokens = info.data.get("new_tokens")
        if growth is not None and new_tokens is not None and len(growth) != len(new_tokens):
            raise ValueError(
                f"has {len(growth)} numbers, one is needed for each of {len(new_tokens)} "
                "numbers of new tokens"
            )
        return growth

    @field_validator("latency_ms")
    @classmethod
    def _as_many(cls, rows: LatencyRows, info: ValidationInfo) -> LatencyRows:
        count, columns = (
            len(info.data[name]) if name in info.data else None for name in ("new_tokens", "batch")
        )
        _check_rows(rows, count, columns, "numbers of new tokens")
        return rows


def _as_rows(values: Any) -> Any:
    return values if _kind_of_table(values) == "<rows>" else (values,)
