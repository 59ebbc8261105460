"""Checks of what a server's file gives a policy, made before anything is served."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any, NoReturn

from trmodel.errors import InputError


class OptionError(InputError):
    """An option of a policy that makes no sense."""

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"{option}: {why}")


@contextmanager
def options_at(where: str) -> Iterator[None]:
    """Say of options that make no sense where they stand in the server's file.

    Raises
    ------
    InputError
        In place of an `OptionError`.
    """
    try:
        yield
    except OptionError as error:
        raise InputError(f"{where}.{error}") from error


def number(option: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a finite number from ``low`` to ``high``.

    Raises
    ------
    OptionError
        If it is none; so do the other checks here.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _refuse(option, f"a number{_within(low, high)}", value)
    if not math.isfinite(value):
        _refuse(option, "finite", value)
    if not low <= value <= high:
        _refuse(option, f"a number{_within(low, high)}", value)
    return float(value)


def whole(option: str, value: Any, low: int) -> int:
    """Return a whole number of at least ``low``."""
    if type(value) is not int or value < low:
        _refuse(option, f"a whole number{_within(low, math.inf)}", value)
    return value


def text(option: str, value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        _refuse(option, "a text", value)
    return value


def sequence(option: str, value: Any) -> Sequence[Any]:
    """Return a list, of whatever it may be."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        _refuse(option, "a list", value)
    return value


def wholes(option: str, value: Any, of: str) -> list[int]:
    """Return a list of whole numbers of at least 0, said to be ``of`` something."""
    if not all(type(item) is int and item >= 0 for item in sequence(option, value)):
        _refuse(option, f"a list of {of}", value)
    return list(value)


def check_names(cls: Any, given: Mapping[str, Any], policy: str, filled: frozenset[str]) -> None:
    """Check that a policy has the options that it is given, and is given those that it needs.

    Parameters
    ----------
    cls
        What makes the policy; one that takes any names is asked for none.
    filled
        Parameters that the server's file does not give.
    """
    try:
        parameters = signature(cls).parameters
    except ValueError:  # it is not written in Python
        return
    names = {
        name: parameter
        for name, parameter in parameters.items()
        if name not in filled
        and parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    has = ", ".join(names) or "none"
    for name in given:
        if name not in names and not takes_any:
            raise OptionError(name, f"{policy} has no such option; it has {has}")
    for name, parameter in names.items():
        if parameter.default is Parameter.empty and name not in given:
            raise OptionError(name, f"{policy} needs it")


def _within(low: float, high: float) -> str:
    if math.isfinite(high):
        return f" from {low:g} to {high:g}"
    return f" of at least {low:g}" if math.isfinite(low) else ""


def _refuse(option: str, needed: str, value: Any) -> NoReturn:
    raise OptionError(option, f"must be {needed}, got {value!r}")
