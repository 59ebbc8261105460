"""A subserver: one model's process.

The network thread takes in what clients and peers send; the main thread starts batches, runs the
engine and hands requests on. They share the scheduler under one lock, which is never held while
the engine makes a pass or a socket is used, so that neither waits for the other's work.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import threading
import time

import msgspec

from trmodel.errors import InputError, TrmodelError
from trmodel.runtime.counters import Counters
from trmodel.runtime.engines.base import Engine
from trmodel.runtime.keys import load_keys
from trmodel.runtime.leaving import Leaving
from trmodel.runtime.log import log_to_stderr
from trmodel.runtime.messages import (
    FRONT,
    Counted,
    Incarnations,
    Inventory,
    InventoryReply,
    LiveCount,
    Message,
    NewTable,
    PeerReq,
    Report,
    TableHeld,
    UseTable,
)
from trmodel.runtime.node import Node
from trmodel.runtime.policies import Policy, find_policy
from trmodel.runtime.request import Batch
from trmodel.runtime.scheduler import Outgoing, Scheduler
from trmodel.runtime.spec import SubserverSpec
from trmodel.runtime.table import TableInForce

log = logging.getLogger(__name__)

FRONT_SILENT_S = 3.5
"""When nothing was heard of the front end for so long, it is gone.

All of its requests must be freed within 5 s: the rest is for the running step to end.
"""
COUNT_EVERY_S = 0.5
SWITCH_S = 0.0005
"""The engine's thread must get the interpreter as soon as its step is over."""
_CHECK_EVERY_S = 0.1


class Subserver:
    """One model: its network, scheduler and engine.

    Parameters
    ----------
    spec
        What to run.
    engine
        In place of the one that the spec names.
    """

    def __init__(self, spec: SubserverSpec, engine: Engine | None = None) -> None:
        self.spec = spec
        M = len(spec.names)
        policy = make_policy(spec)
        self.engine = make_engine(spec, policy.needs) if engine is None else engine
        # Eager launching can never deadlock: it holds until the front end sends its table.
        table = TableInForce(((1,) * M,))
        self.scheduler = Scheduler(spec.model, M, policy, table, spec.max_batch, spec.hold_s)
        self.counters = Counters(M)
        self._begun: Batch | None = None
        """The batch that the engine is to run next."""
        self._near = [_on_this_machine(address) for address in spec.addresses]
        self._changed = threading.Condition()
        self._stopping = False
        self.front_gone = False
        """Whether it ended because the front end is gone or was started anew."""
        self._front_incarnation = 0
        keys = None if spec.keys is None else load_keys(spec.keys)
        self.node = Node(spec.model, spec.places, spec.incarnation, self._inbox, keys)

    def run(self) -> None:
        """Serve until stopped or superseded."""
        # What has been loaded stays: the collector need not look through it again and again.
        gc.collect()
        gc.freeze()
        self.node.start()
        next_count = next_check = time.monotonic()
        try:
            while not (self._stopping or self.node.superseded.is_set()):
                now = time.monotonic()
                if now >= next_count:
                    self.node.post([(FRONT, self._counted())])
                    next_count = now + COUNT_EVERY_S
                if now >= next_check:
                    self._check_front()
                    next_check = now + _CHECK_EVERY_S
                batch = self._next_batch(min(next_count, next_check))
                if batch is not None:
                    self._step(batch)
        finally:
            self.node.stop()
            with self._changed:
                self.scheduler.abort_all()
                self._release()

    def stop(self) -> None:
        """End after the running step."""
        self._stopping = True

    def _next_batch(self, until: float) -> Batch | None:
        """Wait for a batch that may start, at most until a time."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                self._begin(now)
                self._release()
                if self._begun is not None:
                    batch, self._begun = self._begun, None
                    return batch
                end = min(until, self.scheduler.next_deadline() or until)
                if now >= end:
                    return None
                self._changed.wait(end - now)
        return None

    def _begin(self, now: float) -> None:
        """Start a batch if the launch rule says so.

        It starts when what makes it possible happens, on whichever thread that is; waking the
        engine is part of the step.
        """
        batch = self.scheduler.next_batch(now)
        if batch is not None:
            self.counters.started(batch)
            self._begun = batch

    def _step(self, batch: Batch) -> None:
        result = self.engine.step(batch)
        ended_at = time.monotonic()
        with self._changed:
            outgoing = self.scheduler.complete(result, ended_at)
            self._release()
            for _, message in outgoing:
                if isinstance(message, Report):
                    away = message.owner != self.spec.model
                    self.counters.moved(message.owner, len(message.token_ids), away=away)
            self.node.post(outgoing)
            handed_on_at = time.monotonic()
            for request in batch.requests:
                request.came_at = handed_on_at  # of those that stay
            self.counters.stepped(batch, ended_at, handed_on_at)
            self._begin(handed_on_at)

    def _release(self) -> None:
        for number in self.scheduler.released:
            self.engine.release(number)
        self.scheduler.released.clear()

    def _counted(self) -> Counted:
        with self._changed:
            values = self.counters.values(
                waiting=self.scheduler.waiting,
                running=self.scheduler.running,
                held=len(self.scheduler.requests),
                kv_tokens=self.engine.kv_tokens,
                threshold=self.scheduler.table.threshold(self.spec.model, self.scheduler.live.n),
                table_version=self.scheduler.table.version,
                resent=sum(link.resent for link in self.node.links.values()),
                pid=os.getpid(),
                now_s=time.monotonic(),
            )
        return Counted(self.spec.model, self.spec.incarnation, values)

    def _check_front(self) -> None:
        """End when the front end is gone.

        If it was only slow it finds a new incarnation in this one's place and rebuilds what this
        one had.
        """
        heard_at = self.node.links[FRONT].heard_at
        silent = heard_at is not None and self.node.silent_s(FRONT, heard_at) > FRONT_SILENT_S
        if silent:
            self._give_up()

    def _front_anew(self) -> bool:
        """Whether the front end was started anew: it must not find what the one before left."""
        incarnation = self.node.links[FRONT].peer_incarnation
        anew = self._front_incarnation not in (0, incarnation)
        self._front_incarnation = self._front_incarnation or incarnation
        return anew

    def _give_up(self) -> None:
        if not self.front_gone:
            log.warning("%s: the front end is gone; its requests are given up", self._name)
        self.front_gone = self._stopping = True

    @property
    def _name(self) -> str:
        return self.spec.names[self.spec.model]

    def _inbox(self, came: list[tuple[int, Message]], live: LiveCount) -> None:
        with self._changed:
            now = time.monotonic()
            if self._front_anew():
                self._give_up()
                came = []
            self.scheduler.hear(live)
            for _, message in came:
                outgoing = self._handle(message, now)
                if outgoing:
                    self.node.post(outgoing)
            self._begin(now)
            self._changed.notify()

    def _handle(self, message: Message, now: float) -> list[Outgoing]:
        me, table = self.spec.model, self.scheduler.table
        if isinstance(message, PeerReq):
            waited = self.scheduler.waiting
            outgoing = self.scheduler.receive(message, now)
            joined = self.scheduler.waiting > waited
            if joined and message.source >= 0 and message.left_at and self._near[message.source]:
                self.counters.arrived(message.source, now - message.left_at)
            return outgoing
        if isinstance(message, NewTable):
            table.hold(message.version, message.vectors)
            return [(FRONT, TableHeld(me, message.version))]
        if isinstance(message, UseTable):
            table.use(message.version)
        elif isinstance(message, Incarnations):
            for peer, incarnation in enumerate(message.of_model):
                if peer != me:
                    self.node.meet(peer, incarnation)
        elif isinstance(message, Inventory):
            owned = self.scheduler.inventory(dict(message.known))
            return [(FRONT, InventoryReply(me, message.query, owned))]
        return []


def _on_this_machine(address: str) -> bool:
    """Whether a peer's monotonic clock is this one's."""
    return address.startswith(("ipc://", "tcp://127.0.0.1:", "tcp://localhost:", "tcp://[::1]:"))


def orphaned(spec: SubserverSpec) -> bool:
    """Whether the process that started this one is gone."""
    return spec.supervised and os.getppid() != spec.parent


def make_policy(spec: SubserverSpec) -> Policy:
    """Make the policy that a spec names; see `find_policy`."""
    return find_policy(
        spec.policy, spec.policy_options, spec.transition_probability, spec.committed_tokens
    )


def make_engine(spec: SubserverSpec, needs: frozenset[str]) -> Engine:
    """Make the engine that a spec names.

    Parameters
    ----------
    needs
        What the policy wants of every step.

    Raises
    ------
    InputError
        If there is none of that kind, or it cannot be made.
    """
    arguments = dict(spec.engine)
    kind = arguments.pop("kind")
    if kind == "replay":
        from trmodel.runtime.engines.replay import ReplayEngine

        return ReplayEngine(spec.model, **arguments)
    if kind == "sglang":
        from trmodel.runtime.engines.sglang.options import EngineOptions
        from trmodel.runtime.engines.sglang.start import start_engine

        requests = arguments.pop("requests")
        return start_engine(spec.model, msgspec.convert(arguments, EngineOptions), requests, needs)
    raise InputError(f"engine: {kind} is not known; there are replay and sglang")


def run_remote(spec: SubserverSpec) -> None:
    """Run a subserver that no front end looks after, until SIGTERM or SIGINT.

    It outlives front ends: whenever one is gone it begins anew, with the same engine.
    """
    leaving = Leaving((signal.SIGINT, signal.SIGTERM))
    engine = make_engine(spec, make_policy(spec).needs)
    sys.setswitchinterval(SWITCH_S)
    incarnation = 0
    while True:
        incarnation = max(incarnation + 1, time.time_ns() // 10**6)
        server = Subserver(msgspec.structs.replace(spec, incarnation=incarnation), engine)
        leaving.by(server.stop)
        server.run()
        if leaving.told or not server.front_gone:
            break


def main() -> int:
    """Run the subserver whose spec comes on standard input."""
    log_to_stderr("INFO")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the front end says when to end
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=SubserverSpec)

    def clear() -> None:
        if orphaned(spec) and spec.folder is not None:
            shutil.rmtree(spec.folder, ignore_errors=True)

    leaving = Leaving((signal.SIGTERM,), lambda: orphaned(spec), clear)
    sys.setswitchinterval(SWITCH_S)
    try:
        server = Subserver(spec)
    except TrmodelError as error:
        log.error("%s: %s", spec.names[spec.model], error)
        return error.exit_code
    leaving.by(server.stop)
    server.run()
    clear()
    return 0


if __name__ == "__main__":
    sys.exit(main())
