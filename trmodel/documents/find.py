"""Find a document by path, or by the name of one shipped with the package."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from trmodel.documents.words import StrPath, shown
from trmodel.errors import InputError


def find_document(name_or_path: StrPath, folder: Path, kind: str) -> tuple[Path, str]:
    """Find a document by path or, failing that, by the name of one shipped with the package.

    Parameters
    ----------
    name_or_path
        A file that exists wins. Otherwise a name, with or without ``.json``.
    folder
        Where the shipped documents of this kind lie.
    kind
        What to call it in a message: "profile" or "routing".

    Returns
    -------
    The file, and its origin in words: the path as given, or "built-in NAME".

    Raises
    ------
    InputError
        If there is neither, with the built-in names and the closest of them.
    """
    given = os.fspath(name_or_path)
    name = given.removesuffix(".json")
    names = document_names(folder)
    if os.path.exists(given) and not (os.path.isdir(given) and name in names):
        return Path(given), given
    if name in names:
        return folder / f"{name}.json", f"built-in {name}"
    close = difflib.get_close_matches(os.path.basename(name).lower(), names, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise InputError(
        f"{shown(given)}: no such file and no built-in {kind}; {hint}built in: {', '.join(names)}"
    )


def document_names(folder: Path) -> list[str]:
    """Return the names of the documents shipped in a folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.json"))
