"""Weights of learned routers: the layout of a safetensors file, checked before anything is loaded.

Only the header is read when a policy is made, so that a file that does not fit is told at once, and
torch is not imported in a process that runs no model. Tensors are loaded in float32 to the device
of the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from trmodel.runtime.policies.options import OptionError, text

Layout = Mapping[str, tuple[int | str, ...]]
"""Shapes by tensor; a name in place of a size stands for the same size wherever it appears."""


class RouterWeights:
    """The tensors of one file.

    Parameters
    ----------
    path
        A safetensors file.
    read
        How a tensor is read from the open file, given its name; whole by default.

    Attributes
    ----------
    shapes
        Of all tensors in the file.
    metadata
        Texts that the file has besides.

    Raises
    ------
    OptionError
        If it cannot be read or is no safetensors file.
    """

    def __init__(self, path: str, read: Callable[[Any, str], Any] | None = None) -> None:
        from safetensors import SafetensorError, safe_open

        self.path = text("weights", path)
        self._read = read or (lambda file, name: file.get_tensor(name))
        self._names: tuple[str, ...] = ()
        self._on: dict[Any, dict[str, Any]] = {}
        if not Path(self.path).is_file():
            raise OptionError("weights", f"{self.path}: there is no such file")
        try:
            with safe_open(self.path, framework="np") as file:
                names = list(file.keys())
                self.shapes: dict[str, tuple[int, ...]] = {
                    name: tuple(file.get_slice(name).get_shape()) for name in names
                }
                self.metadata: dict[str, str] = file.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise OptionError(
                "weights",
                f"{self.path}: is no safetensors file ({error}); docs/policies.md says "
                "how to convert one of torch",
            ) from None

    def expect(self, layout: Layout, *, allowed: Collection[str] | None = None) -> dict[str, int]:
        """Check the tensors that will be used, and return the sizes behind the names.

        Parameters
        ----------
        allowed
            What else the file may hold; None for anything.

        Raises
        ------
        OptionError
            Naming the first tensor that is missing, too many, or of another shape.
        """
        sizes: dict[str, int] = {}
        for name, wanted in layout.items():
            shape = self.shapes.get(name)
            if shape is None:
                raise OptionError("weights", f"{self.path}: has no tensor {name}")
            known = [
                size if isinstance(size, int) else sizes.setdefault(size, has)
                for size, has in zip(wanted, shape, strict=False)
            ]
            if list(shape) != known or len(shape) != len(wanted):
                needed = tuple(sizes.get(s, s) if isinstance(s, str) else s for s in wanted)
                raise OptionError(
                    "weights",
                    f"{self.path}: {name} has shape {_shown(shape)}, needed is {_shown(needed)}",
                )
        if allowed is not None:
            for name in self.shapes.keys() - layout.keys() - set(allowed):
                raise OptionError(
                    "weights", f"{self.path}: {name} belongs to another kind of router"
                )
        self._names = tuple(layout)
        return sizes

    def on(self, device: Any) -> dict[str, Any]:
        """Return the tensors, in float32 on a device."""
        if device not in self._on:
            import torch
            from safetensors import safe_open

            with safe_open(self.path, framework="pt") as file:
                self._on[device] = {
                    name: self._read(file, name).to(device, torch.float32) for name in self._names
                }
        return self._on[device]

    def check_width(self, what: str, has: int, width: int) -> None:
        """Refuse a model that the router was not made for.

        Raises
        ------
        OptionError
            If what the model has is not of this width.
        """
        if has != width:
            raise OptionError(
                "weights", f"{self.path}: are for {what} of {width}, the small model's have {has}"
            )


def linear(name: str, out: int | str, into: int | str) -> dict[str, tuple[int | str, ...]]:
    """Return the layout of a linear layer with bias."""
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def norm(name: str, width: int | str) -> dict[str, tuple[int | str, ...]]:
    """Return the layout of a norm with scale and shift."""
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _shown(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
