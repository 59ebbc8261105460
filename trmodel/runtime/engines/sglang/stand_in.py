"""Modules that only have names: for packages that SGLang imports and, on the CPU, never calls.

A stand-in answers to any name, so that ``from triton.tools import X`` or a decorated kernel can be
read; what is then called says that the package is not there, instead of doing something else.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn


class Absent(type):
    """The type of what a stand-in has: classes, to be subclassed or annotated with, never made."""

    def __getattr__(cls, name: str) -> Any:
        return absent(_checked(name), f"{cls.__module__}.{cls.__qualname__}")

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        theirs = cls.__mro__[-2]  # what a class of our caller's was made from
        raise not_there(f"{theirs.__module__}.{theirs.__qualname__}")


def absent(name: str, module: str) -> Absent:
    """Make something of a package that is not there."""
    return Absent(name, (), {"__module__": module})


def not_there(what: str) -> NotImplementedError:
    """Return the error of whoever calls it."""
    return NotImplementedError(f"{what}: {what.split('.')[0]} is not installed, only stood in for")


class StandIn(types.ModuleType):
    """A module with any name that is not a dunder."""

    def __getattr__(self, name: str) -> Any:
        made = absent(_checked(name), self.__name__)
        setattr(self, name, made)
        return made


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds any submodule of one stand-in."""

    def __init__(self, root: str, has: Mapping[str, Any]) -> None:
        self._root, self._has = root, has

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{self._root}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        for name, value in self._has.items():
            inside, _, own = f"{self._root}.{name}".rpartition(".")
            if inside == module.__name__:
                setattr(module, own, value)


def stand_in(name: str, has: Mapping[str, Any]) -> None:
    """Turn the module that is being imported under this name into a stand-in.

    Parameters
    ----------
    has
        What is used while SGLang is imported, and so must work; in submodules as
        ``submodule.name``.
    """
    module, submodules = sys.modules[name], _Submodules(name, has)
    module.__class__ = StandIn
    module.__path__ = []
    submodules.exec_module(module)
    sys.meta_path.append(submodules)


def _checked(name: str) -> str:
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    return name
