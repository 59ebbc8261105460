"""How paths and values are shown in messages of one line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

StrPath = str | os.PathLike[str]


def shown(text: StrPath) -> str:
    """Return a path or message fit to print on one line: control characters are escaped."""
    plain = os.fspath(text)
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in plain) or '""'


def scalar(value: Any) -> str:
    """Show a JSON value in a message: an object or list by its kind, a long text cut."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    plain = value is None or isinstance(value, (str, bool, float))
    text = json.dumps(value, ensure_ascii=False) if plain else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
