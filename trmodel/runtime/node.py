"""A process's place in the network: one thread that sends and receives for all its links.

Every process binds one ROUTER socket, on which it only receives, and connects a DEALER to each
peer, on which it only sends; nothing ever waits for a socket. What a slow or absent peer does not
take stays in the link, which sends it again. Addresses are ``ipc://`` or ``tcp://``; over TCP both
ends prove with CURVE keys who they are, and without keys only loopback is allowed.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec
import zmq

from trmodel.errors import InputError
from trmodel.runtime.keys import Keys, guard
from trmodel.runtime.link import Link, Superseded
from trmodel.runtime.messages import LiveCount, Message, decode, encode

log = logging.getLogger(__name__)

HIGH_WATER = 10_000
"""Frames that a socket queues before it refuses more."""
_TICK_MS = 50

Inbox = Callable[[list[tuple[int, Message]], LiveCount], None]
"""Called on the network thread with what came in, and the newest count of live requests."""


@dataclass(frozen=True)
class _Meet:
    """Stands in the outbox where the peer's old incarnation ends and the new one begins."""

    incarnation: int


class Node:
    """Sends and receives for one process.

    Parameters
    ----------
    me
        Its place.
    addresses
        Of every place, this one's included.
    incarnation
        Of this process.
    inbox
        See `Inbox`; it must not block.
    keys
        CURVE keys, for TCP.
    """

    def __init__(
        self,
        me: int,
        addresses: Mapping[int, str],
        incarnation: int,
        inbox: Inbox,
        keys: Keys | None = None,
    ) -> None:
        self.me, self.inbox = me, inbox
        self.links = {peer: Link(me, peer, incarnation) for peer in addresses if peer != me}
        self.live = LiveCount()
        self.superseded = threading.Event()
        self.malformed = 0
        self._context = zmq.Context()
        self._auth = guard(self._context, keys) if keys else None
        self._receiver = self._socket(zmq.ROUTER, keys, server=True)
        try:
            self._receiver.bind(addresses[me])
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise InputError(
                f"transport: {addresses[me]} cannot be listened on: {error.strerror}"
            ) from None
        self._senders = {}
        for peer in self.links:
            sender = self._socket(zmq.DEALER, keys, server=False)
            sender.setsockopt(zmq.IMMEDIATE, 1)
            sender.setsockopt(zmq.RECONNECT_IVL, 50)
            sender.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
            sender.connect(addresses[peer])
            self._senders[peer] = sender
        self._outbox: deque[tuple[int, Message | _Meet]] = deque()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._awake = threading.Event()
        self._stopping = False
        self._looked_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)

    def _socket(self, kind: int, keys: Keys | None, *, server: bool) -> zmq.Socket[bytes]:
        made = self._context.socket(kind)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.SNDHWM, HIGH_WATER)
        made.setsockopt(zmq.RCVHWM, HIGH_WATER)
        if keys:
            keys.secure(made, server=server)
        return made

    def start(self) -> None:
        """Begin to send and receive."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and close every socket."""
        self._stopping = True
        if self._thread.is_alive():
            self._wake()
            self._thread.join()
        for made in (self._receiver, *self._senders.values()):
            made.close()
        if self._auth is not None:
            self._auth.stop()
        self._context.term()
        self._wake_in.close()
        self._wake_out.close()

    def post(self, outgoing: Iterable[tuple[int, Message]]) -> None:
        """Let messages go to their places; from any thread."""
        self._outbox.extend(outgoing)
        self._wake()

    def tell(self, live: LiveCount) -> None:
        """Let the count of live requests go with every frame; for the front end."""
        if live.version > self.live.version:
            self.live = live

    def meet(self, peer: int, incarnation: int) -> None:
        """Begin anew with a restarted peer, before anything posted from now on; from any thread."""
        self._outbox.append((peer, _Meet(incarnation)))
        self._wake()

    def silent_s(self, peer: int, since: float) -> float:
        """How long nothing was heard of a peer, counted from ``since`` at the earliest.

        Up to when this process last looked: on a busy machine that may be a while ago.
        """
        return self._looked_at - max(since, self.links[peer].heard_at or since)

    @property
    def full(self) -> bool:
        """Whether some peer is so far behind that nothing new should be begun."""
        return any(link.full for link in self.links.values())

    def _wake(self) -> None:
        if not self._awake.is_set():
            self._awake.set()
            with contextlib.suppress(BlockingIOError):
                self._wake_in.send(b"!")

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._receiver, zmq.POLLIN)
        poller.register(self._wake_out.fileno(), zmq.POLLIN)
        while not self._stopping:
            poller.poll(_TICK_MS)
            with contextlib.suppress(BlockingIOError):
                self._wake_out.recv(64)
            self._awake.clear()
            try:
                now = time.monotonic()
                self._receive()
                self._looked_at = now
                self._flush()
            except Superseded:
                log.error("a newer incarnation of this process exists; this one ends")
                self.superseded.set()
                self._stopping = True

    def _receive(self) -> None:
        came: list[tuple[int, Message]] = []
        newest = self.live
        now = time.monotonic()
        for _ in range(HIGH_WATER):
            try:
                data = self._receiver.recv_multipart(zmq.NOBLOCK)[-1]
            except zmq.Again:
                break
            try:
                frame = decode(data)
                link = self.links[frame.source]
            except (msgspec.DecodeError, msgspec.ValidationError, KeyError) as error:
                self.malformed += 1
                log.warning("dropped a malformed frame: %s", error)
                continue
            came += [(frame.source, message) for message in link.accept(frame, now)]
            if frame.live.version > newest.version and frame.incarnation == link.peer_incarnation:
                newest = frame.live
        if came or newest is not self.live:
            self.tell(newest)
            self.inbox(came, self.live)

    def _flush(self) -> None:
        while self._outbox:
            peer, message = self._outbox.popleft()
            if isinstance(message, _Meet):
                self.links[peer].meet(message.incarnation)
            else:
                self.links[peer].post(message)
        now = time.monotonic()
        for peer, link in self.links.items():
            for frame in link.frames(now, self.live):
                # Nobody there, or too slow: the link sends it again.
                with contextlib.suppress(zmq.Again):
                    self._senders[peer].send(encode(frame), zmq.NOBLOCK)
