"""A subserver without its process, sockets and clock."""

from trmodel.runtime.link import Link
from trmodel.runtime.messages import (
    FRONT,
    Incarnations,
    Inventory,
    InventoryReply,
    NewTable,
    PeerReq,
    TableHeld,
    UseTable,
)
from trmodel.runtime.scheduler import Scheduler
from trmodel.runtime.table import TableInForce

MAX_BATCH = 3
HOLD_S = 1e9
"""Nothing is ever held long enough: only the thresholds can start a batch."""


class Model:
    """Does with messages and batches what `trmodel.runtime.subserver.Subserver` does."""

    def __init__(self, place, M, incarnation, policy, engine):
        self.place, self.incarnation = place, incarnation
        self.links = {
            peer: Link(place, peer, incarnation) for peer in [FRONT, *range(M)] if peer != place
        }
        table = TableInForce(((1,) * M,))
        self.scheduler = Scheduler(place, M, policy, table, MAX_BATCH, HOLD_S)
        self.engine = engine
        self.batch = self.result = None
        self.up = True

    def take(self, frame, now):
        messages = self.links[frame.source].accept(frame, now)
        self.scheduler.hear(frame.live)
        for message in messages:
            self._handle(message, now)

    def _handle(self, message, now):
        if isinstance(message, PeerReq):
            self._post(self.scheduler.receive(message, now))
        elif isinstance(message, NewTable):
            self.scheduler.table.hold(message.version, message.vectors)
            self._post([(FRONT, TableHeld(self.place, message.version))])
        elif isinstance(message, UseTable):
            self.scheduler.table.use(message.version)
        elif isinstance(message, Incarnations):
            for peer, incarnation in enumerate(message.of_model):
                if peer != self.place:
                    self.links[peer].meet(incarnation)
        elif isinstance(message, Inventory):
            owned = self.scheduler.inventory(dict(message.known))
            self._post([(FRONT, InventoryReply(self.place, message.query, owned))])

    def _post(self, outgoing):
        for peer, message in outgoing:
            self.links[peer].post(message)

    def start_step(self, now):
        """Start a batch if one may start; whether it did."""
        self.batch = self.scheduler.next_batch(now)
        self._release()
        return self.batch is not None

    def read(self):
        """Let the engine work, at whatever moment of the step."""
        if self.result is None:
            self.batch.started_at = float("-inf")
            self.result = self.engine.step(self.batch)

    def end_step(self, now):
        self.read()
        self._post(self.scheduler.complete(self.result, now))
        self.batch = self.result = None
        self._release()

    def idle(self):
        """What the engine's thread does between steps."""
        if self.batch is None:
            self._release()

    def _release(self):
        for number in self.scheduler.released:
            self.engine.release(number)
        self.scheduler.released.clear()
