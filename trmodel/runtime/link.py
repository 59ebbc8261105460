"""A link: every message posted at one end arrives at the other once and in order.

Nothing here sends; frames are made and taken in, and the transport may lose, repeat, delay or
reorder them. Messages are numbered; the receiver acknowledges the next number that it expects;
what stays unacknowledged is sent again, all of it, in order.

When a peer is restarted both directions begin anew: what was posted to the old incarnation is
handed back to the caller and not sent to the new one, which would not know what it is about.
"""

from __future__ import annotations

from collections import deque

from trmodel.runtime.messages import Frame, LiveCount, Message

RESEND_AFTER_S = 0.25
ACKNOWLEDGE_AFTER_S = 0.02
"""An acknowledgement waits so long for a message to go with: a frame of its own wakes the peer for
nothing else, which costs a running engine time."""
HEARTBEAT_S = 0.5
MESSAGES_IN_FRAME = 256
_AT_ONCE = float("-inf")
CAPACITY = 20_000
"""Messages that may wait for an acknowledgement before the link says it is full."""


class Superseded(Exception):
    """A newer incarnation of this process exists: this one must end."""


class Link:
    """One end of a link.

    Parameters
    ----------
    me, peer
        Places of the two processes.
    incarnation
        This process's own.
    """

    def __init__(self, me: int, peer: int, incarnation: int) -> None:
        self.me, self.peer, self.incarnation = me, peer, incarnation
        self.peer_incarnation = 0
        self.heard_at: float | None = None
        self.resent = 0
        self.dropped = 0
        self._begin()

    def _begin(self) -> None:
        self._unacknowledged: deque[Message] = deque()
        self._first = 0
        """Number of the first unacknowledged message."""
        self._sent = 0
        """Number of the first message that was never sent."""
        self._expected = 0
        self._owes_since: float | None = None
        """Since when the peer is to hear what was received; None if it has."""
        self._told: LiveCount | None = None
        self._spoke_at = self._moved_at = float("-inf")

    @property
    def full(self) -> bool:
        """Whether so much is unacknowledged that nothing more should be begun."""
        return len(self._unacknowledged) >= CAPACITY

    @property
    def unacknowledged(self) -> list[Message]:
        """Messages that the peer is not known to have."""
        return list(self._unacknowledged)

    def post(self, message: Message) -> None:
        """Let a message go with the next frames."""
        self._unacknowledged.append(message)

    def frames(self, now: float, live: LiveCount) -> list[Frame]:
        """Return what is to be sent now: what is new, what is overdue, or a sign of life."""
        if self.peer_incarnation == 0:
            return self._hello(now, live)
        if self._sent > self._first and now - self._moved_at >= RESEND_AFTER_S:
            self.resent += self._sent - self._first
            self._sent, self._moved_at = self._first, now
        end = self._first + len(self._unacknowledged)
        made = []
        while self._sent < end:
            if self._sent == self._first:
                self._moved_at = now
            start = self._sent - self._first
            count = min(end - self._sent, MESSAGES_IN_FRAME)
            messages = tuple(self._unacknowledged[start + m] for m in range(count))
            made.append(self._frame(messages, live))
            self._sent += count
        owed = self._owes_since is not None and now - self._owes_since >= ACKNOWLEDGE_AFTER_S
        due = owed or now - self._spoke_at >= HEARTBEAT_S
        if not made and (due or live != self._told):
            made.append(self._frame((), live))
        if made:
            self._spoke_at, self._told, self._owes_since = now, live, None
        return made

    def _hello(self, now: float, live: LiveCount) -> list[Frame]:
        """Before the peer is known frames carry no messages: their numbers would mean nothing."""
        if now - self._spoke_at < HEARTBEAT_S:
            return []
        self._spoke_at = now
        return [self._frame((), live)]

    def _frame(self, messages: tuple[Message, ...], live: LiveCount) -> Frame:
        return Frame(
            source=self.me,
            incarnation=self.incarnation,
            to_incarnation=self.peer_incarnation,
            acknowledged=self._expected,
            first=self._sent,
            messages=messages,
            live=live,
        )

    def accept(self, frame: Frame, now: float) -> list[Message]:
        """Take in a frame and return the messages that are new, in order.

        Raises
        ------
        Superseded
            If it is addressed to a newer incarnation of this process.
        """
        if frame.to_incarnation > self.incarnation:
            raise Superseded
        if frame.incarnation < self.peer_incarnation:
            self.dropped += 1
            return []
        if frame.incarnation > self.peer_incarnation:
            self.meet(frame.incarnation)
        self.heard_at = now
        if frame.to_incarnation != self.incarnation:
            # Meant for whoever was here before, or its sender does not know me yet: numbers and
            # acknowledgements are of another conversation. My answer tells it who I am.
            self._owe(_AT_ONCE)
            self.dropped += bool(frame.messages)
            return []
        if frame.acknowledged > self._first:
            for _ in range(min(frame.acknowledged - self._first, len(self._unacknowledged))):
                self._unacknowledged.popleft()
                self._first += 1
            self._sent = max(self._sent, self._first)
            self._moved_at = now
        if frame.messages:
            self._owe(now)
        fresh = self._expected - frame.first
        if not 0 <= fresh < len(frame.messages):
            return []  # all known already, or something before it is still missing
        self._expected = frame.first + len(frame.messages)
        return list(frame.messages[fresh:])

    def _owe(self, since: float) -> None:
        self._owes_since = min(since, since if self._owes_since is None else self._owes_since)

    def meet(self, peer_incarnation: int) -> list[Message]:
        """Begin anew with a newer incarnation of the peer; return what the old one may lack."""
        if peer_incarnation <= self.peer_incarnation:
            return []
        left, met_before = self.unacknowledged, self.peer_incarnation > 0
        self.peer_incarnation = peer_incarnation
        self._owe(_AT_ONCE)
        if not met_before:
            return []
        self._begin()
        return left
