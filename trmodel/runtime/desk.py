"""The front end's books: what is live, what has been committed, who owns what.

No input or output: messages come in by `receive`, what is to be sent is in `outgoing`, what clients
are to be told in `events`. The desk alone admits and ends requests, so that n is counted in one
place. It holds every committed token, so that any request can be rebuilt anywhere.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from trmodel.errors import InputError, TrmodelError
from trmodel.runtime.messages import (
    FRONT,
    Incarnations,
    Inventory,
    InventoryReply,
    Kind,
    LiveCount,
    Lost,
    Message,
    NewTable,
    PeerReq,
    Report,
    Sampling,
    TableHeld,
    UseTable,
)
from trmodel.runtime.table import Vectors, check_vectors


class Busy(TrmodelError):
    """The server has as many requests as it takes; try again later."""


@dataclass(slots=True, eq=False)
class Entry:
    """One request in the books.

    Attributes
    ----------
    owner, handoff, steps, told_by
        As of the report of its latest step that has come in, and who sent that report.
    early
        Reports of output positions before which something is still missing.
    ends_at
        Output length at which it is complete, once a report said so.
    rebuild_from
        Rebuild it when the report of this handoff is in; -1 for no need.
    """

    id: int
    prompt: tuple[int, ...]
    sampling: Sampling
    owner: int
    output: list[int] = field(default_factory=list)
    handoff: int = 0
    steps: int = 0
    told_by: int = FRONT
    early: dict[int, Report] = field(default_factory=dict)
    finish: str = ""
    ends_at: int = -1
    rebuild_from: int = -1
    live: bool = False

    @property
    def longest(self) -> int:
        """Tokens that it may come to hold."""
        return len(self.prompt) + self.sampling.max_tokens


@dataclass(frozen=True, slots=True)
class Event:
    """News for the client of a request: tokens, and why it ended if it did.

    The first, without tokens, says that it was admitted.
    """

    request: int
    token_ids: tuple[int, ...]
    finish: str = ""


class Desk:
    """The books of a server with M models.

    Parameters
    ----------
    entry
        The model at which requests start.
    max_live
        Requests that run at a time, N.
    max_queue
        Requests that may wait to be admitted.
    vectors
        The first thresholds.
    version
        Where the versions of the count of live requests begin; above those of any desk before it
        of which some process may still tell another.
    kv_tokens
        Tokens that each model's cache holds; None for no limit.
    """

    def __init__(
        self,
        M: int,
        entry: int,
        max_live: int,
        max_queue: int,
        vectors: Vectors,
        version: int = 0,
        kv_tokens: int | None = None,
    ) -> None:
        self.M, self.entry = M, entry
        self._kv_left = math.inf if kv_tokens is None else kv_tokens
        self.max_live, self.max_queue = max_live, max_queue
        self.entries: dict[int, Entry] = {}
        self.outgoing: list[tuple[int, Message]] = []
        self.events: list[Event] = []
        self.live = LiveCount(version)
        self.table_version = 0
        self.vectors: Vectors = ((1,) * M,)
        self.rebuilt = 0
        self._queue: deque[Entry] = deque()
        self._next_id = 1
        self.holders: set[int] = set()
        """Models that hold the newest table."""
        self._incarnations = [1] * M
        self._query = 0
        self._missing_replies: set[int] = set()
        self._lost_models: set[int] = set()
        self._claims: dict[int, int] = {}
        self.propose(vectors)

    @property
    def n(self) -> int:
        """Requests that can run now."""
        return self.live.n

    @property
    def queued(self) -> int:
        """Requests that wait to be admitted."""
        return len(self._queue)

    def submit(self, prompt: tuple[int, ...], sampling: Sampling) -> int:
        """Accept a request and return its number.

        Raises
        ------
        Busy
            If too many wait already.
        """
        entry = Entry(self._next_id, prompt, sampling, self.entry)
        if self.queued >= self.max_queue and (self._queue or not self._has_room(entry)):
            raise Busy(f"{self.n} requests run and {self.queued} wait; try again later")
        self._next_id += 1
        self.entries[entry.id] = entry
        self._queue.append(entry)
        self._admit()
        return entry.id

    def _has_room(self, entry: Entry) -> bool:
        """Whether it can be admitted: it may come to need its whole reply's KV on every model."""
        return self.n < self.max_live and entry.longest <= self._kv_left

    def _admit(self) -> None:
        while self._queue and self._has_room(self._queue[0]):
            entry = self._queue.popleft()
            entry.live = True
            self._kv_left -= entry.longest
            self._count(self.n + 1)
            self.events.append(Event(entry.id, ()))
            self._send_whole(entry)

    def _count(self, n: int) -> None:
        oldest = next(iter(self.entries), self._next_id)
        self.live = LiveCount(self.live.version + 1, n, oldest)

    def _send_whole(self, entry: Entry) -> None:
        """Start or rebuild a request: everything is sent, and no model is trusted to hold any."""
        entry.handoff += 1
        entry.told_by, entry.rebuild_from = FRONT, -1
        message = PeerReq(
            request=entry.id,
            handoff=entry.handoff,
            source=FRONT,
            destination=entry.owner,
            kind=Kind.new,
            token_ids=(*entry.prompt, *entry.output),
            prompt=len(entry.prompt),
            steps=entry.steps,
            seen=(0,) * self.M,
            sampling=entry.sampling,
        )
        self.outgoing.append((entry.owner, message))

    def abort(self, request: int) -> None:
        """End a request because nobody wants it any more; of one that is over, nothing."""
        if request in self.entries:
            self._end(self.entries[request], Kind.aborted)

    def _end(self, entry: Entry, kind: Kind) -> None:
        del self.entries[entry.id]
        if not entry.live:
            self._queue.remove(entry)
            return
        self._kv_left += entry.longest
        self._count(self.n - 1)
        for model in range(self.M):
            message = PeerReq(entry.id, entry.handoff, FRONT, model, kind)
            self.outgoing.append((model, message))
        self._admit()

    def receive(self, source: int, message: Message) -> None:
        """Take in a message of a model."""
        if isinstance(message, Report):
            self._reported(source, message)
        elif isinstance(message, Lost):
            self._lost(message)
        elif isinstance(message, TableHeld):
            self._held(message)
        elif isinstance(message, InventoryReply):
            self._counted_stock(message)

    def _reported(self, source: int, report: Report) -> None:
        entry = self.entries.get(report.request)
        if entry is None:
            return
        if report.steps > entry.steps:
            entry.steps, entry.owner, entry.told_by = report.steps, report.owner, source
            entry.handoff = max(entry.handoff, report.handoff)
        if report.finish:
            entry.finish = report.finish
            entry.ends_at = report.position + len(report.token_ids)
        entry.early[report.position] = _longer(entry.early.get(report.position), report)
        self._commit(entry)
        if entry.id in self.entries and 0 <= entry.rebuild_from <= entry.handoff:
            self._rebuild(entry)

    def _commit(self, entry: Entry) -> None:
        """Append what follows on the output so far, each position once."""
        fresh: list[int] = []
        while entry.early:
            position = min(entry.early)
            length = len(entry.output)
            if position > length:
                break
            tokens = entry.early.pop(position).token_ids[length - position :]
            entry.output += tokens
            fresh += tokens
        ended = entry.ends_at == len(entry.output)
        if fresh or ended:
            self.events.append(Event(entry.id, tuple(fresh), entry.finish if ended else ""))
        if ended:
            self._end(entry, Kind.finished)

    def _lost(self, lost: Lost) -> None:
        entry = self.entries.get(lost.request)
        if entry is None or lost.handoff < entry.handoff:
            return
        entry.rebuild_from = lost.handoff
        if entry.handoff >= lost.handoff and entry.owner == lost.model:
            self._rebuild(entry)

    def _rebuild(self, entry: Entry) -> None:
        self.rebuilt += 1
        self._send_whole(entry)

    def propose(self, vectors: Vectors) -> int:
        """Bring a new table into force, in two steps; return its version.

        Raises
        ------
        InfeasibleError, InputError
            If some B(n) can deadlock, or it is not one threshold for each model.
        """
        if not vectors or any(len(B) != self.M or min(B) < 1 for B in vectors):
            raise InputError(f"thresholds: {self.M} of at least 1 are needed for every n")
        check_vectors(vectors)
        vectors = vectors[: self.max_live]  # no more can be live
        self.table_version += 1
        self.vectors = vectors
        self.holders = set()
        for model in range(self.M):
            self.outgoing.append((model, NewTable(self.table_version, vectors)))
        return self.table_version

    @property
    def table_in_use(self) -> bool:
        """Whether the newest table is held by every model."""
        return len(self.holders) == self.M

    def _held(self, held: TableHeld) -> None:
        if held.version != self.table_version:
            return
        self.holders.add(held.model)
        if self.table_in_use:
            for model in range(self.M):
                self.outgoing.append((model, UseTable(self.table_version)))

    def restarted(self, model: int, incarnation: int) -> None:
        """A model was started anew and knows nothing: find out what was lost with it."""
        self._incarnations[model] = incarnation
        self._lost_models.add(model)
        self.holders.discard(model)
        self.outgoing = [(to, m) for to, m in self.outgoing if to != model]
        self.outgoing.append((model, NewTable(self.table_version, self.vectors)))
        self._query += 1
        self._claims = {}
        self._missing_replies = set(range(self.M)) - self._lost_models
        known = tuple((e.id, len(e.output)) for e in self.entries.values() if e.live)
        for other in range(self.M):
            self.outgoing.append((other, Incarnations(tuple(self._incarnations))))
            if other in self._missing_replies:
                self.outgoing.append((other, Inventory(self._query, known)))
        if not self._missing_replies:
            self._take_stock()

    def _counted_stock(self, reply: InventoryReply) -> None:
        if reply.query != self._query:
            return
        for owned in reply.owned:
            entry = self.entries.get(owned.request)
            if entry is None:
                continue
            self._claims[entry.id] = reply.model
            if owned.steps > entry.steps:
                entry.steps, entry.owner, entry.told_by = owned.steps, reply.model, reply.model
                entry.handoff = max(entry.handoff, owned.handoff)
            report = Report(
                entry.id, owned.handoff, owned.steps, owned.position, owned.token_ids, reply.model
            )
            entry.early[owned.position] = _longer(entry.early.get(owned.position), report)
            self._commit(entry)
        self._missing_replies.discard(reply.model)
        if not self._missing_replies:
            self._take_stock()

    def _take_stock(self) -> None:
        """Rebuild what nobody owns and what no living model has under way."""
        for entry in list(self.entries.values()):
            gone = entry.owner in self._lost_models or entry.told_by in self._lost_models
            if entry.live and gone and entry.id not in self._claims:
                # What is missing before an early report went down with the model.
                entry.early.clear()
                entry.finish, entry.ends_at = "", -1
                self._rebuild(entry)
        self._lost_models.clear()


def _longer(first: Report | None, second: Report) -> Report:
    return second if first is None or len(second.token_ids) >= len(first.token_ids) else first
