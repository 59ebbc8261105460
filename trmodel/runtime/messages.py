"""The vocabulary of the executor on one page: requests, and what processes say to each other.

A *request* is owned by exactly one model at a time. Each model keeps an *anchor*: how many of the
request's tokens its KV cache holds. A *handoff* passes ownership on and carries only the tokens
behind the receiver's anchor. Every handoff of a request has a higher number than the one before,
so that a message that is late or repeated is known by its number.

A process is restarted under a higher *incarnation*; what an earlier one still sends is dropped.
Models are named by their place 0..M-1 in the server's list, the front end is ``FRONT``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec

FRONT = -1
"""The front end's place."""


class Kind(IntEnum):
    """What a `PeerReq` asks of its receiver."""

    new = 0
    """Start, or rebuild: everything is sent, whatever the receiver may hold."""
    handoff = 1
    finished = 2
    aborted = 3


class Sampling(msgspec.Struct, frozen=True, array_like=True):
    """How a request's tokens are chosen and when it ends."""

    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    stop_ids: tuple[int, ...] = ()


class PeerReq(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A request on its way to a model.

    Attributes
    ----------
    handoff
        Number of this handoff; higher than any before it.
    token_ids
        The tokens from position ``anchor`` on, prompt included.
    prompt
        Length of the prompt; tokens behind it are committed output.
    steps
        Steps that models have made on it so far: what a policy's decision is keyed by.
    seen
        For each model, how many of the tokens it holds.
    extra
        Fields of the policy's own.
    left_at
        When the step that hands it over ended, in seconds of the sender's monotonic clock, which
        means something on the sender's machine only; 0 if unknown.
    """

    request: int
    handoff: int
    source: int
    destination: int
    kind: Kind
    anchor: int = 0
    token_ids: tuple[int, ...] = ()
    prompt: int = 0
    steps: int = 0
    seen: tuple[int, ...] = ()
    sampling: Sampling = Sampling()
    extra: dict[str, Any] = {}
    left_at: float = 0.0


class Report(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """What one step did to one request, told to the front end.

    Attributes
    ----------
    steps
        Steps made on the request, this one included: every step has one report, so that the front
        end knows where the tokens belong.
    owner
        The model that goes on with it.
    finish
        ``stop`` or ``length`` if this ends it, ``error: `` and why if it cannot go on, else empty.
    extra
        Fields of the policy's own after the step.
    """

    request: int
    handoff: int
    steps: int
    token_ids: tuple[int, ...]
    owner: int
    finish: str = ""
    extra: dict[str, Any] = {}


class Lost(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A handoff that its receiver cannot use because it lacks what comes before the anchor."""

    request: int
    handoff: int
    model: int


class NewTable(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Thresholds B(1), B(2), ...: from now on the smaller of these and the present ones apply."""

    version: int
    vectors: tuple[tuple[int, ...], ...]


class TableHeld(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The sender has the thresholds of this version."""

    model: int
    version: int


class UseTable(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Every model has this version: it alone applies from now on."""

    version: int


class Incarnations(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The current incarnation of every model."""

    of_model: tuple[int, ...]


class Inventory(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Which requests do you own? ``known`` gives the output tokens that the front end has."""

    query: int
    known: tuple[tuple[int, int], ...]


class Owned(msgspec.Struct, frozen=True, array_like=True):
    """A request that a model owns, with the output from ``position`` on and the policy's fields."""

    request: int
    handoff: int
    steps: int
    position: int
    token_ids: tuple[int, ...]
    extra: dict[str, Any] = {}


class InventoryReply(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The answer to an `Inventory`."""

    model: int
    query: int
    owned: tuple[Owned, ...]


class Counted(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """What a model has counted since it started; a later one replaces it, none is missed.

    Attributes
    ----------
    values
        Plain values; see `trmodel.runtime.counters`.
    """

    model: int
    incarnation: int
    values: dict[str, Any]


Message = (
    PeerReq
    | Report
    | Lost
    | NewTable
    | TableHeld
    | UseTable
    | Incarnations
    | Inventory
    | InventoryReply
    | Counted
)


class LiveCount(msgspec.Struct, frozen=True, array_like=True):
    """How many requests can run now, by the front end's count; a higher version is newer.

    Attributes
    ----------
    oldest
        No request below this number is live: what is remembered of those can be forgotten.
    """

    version: int = 0
    n: int = 0
    oldest: int = 0


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """What travels: messages in order, and an acknowledgement of those received.

    Attributes
    ----------
    incarnation, to_incarnation
        Of the sender, and of the receiver as the sender knows it (0: not yet).
    first
        Number of the first message.
    acknowledged
        Number of the next message that the sender expects.
    """

    source: int
    incarnation: int
    to_incarnation: int
    acknowledged: int
    first: int
    messages: tuple[Message, ...]
    live: LiveCount


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Write a frame as it travels."""
    return _encoder.encode(frame)


def decode(data: bytes) -> Frame:
    """Read a frame.

    Raises
    ------
    msgspec.DecodeError
        If it is none.
    """
    return _decoder.decode(data)
