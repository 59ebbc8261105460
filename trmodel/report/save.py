"""Figures to files: PNG, SVG or PDF by the suffix, whole or not at all, the same bytes each time.

What would change from run to run (dates, random identifiers) is left out, so that a figure under
version control changes only when what it shows does.
"""

from __future__ import annotations

import io
from pathlib import Path
from threading import Lock
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from trmodel.documents import StrPath, check_writable, shown, write_bytes_atomically
from trmodel.errors import InputError

_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
FIGURE_SUFFIXES = tuple(_METADATA)
_SETTINGS = Lock()
"""The salt of SVG identifiers can only be set for the whole process."""


def check_figure_path(path: StrPath) -> None:
    """Fail early where :func:`save_figure` would fail, before a long computation.

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    if _suffix(path) not in FIGURE_SUFFIXES:
        known = ", ".join(FIGURE_SUFFIXES)
        raise InputError(f"{shown(path)}: a figure's name must end in one of {known}")
    check_writable(path)


def save_figure(figure: Figure, path: StrPath, *, dpi: float = 150.0) -> None:
    """Write a figure in the format that the path's suffix names.

    Parameters
    ----------
    figure
        As the functions of this package return it.
    path
        Ends in ``.png``, ``.svg`` or ``.pdf``; an existing file is replaced.
    dpi
        Dots per inch of a PNG.

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    check_figure_path(path)
    suffix = _suffix(path)
    data = io.BytesIO()
    with _SETTINGS, rc_context({"svg.hashsalt": "trmodel"}):
        figure.savefig(data, format=suffix[1:], dpi=dpi, metadata=_METADATA[suffix])
    write_bytes_atomically(path, data.getvalue())


def _suffix(path: StrPath) -> str:
    return Path(path).suffix.lower()
