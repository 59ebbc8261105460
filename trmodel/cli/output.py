"""Where results go: data to stdout and ``-o FILE``, everything else to stderr.

A command describes its result once, as a `View`; this module puts it in the format asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trmodel.cli.options import Format
from trmodel.errors import InputError, UsageError

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

    def keep(self, *inputs: str | None) -> None:
        """Refuse to overwrite what the result is made from.

        Raises
        ------
        UsageError
        """
        for path in inputs:
            if path is None or self.file is None or not os.path.exists(self.file):
                continue
            if os.path.exists(path) and os.path.samefile(path, self.file):
                raise UsageError(f"-o: {self.file} is what is read; choose another file")

    def note(self, text: str) -> None:
        """Say something that is not data, on one line of stderr."""
        if not self.quiet:
            print(_one_line(text), file=sys.stderr)

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
            _print(render(view, self.format, to_stdout=True))

    def emit_text(self, text: str) -> None:
        """Write a text to the file, or to stdout if there is none."""
        if self.file is None:
            _print(text)
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
        If the file cannot be written.
    """
    if json and format not in (None, Format.json):
        raise UsageError("--json: is short for --format json; leave one of the two out")
    if file is not None:
        from trmodel.documents import check_writable

        if not file:
            raise UsageError("-o: the name of the file is empty")
        check_writable(file)
    return Output(Format.json if json else format or Format.table, file, quiet)


def complain(line: str) -> None:
    """Print an error, which also ``--quiet`` does not silence."""
    print(f"trmodel: error: {_one_line(line)}", file=sys.stderr)


def render(view: View, format: Format, to_stdout: bool = False) -> str:
    """Put a view in a format, ending with a line break."""
    match format:
        case Format.json:
            return _json(view.document)
        case Format.csv:
            return _csv(view.records)
        case Format.md:
            return "\n\n".join(map(_markdown, view.blocks)) + "\n"
        case Format.r2r:
            return view.r2r
        case Format.table:
            return _table(view.blocks, to_stdout)


def _json(document: Any) -> str:
    import json

    return json.dumps(_finite(document), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """Return plain values with null for what JSON has no number for."""
    from math import isfinite

    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case float() if not isfinite(value):
            return None
    return value


def _csv(records: Sequence[dict[str, Any]]) -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _markdown(block: str | Grid) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    if isinstance(block, str):
        return block
    rule = [":--" if heading in block.left else "--:" for heading in block.headings]
    return "\n".join(map(line, [block.headings, rule, *block.rows]))


def _table(blocks: Sequence[str | Grid], to_stdout: bool) -> str:
    """Draw for a terminal if that is where it goes, else plainly and as wide as the data needs."""
    import io
    import shutil

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = to_stdout and sys.stdout.isatty()
    console = Console(
        file=io.StringIO(),
        force_terminal=terminal,
        width=shutil.get_terminal_size().columns if terminal else 10_000,
        highlight=False,
        legacy_windows=False,
    )
    unicode = not to_stdout or (sys.stdout.encoding or "").lower().startswith("utf")
    drawn = []
    for block in blocks:
        with console.capture() as captured:
            if isinstance(block, str):
                console.print(Text(block))
            else:
                table = Table(box=box.SIMPLE_HEAD if unicode else box.ASCII, pad_edge=False)
                for heading in block.headings:
                    left = heading in block.left
                    table.add_column(heading, justify="left" if left else "right")
                for row in block.rows:
                    table.add_row(*map(Text, row))
                console.print(table)
        lines = [line.rstrip() for line in captured.get().split("\n")]
        drawn.append("\n".join(line for line in lines if line))
    return "\n\n".join(drawn) + "\n"


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


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _print(text: str) -> None:
    """Write to stdout; a reader that has seen enough (``| head -1``) is no error.

    Raises
    ------
    InputError
        If stdout cannot be written, as on a full disk.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
    except OSError as error:
        _discard_stdout()
        raise InputError(f"stdout: cannot be written: {error.strerror or error}") from None


def _discard_stdout() -> None:
    """Let the interpreter's last flush succeed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
