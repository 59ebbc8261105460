"""Where results go: data to stdout and ``-o FILE``, everything else to stderr.

A command describes its result once, as a `View`; this module puts it in the format asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trmodel.cli.options import Format
from trmodel.cli.render import render
from trmodel.cli.streams import print_out, require_stdout, say
from trmodel.errors import UsageError

_SUFFIXES = {
    ".json": Format.json,
    ".csv": Format.csv,
    ".md": Format.md,
    ".txt": Format.table,
}
DOCUMENT_FORMATS = frozenset(Format) - {Format.r2r}


@dataclass(frozen=True)
class Grid:
    """A small table of text; columns named in ``left`` are aligned left, the others right."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """One result in every format.

    Attributes
    ----------
    document
        Plain values, for JSON.
    records
        Flat records of the same fields, for CSV.
    blocks
        Lines of text and grids, for tables on a terminal and in Markdown.
    r2r
        The arguments of an R2R server, where the result has them.
    warnings
        What a user should know, for stderr.
    """

    document: Any
    records: Sequence[dict[str, Any]] = ()
    blocks: Sequence[str | Grid] = ()
    r2r: str = ""
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Output:
    """What the user wants to be printed, where and how; checked before anything is computed."""

    format: Format
    file: str | None = None
    quiet: bool = False
    file_format: Format = field(init=False)

    def __post_init__(self) -> None:
        suffix = "" if self.file is None else Path(self.file).suffix.lower()
        object.__setattr__(self, "file_format", _SUFFIXES.get(suffix, self.format))

    @property
    def formats(self) -> set[Format]:
        """The formats that will be written."""
        return {self.format} if self.file is None else {self.format, self.file_format}

    def require(self, allowed: Collection[Format], why: str) -> None:
        """Refuse formats that a result does not have.

        Raises
        ------
        UsageError
        """
        for format in self.formats - set(allowed):
            raise UsageError(f"--format {format.value}: {why}")

    def keep(self, *inputs: str | None, plot: str | None = None) -> None:
        """Refuse to overwrite what the result is made from, or one result with another.

        Raises
        ------
        UsageError
        """
        for option, written in (("-o", self.file), ("--plot", plot)):
            if written is not None and any(path and same_file(path, written) for path in inputs):
                raise UsageError(f"{option}: {written} is what is read; choose another file")
        if self.file is not None and plot is not None and same_file(self.file, plot):
            raise UsageError(f"--plot: {plot} is what -o writes; choose another file")

    def note(self, text: str) -> None:
        """Say something that is not data, on one line of stderr."""
        if not self.quiet:
            say(text)

    def emit(self, view: View, whole: Callable[[], View] | None = None) -> None:
        """Write warnings to stderr, the file, then stdout.

        Parameters
        ----------
        view
            For stdout.
        whole
            Gives what the file holds, where that is more.
        """
        for warning in view.warnings:
            self.note(f"trmodel: warning: {warning}")
        if self.file is not None:
            from trmodel.documents import write_text_atomically

            filed = whole() if whole else view
            write_text_atomically(self.file, render(filed, self.file_format))
            self.note(f"wrote {self.file}")
        if self.file is None or not self.quiet:
            print_out(render(view, self.format, to_stdout=True))

    def emit_text(self, text: str) -> None:
        """Write a text to the file, or to stdout if there is none."""
        if self.file is None:
            print_out(text)
            return
        from trmodel.documents import write_text_atomically

        write_text_atomically(self.file, text)
        self.note(f"wrote {self.file}")


def output(format: Format | None, json: bool, file: str | None, quiet: bool) -> Output:
    """Gather the output options.

    Raises
    ------
    UsageError
        If they contradict each other.
    InputError
        If the file cannot be written, or without one stdout.
    """
    if json and format not in (None, Format.json):
        raise UsageError("--json: is short for --format json; leave one of the two out")
    if file is not None:
        from trmodel.documents import check_writable

        if not file:
            raise UsageError("-o: the name of the file is empty")
        if file == "-":
            raise UsageError("-o: stdout gets the result anyway; leave out -o -")
        check_writable(file)
    else:
        require_stdout()
    return Output(Format.json if json else format or Format.table, file, quiet)


def context_in_words(tokens: int | Sequence[int] | None) -> str:
    """Say for which context latencies hold, as a line; nothing where none is known."""
    if tokens is None:
        return ""
    if isinstance(tokens, int):
        return f"context of {tokens} tokens;\n"
    return f"context that grows from {tokens[0]} to {tokens[1]} tokens, averaged;\n"


def grid_in_words(grid_ms: float, error_percent: float) -> str:
    """Say what the time unit of a chain is and what rounding to it does to latencies."""
    change = (
        f"changes them by up to {error_percent:.2g} %" if error_percent > 1e-6 else "changes none"
    )
    return f"latencies on a grid of {grid_ms:g} ms: rounding {change}"


def same_file(first: str, second: str) -> bool:
    """Say whether two names are of one file, which need not exist yet."""
    if os.path.exists(first) and os.path.exists(second):
        regular = os.path.isfile(first)  # /dev/null may well be named twice
        return regular and os.path.samefile(first, second)
    return os.path.realpath(first) == os.path.realpath(second)
