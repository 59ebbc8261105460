"""Step latencies from a plain table: one row for each batch size (CSV)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trmodel.documents import StrPath, read_text, shown
from trmodel.errors import InputError
from trmodel.profile.importers.document import finished
from trmodel.profile.schema import Profile
from trmodel.system import MAX_CONCURRENCY
from trmodel.system_checks import MAX_LATENCY_MS

REQUIRED = ("model", "batch", "latency_ms")
OPTIONAL = ("context_tokens", "new_tokens", "tensor_parallel")
HEADER = f"{','.join(REQUIRED)}[,{'][,'.join(OPTIONAL)}]"
LIMITS = {
    "batch": (1, MAX_CONCURRENCY),
    "context_tokens": (0, 10**9),
    "new_tokens": (1, 10**9),
    "tensor_parallel": (1, 10**4),
}
MAX_PROBLEMS = 100


def import_csv(
    path: StrPath,
    *,
    name: str = "imported",
    description: str | None = None,
    gpu: str = "unknown",
    source: str | None = None,
    context_tokens: int | None = None,
    routing: str | None = None,
) -> Profile:
    """Make a profile of a plain table with a row for each model and batch size.

    The header is ``model,batch,latency_ms`` and, in any order, the optional columns
    ``context_tokens``, ``new_tokens`` and ``tensor_parallel``. A row without new tokens is a
    decode step at this context; one with them is an extend step after this many cached tokens. A
    model has the same batches at every context (or number of new tokens), the smallest one 1.

    Parameters
    ----------
    path
        UTF-8 text of at most 16 MiB, cells separated by commas.
    name, description, gpu, routing
        Of the profile.
    source
        Where the numbers come from, for the provenance; None for the name of the file.
    context_tokens
        The profile's usual context, in tokens.

    Raises
    ------
    InputError
        With every row that is wrong or missing, by its line.
    """
    where = shown(path)
    rows = _read_rows(path, where)
    models: dict[str, list[_Row]] = {}
    for row in rows:
        models.setdefault(row.model, []).append(row)
    problems: list[str] = []
    documents: list[dict[str, Any]] = []
    provenance = {"method": "imported", "source": source or f"table {where}"}
    for model, own in models.items():
        checked = _Checked(where, model, problems)
        documents.append(
            {
                "name": model,
                "tensor_parallel": checked.single(own, "tensor_parallel") or 1,
                "decode": checked.decode([r for r in own if r.new_tokens is None]),
                "extend": checked.extend([r for r in own if r.new_tokens is not None]),
            }
        )
    if problems:
        raise InputError(_capped(where, problems))
    for document in documents:
        for table in ("decode", "extend"):
            if document[table] is None:
                del document[table]
            else:
                document[table]["provenance"] = provenance
    return finished(
        {
            "name": name,
            "description": description or f"Step latencies imported from {where}.",
            "hardware": {"gpu": gpu, "gpus": max(d["tensor_parallel"] for d in documents)},
            "obtained": "imported",
            "context_tokens": context_tokens,
            "models": documents,
            "routing": routing,
        },
        where,
    )


@dataclass(frozen=True)
class _Row:
    line: int
    model: str
    batch: int
    latency_ms: float
    context_tokens: int | None = None
    new_tokens: int | None = None
    tensor_parallel: int | None = None


def _read_rows(path: StrPath, where: str) -> list[_Row]:
    text, _ = read_text(path, f"a table with the header {HEADER}")
    lines = _cells(text, where)
    _, header = next(lines)
    names = [cell.strip() for cell in header]
    wrong = [f"no column {each}" for each in REQUIRED if each not in names]
    wrong += [f"unknown column {shown(n)}" for n in names if n not in REQUIRED + OPTIONAL]
    wrong += [f"column {n} twice" for n in dict.fromkeys(names) if names.count(n) > 1]
    if wrong:
        raise InputError(f"{where}: line 1: {'; '.join(wrong)}; the header is {HEADER}")
    rows, problems = [], []
    for line, cells in lines:
        at = f"{where}: line {line}"
        if len(cells) != len(names):
            problems.append(f"{at}: {len(names)} cells are needed, got {len(cells)}")
            continue
        texts = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
        values, wrong = _parse(texts)
        problems += [f"{at}: {each}" for each in wrong]
        if not wrong:
            rows.append(_Row(line, **values))
    if problems:
        raise InputError(_capped(where, problems))
    if not rows:
        raise InputError(f"{where}: the table has no rows")
    return rows


def _cells(text: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """Give the cells of each line that has any, with its number; the header comes first."""
    reader = csv.reader(io.StringIO(text), strict=True, skipinitialspace=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{where}: line {reader.line_num}: {error}") from None


def _parse(texts: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Parse the cells of one row; the values, and what is wrong with the others."""
    values: dict[str, Any] = {}
    problems = []
    for name, text in texts.items():
        if not text:
            if name in REQUIRED:
                problems.append(f"{name} is empty")
        elif name == "model":
            values[name] = text
        elif name == "latency_ms":
            value = _number(text)
            if value is None:
                problems.append(
                    f"{name}: must be a number above 0 and at most {MAX_LATENCY_MS:g}, "
                    f"got {shown(text)[:60]}"
                )
            values[name] = value
        else:
            least, most = LIMITS[name]
            if text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most:
                values[name] = int(text)
            else:
                problems.append(
                    f"{name}: must be a whole number from {least} to {most}, got {shown(text)[:60]}"
                )
    return values, problems


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value <= MAX_LATENCY_MS else None


@dataclass(frozen=True)
class _Checked:
    """Tables of one model, with what is wrong with its rows added to the problems."""

    where: str
    model: str
    problems: list[str]

    def decode(self, rows: list[_Row]) -> dict[str, Any] | None:
        if not rows:
            self._add("has no decode rows (rows without new_tokens)")
            return None
        known = {row.context_tokens is not None for row in rows}
        if len(known) > 1:
            self._add("context_tokens must be given in all of its decode rows or in none")
            return None
        batches, contexts, latencies = self._grid(rows, "context_tokens")
        one = len(contexts) == 1
        table = {"batch": batches, "latency_ms": latencies[0] if one else latencies}
        if contexts[0] is not None:
            table["context_tokens"] = contexts[0] if one else contexts
        return table

    def extend(self, rows: list[_Row]) -> dict[str, Any] | None:
        if not rows:
            return None
        batches, new_tokens, latencies = self._grid(rows, "new_tokens")
        table = {"batch": batches, "new_tokens": new_tokens, "latency_ms": latencies}
        cached = self.single(rows, "context_tokens", "extend rows")
        return table if cached is None else table | {"context_tokens": cached}

    def single(self, rows: list[_Row], column: str, what: str = "rows") -> int | None:
        """Return the one value that rows have in a column, None if it is empty in all."""
        values = {getattr(row, column) for row in rows} - {None}
        if len(values) > 1:
            several = ", ".join(map(str, sorted(values)))
            self._add(f"{column} must be the same in all of its {what}, got {several}")
        return min(values, default=None)

    def _grid(
        self, rows: list[_Row], column: str
    ) -> tuple[list[int], list[Any], list[list[float]]]:
        """Arrange rows by batch and another column, every pair of which must be there once."""
        cells: dict[tuple[Any, int], _Row] = {}
        for row in rows:
            earlier = cells.setdefault((getattr(row, column), row.batch), row)
            if earlier is not row:
                self._add(f"line {row.line} repeats line {earlier.line}")
        batches = sorted({row.batch for row in rows})
        levels = sorted({getattr(row, column) for row in rows}, key=lambda level: level or 0)
        if batches[0] != 1:
            self._add(f"has no row for batch 1, the smallest is {batches[0]}")
        for level in levels:
            missing = [str(batch) for batch in batches if (level, batch) not in cells]
            if missing:
                self._add(f"{column} {level} has no row for batch {', '.join(missing)}")
        latencies = [
            [cells[level, batch].latency_ms for batch in batches if (level, batch) in cells]
            for level in levels
        ]
        return batches, levels, latencies

    def _add(self, problem: str) -> None:
        self.problems.append(f"{self.where}: model {shown(self.model)}: {problem}")


def _capped(where: str, problems: list[str]) -> list[str]:
    more = len(problems) - MAX_PROBLEMS
    return problems if more <= 0 else [*problems[:MAX_PROBLEMS], f"{where}: and {more} more"]
