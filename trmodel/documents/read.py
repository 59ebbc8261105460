"""Read a JSON object from a file that may be anything."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from trmodel.documents.words import StrPath, shown
from trmodel.errors import InputError

MAX_DOCUMENT_BYTES = 16 * 2**20
MAX_DIGITS = 25
"""No whole number in a document needs more, and Python refuses to read very long ones."""


def read_json(path: StrPath) -> tuple[dict[str, Any], str]:
    """Read a JSON object and the SHA-256 of its bytes (hexadecimal).

    Stricter than :func:`json.load`: no NaN or infinity, no key twice in an object.

    Raises
    ------
    InputError
        One line that begins with the path, if the file is missing, a directory, empty, over
        16 MiB, not UTF-8 (a byte order mark is accepted), malformed, nested too deep or not an
        object at the top.
    """
    text, sha256 = read_text(path)
    data = parse_json(text, shown(path))
    if not isinstance(data, dict):
        raise InputError(f"{shown(path)}: the top level must be a JSON object {{...}}")
    return data, sha256


def read_text(
    path: StrPath, needed: str = "a JSON object", max_bytes: int = MAX_DOCUMENT_BYTES
) -> tuple[str, str]:
    """Read a UTF-8 text file and the SHA-256 of its bytes (hexadecimal).

    Parameters
    ----------
    path
        A file or a pipe.
    needed
        What the file should hold, for the message about an empty one.
    max_bytes
        A larger file is refused.

    Raises
    ------
    InputError
        One line that begins with the path, if the file is missing, a directory, empty, too large
        or not UTF-8 (a byte order mark is accepted).
    """
    where = shown(path)
    raw = _read_bytes(path, where, max_bytes)
    if not raw.strip():
        raise InputError(f"{where}: the file is empty; {needed} is needed")
    try:
        if b"\0" in raw:  # UTF-16 of plain ASCII is valid UTF-8, with a zero byte per character
            raise ValueError
        text = raw.decode("utf-8-sig")
    except ValueError:
        raise InputError(
            f"{where}: not a UTF-8 text file (UTF-16 or binary?); save it as UTF-8"
        ) from None
    return text, hashlib.sha256(raw).hexdigest()


def _read_bytes(path: StrPath, where: str, max_bytes: int) -> bytes:
    try:
        with open(path, "rb") as file:
            # The size is unknown for a pipe, so the read itself is bounded as well.
            size = os.fstat(file.fileno()).st_size
            raw = b"" if size > max_bytes else file.read(max_bytes + 1)
    except FileNotFoundError:
        raise InputError(f"{where}: no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{where}: is a directory; name a file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{where}: cannot be read: {reason}") from None
    if max(size, len(raw)) > max_bytes:
        raise InputError(f"{where}: larger than {max_bytes >> 20} MiB; not a document")
    return raw


def parse_json(text: str, where: str) -> Any:
    """Parse JSON as :func:`read_json` does, whatever its top level.

    Raises
    ------
    InputError
        One line that begins with ``where``.
    """
    try:
        data = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
        if "\\u" in text:  # half a surrogate pair is valid JSON but not text that can be printed
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where}: not valid JSON at line {error.lineno}, column {error.colno}: "
            f"{error.msg}; is the file complete?"
        ) from None
    except RecursionError:
        raise InputError(f"{where}: nested too deep; not a document") from None
    except UnicodeEncodeError:
        raise InputError(f"{where}: holds half a surrogate pair (\\ud800...); remove it") from None
    except _ConstantError as error:
        raise InputError(
            f"{where}: {error} is not a JSON number{_place(text, str(error))}; give a finite number"
        ) from None
    except ValueError as error:
        raise InputError(f"{where}: {shown(str(error))}") from None
    return data


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f'the key "{key}" appears twice in one object; keep one')
        result[key] = value
    return result


def _no_constant(token: str) -> NoReturn:
    raise _ConstantError(token)


class _ConstantError(ValueError):
    """NaN, Infinity or -Infinity in place of a number."""


def _place(text: str, token: str) -> str:
    """Say where a word first stands outside of the strings of a JSON text."""
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|-?[A-Za-z]+', text):
        if found[0] == token:
            start = found.start()
            column = start - text.rfind("\n", 0, start)
            line = text.count("\n", 0, start) + 1
            return f" (line {line}, column {column})"
    return ""


def _finite(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise ValueError(f"the number {token[:40]} is too large")
    return value


def _whole(token: str) -> int:
    if len(token) > MAX_DIGITS:
        raise ValueError(f"the number {token[:MAX_DIGITS]}... is too large")
    return int(token)
