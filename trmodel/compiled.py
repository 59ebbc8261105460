"""How the package compiles its numerical kernels, and how their cache stays true.

Numba keeps compiled code beside the sources and sees when the file of a compiled function changed,
but not when the file of one that it calls did: after an edit of the launch rule the enumeration
would go on with the old one. So on import every cached kernel older than any source with compiled
code is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

_HOMES = ("markov", "simulate")
"""The packages whose kernels call each other; the others' are by themselves, as numba wants it."""
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function on its first call, to run outside the interpreter lock; cached.

    Where neither the installation nor the user's cache directory can be written, every process
    compiles anew.
    """
    return _compiled(function)


def borrowing(function: Function) -> Function:
    """Compile as above a function that allocates nothing and keeps no array.

    It counts no references to arrays. For kernels that take them in tuples: counting takes fifty
    times as long as what it guards.
    """
    return _compiled(function, _nrt=False)


def reordering(function: Function) -> Function:
    """Compile as above a function whose sums may be taken in any order, and so several at once."""
    return _compiled(function, fastmath={"reassoc", "contract"}, error_model="numpy")


def _compiled(function: Function, **options: Any) -> Function:
    try:
        dispatcher = njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        dispatcher = njit(nogil=True, **options)(function)
    return cast(Function, dispatcher)


def forget_stale_kernels(package: Path = Path(__file__).parent) -> None:
    """Delete the cached kernels that are older than a source from which kernels are compiled."""
    homes = [package / name for name in _HOMES]
    sources = [package / "launch.py", *(file for home in homes for file in home.glob("*.py"))]
    newest = max(source.stat().st_mtime for source in sources)
    for folder in (package, *homes):
        for index in (folder / "__pycache__").glob("*.nbi"):
            try:
                if index.stat().st_mtime < newest:
                    index.unlink()
            except OSError:
                continue  # another process was faster, or the installation is read-only


forget_stale_kernels()
