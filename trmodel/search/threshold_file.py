"""The threshold table of a document that ``trmodel tune`` wrote, for other commands."""

from __future__ import annotations

from collections.abc import Sequence

from trmodel.documents import StrPath, read_json, shown
from trmodel.errors import InputError
from trmodel.search.thresholds import Thresholds
from trmodel.system_checks import is_int


def load_thresholds(path: StrPath, models: Sequence[str]) -> Thresholds:
    """Read the table B(1), B(2), ... of a document that ``trmodel tune -o FILE`` wrote.

    Parameters
    ----------
    models
        Whose thresholds they must be.

    Raises
    ------
    InputError
        If it is no such document, or of other models.
    InfeasibleError
        If some B(n) can deadlock at its n.
    """
    document, _ = read_json(path)
    where, vectors = shown(path), document.get("thresholds")
    if document.get("models") != list(models):
        raise InputError(f"{where}: models: must be {', '.join(models)}, as in the routing")
    if not isinstance(vectors, list) or not all(
        isinstance(B, list) and all(is_int(b) for b in B) for B in vectors
    ):
        raise InputError(f"{where}: thresholds: must be lists of whole numbers, one for each n")
    try:
        return Thresholds(tuple(models), tuple(tuple(B) for B in vectors))
    except InputError as error:
        raise InputError([f"{where}: {problem}" for problem in error.problems]) from None
