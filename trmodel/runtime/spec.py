"""What a subserver needs to know to start, as plain values that fit on its standard input."""

from __future__ import annotations

from typing import Any

import msgspec

from trmodel.runtime.messages import FRONT


class SubserverSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model's process.

    Attributes
    ----------
    model
        Its place among ``names``.
    addresses
        Of every model, in order.
    engine
        ``kind`` and the engine's own arguments.
    supervised
        Whether a front end on this machine started it: it ends when that process does.
    parent
        That process.
    folder
        Of the local sockets, to be removed once that process is gone.
    """

    model: int
    names: tuple[str, ...]
    front_address: str
    addresses: tuple[str, ...]
    incarnation: int
    engine: dict[str, Any]
    policy: str
    policy_options: dict[str, Any]
    transition_probability: tuple[tuple[float, ...], ...]
    committed_tokens: tuple[tuple[float, ...], ...]
    max_batch: int
    hold_s: float
    keys: str | None = None
    supervised: bool = True
    parent: int = 0
    folder: str | None = None

    @property
    def places(self) -> dict[int, str]:
        """Every place's address, the front end's included."""
        return {FRONT: self.front_address, **dict(enumerate(self.addresses))}
