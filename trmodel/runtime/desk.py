"""The front end's books: what is live, what has been committed, who owns what.

No input or output: messages come in by `receive`, what is to be sent is in `outgoing`, what clients
are to be told in `events`. The desk alone admits and ends requests, so that n is counted in one
place. It holds every committed token and what the policy notes of a request, so that any can be
rebuilt anywhere.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

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
    Owned,
    PeerReq,
    Report,
    Sampling,
    TableHeld,
    UseTable,
)
from trmodel.runtime.table import Vectors, check_vectors

LINEAGE = 1 << 32
"""Handoff numbers of a rebuilt request begin at the next multiple: above all that are under way."""


class Busy(TrmodelError):
    """The server has as many requests as it takes; try again later."""


@dataclass(slots=True, eq=False)
class Entry:
    """One request in the books.

    Attributes
    ----------
    owner, handoff, steps, output, extra
        As of the last step before which no report is missing: a rebuild begins here.
    early
        Reports of later steps, and who sent them.
    latest
        Owner by the report of the latest step, and who sent that.
    rebuild_from
        Rebuild it when the report of this handoff is in; -1 for no need.
    """

    id: int
    prompt: tuple[int, ...]
    sampling: Sampling
    owner: int
    output: list[int] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    handoff: int = 0
    steps: int = 0
    early: dict[int, tuple[int, Report]] = field(default_factory=dict)
    latest: tuple[int, int] = (FRONT, FRONT)
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
        self._claims: set[int] = set()
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
        entry.handoff = (_lineage(entry.handoff) + 1) * LINEAGE
        entry.early.clear()
        entry.latest, entry.rebuild_from = (entry.owner, FRONT), -1
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
            extra=entry.extra,
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
            # Over, and its model does not know: a handoff to it was still under way when it was
            # started anew, after the others had been told.
            over = PeerReq(report.request, report.handoff, FRONT, source, Kind.aborted)
            self.outgoing.append((source, over))
            return
        if _lineage(report.handoff) != _lineage(entry.handoff):
            return
        if report.finish.startswith("error"):
            self.events.append(Event(entry.id, (), report.finish))
            self._end(entry, Kind.aborted)
            return
        if report.steps <= entry.steps:
            return
        if report.steps > max(entry.early, default=entry.steps):
            entry.latest = (report.owner, source)
        entry.early[report.steps] = (source, report)
        self._commit(entry)
        if entry.id in self.entries and 0 <= entry.rebuild_from <= entry.handoff:
            self._rebuild(entry)

    def _commit(self, entry: Entry, fresh: tuple[int, ...] = ()) -> None:
        """Take over the reports of the steps that follow, one after the other."""
        finish = ""
        while entry.steps + 1 in entry.early:
            entry.steps += 1
            _, report = entry.early.pop(entry.steps)
            entry.owner, entry.handoff, finish = report.owner, report.handoff, report.finish
            entry.output += report.token_ids
            entry.extra = report.extra
            fresh += report.token_ids
        if fresh or finish:
            self.events.append(Event(entry.id, fresh, finish))
        if finish:
            self._end(entry, Kind.finished)

    def _lost(self, lost: Lost) -> None:
        entry = self.entries.get(lost.request)
        if entry is None or _lineage(lost.handoff) != _lineage(entry.handoff):
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
        self._claims = set()
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
            if entry is None or _lineage(owned.handoff) != _lineage(entry.handoff):
                continue
            self._claims.add(entry.id)
            if owned.steps > entry.steps:
                self._catch_up(entry, reply.model, owned)
        self._missing_replies.discard(reply.model)
        if not self._missing_replies:
            self._take_stock()

    def _catch_up(self, entry: Entry, model: int, owned: Owned) -> None:
        """Learn from the owner of a request what reports that were lost would have told."""
        fresh = owned.token_ids[len(entry.output) - owned.position :]
        entry.output += fresh
        entry.owner, entry.handoff, entry.steps = model, owned.handoff, owned.steps
        entry.extra = owned.extra
        entry.early = {steps: told for steps, told in entry.early.items() if steps > owned.steps}
        if not entry.early:
            entry.latest = (model, model)
        self._commit(entry, fresh)

    def _take_stock(self) -> None:
        """Rebuild what nobody owns and what no living model has under way.

        Where a report is missing although later ones are here, it went down with its model, and
        so did the tokens: the request goes on from before it, and all that comes of later ones is
        of an older lineage.
        """
        for entry in list(self.entries.values()):
            gone = entry.early or self._lost_models & set(entry.latest)
            if entry.live and gone and entry.id not in self._claims:
                self._rebuild(entry)
        self._lost_models.clear()


def _lineage(handoff: int) -> int:
    return handoff // LINEAGE
