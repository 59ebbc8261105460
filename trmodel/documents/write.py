"""Write a file whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trmodel.documents.words import StrPath, shown
from trmodel.errors import InputError


def check_writable(path: StrPath) -> None:
    """Fail early where :func:`write_text_atomically` would fail, before a long computation.

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    if os.path.isdir(path):
        raise InputError(f"{shown(path)}: is a directory; name a file to write")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise InputError(f"{shown(path)}: cannot be overwritten; choose another file")
    if _is_special(path):
        return  # written in place: its directory need not take new files
    parent = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(parent):
        raise InputError(f"{shown(path)}: there is no directory {shown(parent)}; create it first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{shown(path)}: cannot write in {shown(parent)}; choose another place")


def write_text_atomically(path: StrPath, text: str) -> None:
    """Write a text file in UTF-8; see :func:`write_bytes_atomically`."""
    write_bytes_atomically(path, text.encode("utf-8"))


def write_bytes_atomically(path: StrPath, data: bytes) -> None:
    """Write a file whole or not at all.

    The bytes go to a new file in the same directory that then takes the place of the old one; a
    link is followed, and permissions are kept. A device or pipe, such as /dev/stdout, is simply
    written to.

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    check_writable(path)
    try:
        if _is_special(path):
            Path(path).write_bytes(data)
        else:
            _replace(os.path.realpath(path), data)
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot be written: {error.strerror or error}") from None


def json_text(value: Any, indent: str = "") -> str:
    """Write JSON for people to read: indented, with a list of plain values on one line.

    Raises
    ------
    ValueError
        If a number is not finite.
    """
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        items = [
            f"{json.dumps(key, ensure_ascii=False)}: {json_text(each, inner)}"
            for key, each in value.items()
        ]
    elif isinstance(value, (list, tuple)) and any(
        isinstance(v, (Mapping, list, tuple)) for v in value
    ):
        items = [json_text(each, inner) for each in value]
    else:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(items) + f"\n{indent}{closing}"


def _replace(target: str, data: bytes) -> None:
    temporary = os.path.join(os.path.dirname(target), f".trmodel-{secrets.token_hex(8)}.tmp")
    # Not tempfile, whose files only their owner can read: this one gets the usual permissions.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        if os.path.exists(target):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _is_special(path: StrPath) -> bool:
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
