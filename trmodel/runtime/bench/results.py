"""Files of measured points, one JSON object a line: written as they come, so nothing is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from trmodel.documents import StrPath, shown
from trmodel.errors import InputError
from trmodel.runtime.bench.point import SCHEMA

_NEEDED = ("N", "B", "models", "throughput_tok_s", "throughput_interval_tok_s", "per_model")


def read_points(path: StrPath) -> list[dict[str, Any]]:
    """Read a file of points.

    A last line that a killed run left unfinished is skipped.

    Raises
    ------
    InputError
        If it cannot be read or a line is no measured point.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text in UTF-8"
        raise InputError(f"{shown(path)}: cannot be read: {reason}") from None
    points = []
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            point = json.loads(line)
        except ValueError:
            if number == len(lines):
                continue
            raise InputError(f"{shown(path)}: line {number}: is no JSON") from None
        if not isinstance(point, dict) or point.get("schema") != SCHEMA:
            raise InputError(f"{shown(path)}: line {number}: is no point of 'trmodel bench'")
        if missing := [name for name in _NEEDED if name not in point]:
            raise InputError(f"{shown(path)}: line {number}: lacks {', '.join(missing)}")
        points.append(point)
    return points


def append_point(path: StrPath, point: dict[str, Any]) -> None:
    """Write a point behind those there are, and see that it is on the disk.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    try:
        with open(path, "a+b") as file:
            file.seek(0, os.SEEK_END)
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    _drop_unfinished(file)
            file.write(json.dumps(point).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot be written: {error.strerror}") from None


def _drop_unfinished(file: Any) -> None:
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)
