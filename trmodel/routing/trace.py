"""Traces of a routed server: which model took each step of which request, and what it committed.

A trace has one row for each step, in the order in which the steps of a request were made (those of
different requests may be mixed): the request, the model, and the tokens committed when the step was
done. It is CSV with a header, or JSON lines, one object each; other columns or keys are ignored.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmodel.arrays import FloatArray, IntArray
from trmodel.documents import StrPath, parse_json, read_text, shown
from trmodel.errors import InputError
from trmodel.system import MAX_MODELS
from trmodel.system_checks import MAX_TOKENS, is_int, is_number

COLUMNS = ("request", "model", "committed")
MAX_TRACE_BYTES = 512 * 2**20
MAX_PROBLEMS = 20
"""More lines than this help nobody; the rest are counted."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The steps of a trace, those of each request together and in order.

    Attributes
    ----------
    models
        Names, in the order in which they first appear.
    request, model, committed
        (R,): number of the request, index of the model, committed tokens of each step.
    origin
        What it was read from, for messages.
    sha256
        Of the bytes of the file; empty for rows that were given.
    """

    models: tuple[str, ...]
    request: IntArray
    model: IntArray
    committed: FloatArray
    origin: str = "trace"
    sha256: str = ""

    @property
    def requests(self) -> int:
        """How many requests there are."""
        return int(self.request[-1]) + 1

    @property
    def followed(self) -> IntArray:
        """Steps after which the request made another one: where routing is seen."""
        return np.flatnonzero(self.request[1:] == self.request[:-1])


def read_trace(path: StrPath) -> Trace:
    """Read a trace, CSV or JSON lines.

    Raises
    ------
    InputError
        If it cannot be read or has no rows, or with every row that is wrong, by its line.
    """
    text, sha256 = read_text(path, f"a trace with the columns {','.join(COLUMNS)}", MAX_TRACE_BYTES)
    where = shown(path)
    lines = _json_rows if text.lstrip().startswith("{") else _csv_rows
    return _trace(lines(text, where), where, sha256)


def trace_of(rows: Iterable[tuple[Any, str, float]]) -> Trace:
    """Make a trace of rows (request, model, committed), as `read_trace` does of a file.

    Raises
    ------
    InputError
        If there are none, or with every row that is wrong, by its number from 1.
    """
    given = ((f"row {n}", dict(zip(COLUMNS, row, strict=True))) for n, row in enumerate(rows, 1))
    return _trace(given, "trace", "")


def _trace(rows: Iterable[tuple[str, dict[str, Any] | str]], where: str, sha256: str) -> Trace:
    """Number requests and models; a row is its place and its values, or what is wrong with it."""
    requests: dict[Any, int] = {}
    models: dict[str, int] = {}
    steps: list[tuple[int, int, float]] = []
    problems: list[str] = []
    for place, row in rows:
        wrong = [row] if isinstance(row, str) else _wrong(row)
        problems += [f"{where}: {place}: {each}" for each in wrong]
        if wrong or isinstance(row, str):
            continue
        request = requests.setdefault(row["request"], len(requests))
        model = models.setdefault(row["model"], len(models))
        steps.append((request, model, float(row["committed"])))
    if len(problems) > MAX_PROBLEMS:
        more = len(problems) - MAX_PROBLEMS
        problems[MAX_PROBLEMS:] = [f"{where}: and {more} more problems"]
    if len(models) > MAX_MODELS:
        problems.append(
            f"{where}: {len(models)} models; at most {MAX_MODELS} are supported, is the column "
            "model right?"
        )
    if problems:
        raise InputError(problems)
    if not steps:
        raise InputError(f"{where}: the trace has no rows")
    request_of, model_of, committed = (np.array(column) for column in zip(*steps, strict=True))
    order = np.argsort(request_of, kind="stable")
    return Trace(
        tuple(models),
        request_of[order].astype(np.int64),
        model_of[order].astype(np.int64),
        committed[order].astype(np.float64),
        where,
        sha256,
    )


def _wrong(row: dict[str, Any]) -> list[str]:
    problems = []
    request, model = row.get("request"), row.get("model")
    committed: Any = row.get("committed")
    if not (is_int(request) or (isinstance(request, str) and request)):
        problems.append("request: must be a text or a whole number")
    if not (isinstance(model, str) and model and model.isprintable() and len(model) <= 200):
        problems.append("model: must be a name of at most 200 characters")
    if not (is_number(committed) and 0.0 <= committed <= MAX_TOKENS):
        given = shown(str(committed))[:60]
        problems.append(f"committed: must be a number from 0 to {MAX_TOKENS:g}, got {given}")
    return problems


def _csv_rows(text: str, where: str) -> Iterator[tuple[str, dict[str, Any] | str]]:
    reader = csv.reader(io.StringIO(text), strict=True, skipinitialspace=True)
    header: list[str] | None = None
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                for name in COLUMNS:
                    if header.count(name) != 1:
                        raise InputError(
                            f"{where}: line {reader.line_num}: the header must have one column "
                            f"{name}; it needs {','.join(COLUMNS)}, and others are ignored"
                        )
                continue
            place = f"line {reader.line_num}"
            if len(cells) != len(header):
                yield place, f"{len(header)} cells are needed, got {len(cells)}"
                continue
            row: dict[str, Any] = dict(zip(header, map(str.strip, cells), strict=True))
            with suppress(ValueError):  # told with the row's other problems
                row["committed"] = float(row["committed"])
            yield place, row
    except csv.Error as error:
        raise InputError(f"{where}: line {reader.line_num}: {error}") from None


def _json_rows(text: str, where: str) -> Iterator[tuple[str, dict[str, Any] | str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            row = parse_json(line, "")
        except InputError as error:
            found = error.problems[0].removeprefix(": ").removesuffix("; is the file complete?")
            yield place, found.replace("at line 1, column", "at column")
            continue
        yield place, row if isinstance(row, dict) else "must be a JSON object {...}"
