"""The standard streams, any of which may be closed, full or without a reader."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from trmodel.errors import InputError


def is_terminal(stream: TextIO | None) -> bool:
    """Say whether somebody sees a stream; Python gives None for one that was closed at start."""
    return stream is not None and stream.isatty()


def require_stdout() -> None:
    """Fail early where :func:`print_out` would fail because stdout is closed.

    Raises
    ------
    InputError
    """
    if sys.stdout is None:
        raise InputError("stdout: is closed; write to a file with -o FILE --quiet")


def print_out(text: str) -> None:
    """Write to stdout; a reader that has seen enough (``| head -1``) is no error.

    Raises
    ------
    InputError
        If stdout cannot be written, as on a full disk.
    """
    require_stdout()
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        raise InputError(f"stdout: cannot be written: {error.strerror or error}") from None


def flush_out() -> None:
    """Write what others have left in stdout's buffer, such as a help text.

    Raises
    ------
    InputError
        If stdout cannot be written, as on a full disk.
    """
    if sys.stdout is not None:
        print_out("")


def say(text: str) -> None:
    """Print one line on stderr; where that is closed or full there is nobody to tell."""
    if sys.stderr is None:  # print would take stdout instead
        return
    try:
        print(one_line(text), file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def complain(line: str) -> None:
    """Print an error, which also ``--quiet`` does not silence."""
    say(f"trmodel: error: {line}")


def one_line(text: str) -> str:
    """Show what cannot be printed, such as line breaks, as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _discard(stream: TextIO) -> None:
    """Let the interpreter's last flush succeed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
