"""What must always hold, tested by number with a network that does its worst.

The whole executor is here but for sockets and clocks: desk, schedulers, links, table. Frames are
delivered, repeated, reordered, delayed and dropped; models crash and come back; requests are
aborted; thresholds change. At the end the network heals and everything must finish.

1. Every output position is committed once, in order.
2. A message older than the last accepted handoff, or repeated, changes nothing.
3. When a request ends anywhere, every model frees its KV.
4. No batch that cannot fill is waited for.
5. Every threshold vector in use is live.
6. The requests of a model that died are rebuilt and go on.
"""

import os

from executor_client import SCRIPT, faultless
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trmodel.runtime.desk import Busy, Desk
from trmodel.runtime.engines.replay import ReplayEngine
from trmodel.runtime.link import Link
from trmodel.runtime.messages import (
    FRONT,
    Incarnations,
    Inventory,
    InventoryReply,
    NewTable,
    PeerReq,
    Sampling,
    TableHeld,
    UseTable,
    decode,
    encode,
)
from trmodel.runtime.policies import Scripted
from trmodel.runtime.request import State
from trmodel.runtime.scheduler import Scheduler
from trmodel.runtime.table import TableInForce

QUICK = os.environ.get("QUICK")
MAX_LIVE = 4
HOLD_S = 1e9
"""Nothing is ever held long enough: only the thresholds can start a batch."""


class Model:
    """A subserver without its process."""

    def __init__(self, place, M, incarnation):
        self.place, self.M, self.incarnation = place, M, incarnation
        self.links = {
            peer: Link(place, peer, incarnation) for peer in [FRONT, *range(M)] if peer != place
        }
        self.scheduler = Scheduler(
            place, M, Scripted(SCRIPT, drop_on_leaving=(0,)), TableInForce(((1,) * M,)), 3, HOLD_S
        )
        self.engine = ReplayEngine(place, [0.0])

    def take(self, frame, now):
        messages = self.links[frame.source].accept(frame, now)
        self.scheduler.hear(frame.live)
        for message in messages:
            self.handle(message, now)
        self.free()

    def handle(self, message, now):
        if isinstance(message, PeerReq):
            self.post(self.scheduler.receive(message, now))
        elif isinstance(message, NewTable):
            self.scheduler.table.hold(message.version, message.vectors)
            self.post([(FRONT, TableHeld(self.place, message.version))])
        elif isinstance(message, UseTable):
            self.scheduler.table.use(message.version)
        elif isinstance(message, Incarnations):
            for peer, incarnation in enumerate(message.of_model):
                if peer != self.place:
                    self.links[peer].meet(incarnation)
        elif isinstance(message, Inventory):
            owned = self.scheduler.inventory(dict(message.known))
            self.post([(FRONT, InventoryReply(self.place, message.query, owned))])

    def post(self, outgoing):
        for peer, message in outgoing:
            self.links[peer].post(message)

    def free(self):
        for number in self.scheduler.released:
            self.engine.release(number)
        self.scheduler.released.clear()


class Executor(RuleBasedStateMachine):
    M = 2

    @initialize()
    def start(self):
        self.now = 0.0
        self.wire = []
        self.desk = Desk(self.M, 0, MAX_LIVE, 8, ((1, 1),))
        self.models = [Model(i, self.M, 1) for i in range(self.M)]
        self.front = {i: Link(FRONT, i, 1) for i in range(self.M)}
        for link in self.front.values():
            link.meet(1)
        self.told = {}
        self.ended = {}
        self.aborted = set()
        self.wanted = {}

    # what happens

    @rule(length=st.integers(1, 9), prompt=st.integers(1, 3))
    def submit(self, length, prompt):
        try:
            number = self.desk.submit((65,) * prompt, Sampling(max_tokens=length, seed=length))
        except Busy:
            return
        self.told[number] = []
        self.wanted[number] = (prompt, length)
        self.pump()

    @precondition(lambda self: self.desk.entries)
    @rule(data=st.data())
    def abort(self, data):
        number = data.draw(st.sampled_from(sorted(self.desk.entries)))
        self.desk.abort(number)
        self.aborted.add(number)
        self.pump()

    @precondition(lambda self: self.wire)
    @rule(data=st.data(), fate=st.sampled_from(["deliver"] * 6 + ["repeat", "drop"]))
    def network(self, data, fate):
        place = data.draw(st.integers(0, min(len(self.wire) - 1, 6)))
        frame = self.wire[place] if fate == "repeat" else self.wire.pop(place)
        if fate != "drop":
            self.deliver(*frame)

    @rule(model=st.integers(0, 1))
    def step(self, model):
        self.run_step(self.models[model])

    @rule(by=st.sampled_from([0.01, 0.3, 1.0]))
    def tick(self, by):
        self.now += by
        self.pump()

    @rule(model=st.integers(0, 1))
    def crash(self, model):
        incarnation = self.models[model].incarnation + 1
        self.models[model] = Model(model, self.M, incarnation)
        # What it sent may still be under way; what was sent to it goes nowhere.
        self.front[model].meet(incarnation)
        self.desk.restarted(model, incarnation)
        self.pump()

    @rule(small=st.integers(1, 3), large=st.integers(1, 4))
    def new_thresholds(self, small, large):
        vectors = tuple(
            (min(small, n), min(large, n - min(small, n) + 1)) for n in range(1, MAX_LIVE + 1)
        )
        self.desk.propose(vectors)
        self.pump()

    # how it happens

    def pump(self):
        for place, message in self.desk.outgoing:
            self.front[place].post(message)
        self.desk.outgoing.clear()
        for place, link in self.front.items():
            for frame in link.frames(self.now, self.desk.live):
                self.wire.append((place, encode(frame)))
        for model in self.models:
            for peer, link in model.links.items():
                for frame in link.frames(self.now, model.scheduler.live):
                    self.wire.append((peer, encode(frame)))
        for event in self.desk.events:
            self.told[event.request] += event.token_ids
            if event.finish:
                assert event.request not in self.ended, "ended twice"
                self.ended[event.request] = event.finish
        self.desk.events.clear()

    def deliver(self, place, data):
        frame = decode(data)
        if place == FRONT:
            for message in self.front[frame.source].accept(frame, self.now):
                self.desk.receive(frame.source, message)
        elif frame.to_incarnation <= self.models[place].incarnation:
            self.models[place].take(frame, self.now)
        self.pump()

    def run_step(self, model):
        batch = model.scheduler.next_batch(self.now)
        if batch is None:
            return False
        batch.started_at = -1e9
        model.post(model.scheduler.complete(model.engine.step(batch), self.now))
        model.free()
        self.pump()
        return True

    # what must hold

    @invariant()
    def outputs_are_those_without_faults(self):
        """Invariants 1, 2 and 6: every position once, in order, and as if nothing had happened."""
        for number, tokens in self.told.items():
            prompt, length = self.wanted[number]
            expected = faultless(prompt, length, seed=length)
            assert tokens == expected[: len(tokens)]
            if number in self.ended:
                assert tokens == expected
                assert number not in self.aborted

    @invariant()
    def thresholds_in_use_are_live(self):
        """Invariant 5, for whatever mixture of tables and counts the models hold."""
        n = self.desk.n
        counts = {model.scheduler.live.n for model in self.models}
        if n >= 1 and counts == {n}:
            B = [m.scheduler.table.threshold(i, n) for i, m in enumerate(self.models)]
            assert sum(b - 1 for b in B) < n

    @invariant()
    def a_request_has_at_most_one_owner(self):
        for number, entry in self.desk.entries.items():
            owners = [
                model
                for model in self.models
                if number in model.scheduler.requests
                and model.scheduler.requests[number].state is not State.pending
                and model.scheduler.requests[number].handoff >= entry.handoff
            ]
            assert len(owners) <= 1

    def teardown(self):
        """Invariants 3 and 4: when the network heals all ends, and nothing is left behind."""
        for _ in range(3000):
            if not self.desk.entries and not self.wire:
                break
            self.now += 0.3
            self.pump()
            wire, self.wire = self.wire, []
            for frame in wire:
                self.deliver(*frame)
            for model in self.models:
                while self.run_step(model):
                    pass
        assert not self.desk.entries, "a request never ended"
        for _ in range(10):
            self.now += 0.6
            self.pump()
            wire, self.wire = self.wire, []
            for frame in wire:
                self.deliver(*frame)
        for model in self.models:
            assert not model.scheduler.requests
            assert model.engine.kv_tokens == 0
        for number in self.told:
            assert (number in self.ended) != (number in self.aborted)
        self.outputs_are_those_without_faults()


TestExecutor = Executor.TestCase
TestExecutor.settings = settings(
    max_examples=150,
    stateful_step_count=60,
    deadline=None,
    phases=[Phase.explicit, Phase.generate] if QUICK else list(Phase),
    suppress_health_check=list(HealthCheck),
)
