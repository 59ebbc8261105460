"""Results files: a long search writes its finished rows as it goes, and can go on from them.

The file is the document of the table or sweep so far, whose ``stopped`` says that it is not
complete; it is replaced whole every few seconds, and once more when the search is interrupted.
Rows of such a file are not searched again if it was made from the same inputs: the same profile by
its SHA-256, routing, context, grid and largest batches, and the same options of the search.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trmodel.documents import (
    StrPath,
    check_header,
    check_writable,
    json_text,
    read_json,
    shown,
    write_text_atomically,
)
from trmodel.errors import InputError, UsageError
from trmodel.search.bound import Bound
from trmodel.search.choose import INDISTINGUISHABLE, Candidate, Choice, RunnerUp
from trmodel.search.table import Row, ThresholdTable

EVERY_S = 5.0
UNFINISHED = "interrupted before all rows were searched"
_NOT_COMPARED = ("grid_error_percent", "max_batch")
"""Of the system: what depends on the largest N asked for."""
MakeDocument = Callable[[], dict[str, Any]]


class ResultsFile:
    """A file that holds what a search has found so far.

    Parameters
    ----------
    path
        Of the file; None for no file, of which every method does nothing.
    resume
        Read what the file holds, if there is one.

    Raises
    ------
    InputError
        If the file cannot be written, or read as JSON.
    UsageError
        If there is nothing to resume from by name.
    """

    def __init__(self, path: StrPath | None, resume: bool) -> None:
        if resume and path is None:
            raise UsageError("resume: name the results file to go on from")
        self.path = path
        self.before: dict[str, Any] | None = None
        self._latest: MakeDocument | None = None
        self._written = time.perf_counter()
        if path is not None:
            check_writable(path)
            if resume and os.path.exists(path):
                self.before, _ = read_json(path)

    def known(
        self, origin: Mapping[str, Any], search: Mapping[str, Any], p: float | None = None
    ) -> dict[int, Row]:
        """Return the rows that the file holds, by N; with ``p`` those of a sweep at that value.

        Raises
        ------
        InputError
            If it was made from other inputs, or is damaged; one line.
        """
        if self.before is None or self.path is None:
            return {}
        where = shown(self.path)
        schema = "trmodel/thresholds" if p is None else "trmodel/sweep"
        check_header(self.before, schema, 1, where)
        given = {**origin, "search": dict(search)}
        if difference := _difference(self.before, given, p is not None):
            raise InputError(
                f"{where}: --resume: it was made with another {difference}; "
                "leave out --resume or name another file"
            )
        try:
            rows = [
                read_row(plain)
                for plain in self.before["rows"]
                if plain["search"] != "interpolated" and (p is None or plain["p"] == p)
            ]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(
                f"{where}: --resume: its rows are not those of a results file; leave out --resume"
            ) from None
        return {row.N: row for row in rows}

    def save(self, make: MakeDocument) -> None:
        """Keep what was found so far; it is written if the last time was a while ago."""
        self._latest = make
        if time.perf_counter() - self._written > EVERY_S:
            self.write()

    def write(self) -> None:
        """Write what was kept last, if anything."""
        if self.path is not None and self._latest is not None:
            write_text_atomically(self.path, json_text(self._latest()) + "\n")
            self._latest, self._written = None, time.perf_counter()


@dataclass(frozen=True)
class Memory:
    """What a search remembers of an earlier one, and where it leaves what it finds.

    Attributes
    ----------
    document
        Makes the file's document of a table; of a sweep from the tables before it as well.
    p
        Of the sweep's rows that are meant; None for a table.
    """

    file: ResultsFile
    document: Callable[[ThresholdTable], dict[str, Any]] = lambda table: table.to_dict(True)
    p: float | None = None

    def known(self, origin: Mapping[str, Any], search: Mapping[str, Any]) -> dict[int, Row]:
        """Return rows that need not be searched again; see `ResultsFile.known`."""
        return self.file.known(origin, search, self.p)

    def save(self, table: ThresholdTable) -> None:
        """Keep a table; see `ResultsFile.save`."""
        self.file.save(lambda: self.document(table))


@contextmanager
def remembered(results: StrPath | Memory | None, resume: bool) -> Iterator[Memory]:
    """Open the results file of one table, or use a memory that was opened elsewhere."""
    if isinstance(results, Memory):
        yield results
        return
    with results_file(results, resume) as file:
        yield Memory(file)


@contextmanager
def results_file(path: StrPath | None, resume: bool) -> Iterator[ResultsFile]:
    """Open a results file; however the body ends, what it saved is in the file afterwards."""
    file = ResultsFile(path, resume)
    try:
        yield file
    finally:
        file.write()


def read_row(plain: Mapping[str, Any]) -> Row:
    """Make a row of its document's plain values again; of the candidates only the best."""
    B, method = tuple(plain["B"]), plain["method"]
    best = Candidate(
        B,
        plain["throughput_tok_s"],
        plain["states"],
        method,
        plain["solver"],
        plain["residual"],
        plain["throughput_low_tok_s"],
        plain["throughput_high_tok_s"],
    )
    eager = Candidate((1,) * len(B), plain["eager_tok_s"], None, method, None, None)
    others = [
        Candidate(tuple(c["B"]), c["throughput_tok_s"], None, method, None, None)
        for c in plain["alternatives"]
    ]
    ranked = [best if c.B == B else c for c in others]
    ranked += [] if best in ranked else [best]
    floor = ranked[0].throughput_tok_s * (1.0 - INDISTINGUISHABLE)
    second = plain["runner_up"]
    runner_up = second and RunnerUp(
        tuple(second["B"]), second["throughput_tok_s"], second["loss_percent"]
    )
    tied = tuple(c for c in ranked if c.throughput_tok_s >= floor)
    choice = Choice(best, eager, runner_up, tuple(ranked), tied)
    read = (plain["candidates"], tuple(plain["notes"]))
    bound = Bound(plain["bound_tok_s"]) if "bound_tok_s" in plain else None
    return Row(plain["N"], choice, bound=bound, search=plain["search"], read=read)


def _difference(before: Mapping[str, Any], given: Mapping[str, Any], sweep: bool) -> str | None:
    """Name the first input in which a document differs from what is given now."""
    old, new = _inputs(before, sweep), _inputs(given, sweep)
    for key in (*new, *old):
        if old.get(key) != new.get(key):
            return key
    return None if _same_batches(before, given) else "system.max_batch"


def _same_batches(*documents: Mapping[str, Any]) -> bool:
    """Whether largest batches agree as far as the smaller of the largest N lets them be seen."""
    try:
        N = min(max(document["search"]["N"]) for document in documents)
        first, second = ([min(b, N) for b in each["system"]["max_batch"]] for each in documents)
    except (KeyError, TypeError, ValueError):
        return False
    return first == second


def _inputs(document: Mapping[str, Any], sweep: bool) -> dict[str, Any]:
    """Flatten what must be the same, as JSON would give it back."""
    system = dict(_at(document, "system") or {})
    if sweep and (P := system.get("transition_probability")):
        system["transition_probability"] = [None, *P[1:]]
    search = dict(_at(document, "search") or {})
    return {
        "version of trmodel": document.get("trmodel_version"),
        "profile": _at(document, "profile", "sha256"),
        **{f"system.{key}": each for key, each in system.items() if key not in _NOT_COMPARED},
        **{f"search.{key}": each for key, each in search.items() if key != "N"},
    }


def _at(document: Any, *keys: str) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document
