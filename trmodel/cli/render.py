"""A view as text, in each format."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trmodel.cli.options import Format
from trmodel.cli.streams import is_terminal

if TYPE_CHECKING:
    from rich.table import Table

    from trmodel.cli.output import Grid, View


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

    from rich.console import Console
    from rich.text import Text

    terminal = to_stdout and is_terminal(sys.stdout)
    encoding = sys.stdout.encoding if to_stdout and sys.stdout is not None else None
    unicode = not to_stdout or (encoding or "").lower().startswith("utf")

    def draw(block: str | Grid, width: int) -> str:
        text = io.StringIO()
        console = Console(
            file=text,
            force_terminal=terminal,
            width=width,
            highlight=False,
            legacy_windows=False,
        )
        console.print(Text(block) if isinstance(block, str) else _grid(block, unicode))
        return text.getvalue()

    drawn = []
    for block in blocks:
        text = draw(block, shutil.get_terminal_size().columns if terminal else _UNCUT)
        if not isinstance(block, str) and _is_cut(block, text):
            text = draw(block, _UNCUT)
        lines = [line.rstrip() for line in text.split("\n")]
        drawn.append("\n".join(line for line in lines if line))
    return "\n\n".join(drawn) + "\n"


_UNCUT = 10_000
"""Wider than any table."""


def _grid(block: Grid, unicode: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if unicode else box.ASCII, pad_edge=False)
    for heading in block.headings:
        table.add_column(heading, justify="left" if heading in block.left else "right")
    for row in block.rows:
        table.add_row(*map(Text, row))
    return table


def _is_cut(block: Grid, text: str) -> bool:
    """Say whether a drawing shows some word or figure of a grid only in part."""
    from rich.text import Text

    def words(line: str) -> list[str]:
        return line.replace("|", " ").split()

    shown = set(words(Text.from_ansi(text).plain))
    cells = [*block.headings, *(cell for row in block.rows for cell in row)]
    return any(word not in shown for cell in cells for word in words(cell))
