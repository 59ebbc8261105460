"""Stands in for triton: kernels can be defined, not run."""

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from trmodel.runtime.engines.sglang.stand_in import not_there, stand_in

__version__ = "3.0.0"


class Kernel:
    """A kernel that was defined."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)

    def __getitem__(self, _: Any) -> NoReturn:
        raise not_there(f"triton kernel {self.__name__}")  # type: ignore[attr-defined]

    __call__ = __getitem__


class Config:
    """What a kernel is to be tuned over."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


def _decorator(*arguments: Any, **options: Any) -> Any:
    """Serve as ``@jit`` and as ``@jit(...)``."""
    if len(arguments) == 1 and callable(arguments[0]) and not options:
        return Kernel(arguments[0])
    return Kernel


def _same(value: Any) -> Any:
    return value


def _cdiv(a: int, b: int) -> int:
    return -(a // -b)


def _next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()


stand_in(
    __name__,
    {
        "Config": Config,
        "autotune": _decorator,
        "backends.backends": {},  # torch asks which devices have one
        "cdiv": _cdiv,
        "heuristics": _decorator,
        "jit": _decorator,
        "knobs.runtime": None,  # no place for the hook that SGLang's own server adds at its start
        "language.constexpr": _same,
        "next_power_of_2": _next_power_of_2,
    },
)
