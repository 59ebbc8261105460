"""A launch rule as a table that can be saved, read back and looked up.

A row is a *decision state*: a moment at which batches have just completed and their requests have
joined their queues (see `trmodel.markov.decisions`), with the number of requests that each model
starts then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from trmodel.arrays import IndexArray
from trmodel.documents import (
    Document,
    Name,
    Number,
    StrPath,
    WholeNumber,
    check_header,
    json_text,
    parse_document,
    parse_json,
    read_text,
    shown,
    write_text_atomically,
)
from trmodel.errors import InputError, UsageError
from trmodel.launch import shown_vector
from trmodel.system import MAX_CONCURRENCY

LAUNCH_RULE_SCHEMA = "trmodel/launch-rule"
LAUNCH_RULE_VERSION = 1
MAX_BYTES = 256 * 2**20
"""A table has a row for every state, which other documents do not."""

Column = tuple[Annotated[WholeNumber, Field(ge=0, lt=2**31)], ...]


@dataclass(frozen=True, eq=False)
class LaunchTable:
    """What to launch in every decision state.

    Attributes
    ----------
    models, N
        Names, and concurrent requests.
    grid_ms
        The unit of ``remaining``.
    waiting, running, remaining
        (S, M): requests in each queue, sizes of the running batches (0: idle) and their remaining
        work in grid units, before anything is launched. Of an idle model, what waking it will add
        to its next step: always the same, but 0 where it has just completed a batch.
    launches
        (S, M): how many of the waiting requests each model starts.

    Raises
    ------
    InputError
        If the arrays do not fit together, or a row launches what it cannot.
    """

    models: tuple[str, ...]
    N: int
    grid_ms: float
    waiting: IndexArray
    running: IndexArray
    remaining: IndexArray
    launches: IndexArray

    def __post_init__(self) -> None:
        columns = (self.waiting, self.running, self.remaining, self.launches)
        if any(c.shape != (len(self.waiting), len(self.models)) for c in columns):
            raise InputError("launch rule: every column needs a value for each state and model")
        waking = np.where(self.running == 0, self.remaining, 0)
        impossible = {
            f"waiting and running requests must be {self.N}": (
                (self.waiting + self.running).sum(axis=1) != self.N
            ),
            "more is launched than waits": (self.launches > self.waiting).any(axis=1),
            "a busy model launches": ((self.launches > 0) & (self.running > 0)).any(axis=1),
            "an idle model takes less to wake than in other states, and not 0": (
                (waking > 0) & (waking < waking.max(axis=0, initial=0))
            ).any(axis=1),
            "nothing runs": (self.launches + self.running).sum(axis=1) == 0,
        }
        problems = [
            f"launch rule: state {int(np.argmax(rows))}: {problem}"
            for problem, rows in impossible.items()
            if rows.any()
        ]
        if problems:
            raise InputError(problems)

    def __len__(self) -> int:
        return len(self.waiting)

    def launches_at(
        self, waiting: Sequence[int], running: Sequence[int], remaining_ms: ArrayLike
    ) -> tuple[int, ...]:
        """Look up what to launch.

        Where batches have other remaining work than any state with these requests, as they have
        on a real server, the state nearest in remaining work decides.

        Parameters
        ----------
        waiting, running
            Requests in each queue, and sizes of the running batches (0: idle).
        remaining_ms
            Remaining work of each batch in milliseconds, run alone. Where none runs, what waking
            the model takes (`RoutedSystem.wake_ms`), or 0 if it has just completed a batch.

        Raises
        ------
        UsageError
            If no state of the table has these requests.
        """
        rows = self._rows.get((tuple(map(int, waiting)), tuple(map(int, running))))
        if rows is None:
            raise UsageError(
                f"launch rule: no state has {shown_vector(waiting)} waiting and "
                f"{shown_vector(running)} running requests"
            )
        away = np.abs(self.remaining[rows] - np.asarray(remaining_ms) / self.grid_ms).sum(axis=1)
        return tuple(self.launches[rows[np.argmin(away)]].tolist())

    @cached_property
    def _rows(self) -> dict[tuple[tuple[int, ...], tuple[int, ...]], NDArray[np.intp]]:
        """Rows by waiting and running requests."""
        requests = np.hstack([self.waiting, self.running])
        found, group = np.unique(requests, axis=0, return_inverse=True)
        order = np.argsort(group, kind="stable")
        rows = np.split(order, np.cumsum(np.bincount(group))[:-1])
        M = len(self.models)
        keys = [(tuple(key[:M]), tuple(key[M:])) for key in found.tolist()]
        return dict(zip(keys, rows, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as plain values, each a list of S numbers for every model."""
        return {
            name: getattr(self, name).T.tolist()
            for name in ("waiting", "running", "remaining", "launches")
        }

    def save(self, path: StrPath, about: Mapping[str, Any] | None = None) -> None:
        """Write the table as a JSON document that `load_launch_table` reads.

        Parameters
        ----------
        path
            The file, written whole or not at all.
        about
            What else the document should say, such as where the rule comes from.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        write_text_atomically(path, self.to_json(about))

    def to_json(self, about: Mapping[str, Any] | None = None) -> str:
        """Return the text that `save` writes."""
        document = {
            "schema": LAUNCH_RULE_SCHEMA,
            "schema_version": LAUNCH_RULE_VERSION,
            **(about or {}),
            "models": list(self.models),
            "N": self.N,
            "grid_ms": self.grid_ms,
            "states": self.to_dict(),
        }
        return json_text(document) + "\n"


class _Columns(Document):
    """The states of a launch rule: a list for each model, with a number for each state."""

    waiting: tuple[Column, ...]
    running: tuple[Column, ...]
    remaining: tuple[Column, ...]
    launches: tuple[Column, ...]


class _LaunchRule(Document):
    """A launch rule as `trmodel best-rule` writes it."""

    schema_: Literal["trmodel/launch-rule"] = Field(alias="schema")
    schema_version: Literal[1]
    models: tuple[Name, ...] = Field(min_length=1)
    N: Annotated[WholeNumber, Field(ge=1, le=MAX_CONCURRENCY)]
    grid_ms: Annotated[Number, Field(gt=0)]
    states: _Columns


def load_launch_table(path: StrPath) -> LaunchTable:
    """Read the launch table of a document that ``trmodel best-rule -o`` wrote.

    Raises
    ------
    InputError
        With every problem of the file.
    """
    where = shown(path)
    data = parse_json(read_text(path, max_bytes=MAX_BYTES)[0], where)
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: the top level must be a JSON object {{...}}")
    check_header(data, LAUNCH_RULE_SCHEMA, LAUNCH_RULE_VERSION, where)
    # The rest says where the rule comes from and what it is worth; a server needs none of it.
    needed = {key: value for key, value in data.items() if key in _FIELDS}
    document = parse_document(_LaunchRule, needed, where)
    states = document.states
    lists = (states.waiting, states.running, states.remaining, states.launches)
    if any(len(column) != len(document.models) for column in lists) or (
        len({len(values) for column in lists for values in column}) != 1
    ):
        raise InputError(
            f"{where}: states: every column needs a list for each of "
            f"{len(document.models)} models, all of one length"
        )
    try:
        return LaunchTable(
            document.models,
            document.N,
            document.grid_ms,
            *(np.array(column, dtype=np.int32).T for column in lists),
        )
    except InputError as error:
        raise InputError([f"{where}: {problem}" for problem in error.problems]) from None


_FIELDS = {field.alias or name for name, field in _LaunchRule.model_fields.items()}
