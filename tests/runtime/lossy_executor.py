"""The whole executor but for sockets and clocks, with a network that does its worst.

Desk, schedulers, links and tables are the real ones. Frames are delivered, repeated, reordered,
delayed and dropped; models crash, stay away and come back, one or several at a time, and what was
replaced may work on for a while; requests are aborted; thresholds change.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from socketless_model import Model

from trmodel.runtime.desk import Busy, Desk
from trmodel.runtime.link import Link
from trmodel.runtime.messages import (
    FRONT,
    Sampling,
    decode,
    encode,
)
from trmodel.runtime.request import State

MAX_LIVE = 4
PROMPT_TOKEN = 65
PLACES = st.integers(0, 5)
"""A model: the rest by their number."""


class LossyExecutor(RuleBasedStateMachine):
    """What happens and what must hold whatever the tokens are; see `test_invariants`."""

    def make_policy(self):
        raise NotImplementedError

    def make_engine(self, place):
        raise NotImplementedError

    @initialize(M=st.integers(2, 3))
    def start(self, M):
        self.M = M
        self.now = 0.0
        self.wire = []
        self.desk = Desk(M, 0, MAX_LIVE, 8, ((1,) * M,))
        self.models = [self.make_model(i, 1) for i in range(M)]
        self.replaced = []
        """Models in whose place others are, though they do not know it yet."""
        self.front = {i: Link(FRONT, i, 1) for i in range(M)}
        for link in self.front.values():
            link.meet(1)
        self.told = {}
        self.ended = {}
        self.aborted = set()
        self.wanted = {}

    def make_model(self, place, incarnation):
        return Model(place, self.M, incarnation, self.make_policy(), self.make_engine(place))

    # what happens

    @rule(length=st.integers(1, 20), prompt=st.integers(1, 3), rounds=st.integers(0, 12))
    def submit(self, length, prompt, rounds):
        """A request comes, and all is well for a while: else few would ever be under way."""
        sampling = Sampling(max_tokens=length, seed=length)
        try:
            number = self.desk.submit((PROMPT_TOKEN,) * prompt, sampling)
        except Busy:
            return
        self.told[number] = []
        self.wanted[number] = (prompt, length)
        self.pump()
        self.work(rounds)

    @precondition(lambda self: self.desk.entries)
    @rule(data=st.data())
    def abort(self, data):
        number = data.draw(st.sampled_from(sorted(self.desk.entries)))
        self.desk.abort(number)
        self.aborted.add(number)
        self.pump()

    @precondition(lambda self: self.wire)
    @rule(place=st.integers(0, 6), fate=st.sampled_from(["deliver"] * 6 + ["repeat", "drop"]))
    def network(self, place, fate):
        place = min(place, len(self.wire) - 1)
        frame = self.wire[place] if fate == "repeat" else self.wire.pop(place)
        if fate != "drop":
            self.deliver(*frame)

    @precondition(lambda self: self.wire)
    @rule(frames=st.integers(1, 8))
    def network_in_order(self, frames):
        for _ in range(min(frames, len(self.wire))):
            self.deliver(*self.wire.pop(0))

    @rule(model=PLACES)
    def step(self, model):
        """A whole step, or the end of one that runs."""
        self.begin(model, early=True)
        self.end(model)

    @rule(model=PLACES, early=st.booleans())
    def begin(self, model, early):
        """Start a step; its engine reads at once, or late."""
        model = self.models[model % self.M]
        if model.up and model.batch is None and model.start_step(self.now) and early:
            model.read()

    @rule(model=PLACES)
    def end(self, model):
        model = self.models[model % self.M]
        if model.up and model.batch is not None:
            model.end_step(self.now)
            self.pump()

    @rule(by=st.sampled_from([0.01, 0.3, 1.0]))
    def tick(self, by):
        self.now += by
        self.pump()

    @rule(model=PLACES, lost=st.sets(st.integers(FRONT, 2)))
    def crash(self, model, lost):
        """What it sent to some is lost with it, to others still under way; it hears no more."""
        model = self.models[model % self.M]
        model.up = False
        self.wire = [
            (place, frame)
            for place, frame in self.wire
            if place not in lost or decode(frame).source != model.place
        ]

    @rule(model=PLACES)
    def come_back(self, model):
        """The next incarnation starts, whether the one before is down or goes on unheard."""
        model %= self.M
        old, incarnation = self.models[model], self.models[model].incarnation + 1
        if old.up:
            self.replaced.append(old)
        self.models[model] = self.make_model(model, incarnation)
        self.front[model].meet(incarnation)
        self.desk.restarted(model, incarnation)
        self.pump()

    @precondition(lambda self: self.replaced)
    @rule(which=PLACES)
    def replaced_model_works_on(self, which):
        model = self.replaced[which % len(self.replaced)]
        if model.batch is not None or model.start_step(self.now):
            model.end_step(self.now)
        self.pump()

    @rule(wanted=st.lists(st.integers(1, 4), min_size=3, max_size=3))
    def new_thresholds(self, wanted):
        vectors = []
        for n in range(1, MAX_LIVE + 1):
            left, row = n - 1, []
            for b in wanted[: self.M]:
                row.append(1 + min(b - 1, left))
                left -= row[-1] - 1
            vectors.append(tuple(row))
        self.desk.propose(tuple(vectors))
        self.pump()

    # how it happens

    def work(self, rounds):
        """Deliver everything and make the steps that can be made, so many times."""
        for _ in range(rounds):
            self.deliver_all()
            for model in self.models:
                if model.up and (model.batch is not None or model.start_step(self.now)):
                    model.end_step(self.now)
                    self.pump()

    def pump(self):
        for place, message in self.desk.outgoing:
            self.front[place].post(message)
        self.desk.outgoing.clear()
        for place, link in self.front.items():
            for frame in link.frames(self.now, self.desk.live):
                self.wire.append((place, encode(frame)))
        for model in [*self.models, *self.replaced]:
            for peer, link in model.links.items() if model.up else ():
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
        elif self.models[place].up and frame.to_incarnation <= self.models[place].incarnation:
            self.models[place].take(frame, self.now)
            self.models[place].idle()
        self.pump()

    def deliver_all(self):
        wire, self.wire = self.wire, []
        for frame in wire:
            self.deliver(*frame)

    # what must hold

    @invariant()
    def replies_are_right(self):
        """Invariants 1, 2 and 6."""
        for number, tokens in self.told.items():
            self.check(number, tokens)
            if number in self.ended:
                assert self.ended[number] == "length"
                assert len(tokens) == self.wanted[number][1]
                assert number not in self.aborted

    def check(self, number, tokens):
        """These are what a reply must begin with."""
        raise NotImplementedError

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
        self.replaced.clear()
        for i, model in enumerate(self.models):
            if not model.up:
                self.come_back(i)
        for _ in range(3000):
            busy = any(model.batch is not None for model in self.models)
            if not (self.desk.entries or self.wire or busy):
                break
            self.now += 0.3
            self.pump()
            self.deliver_all()
            for model in self.models:
                while model.batch is not None or model.start_step(self.now):
                    model.end_step(self.now)
                    self.pump()
        assert not self.desk.entries, "a request never ended"
        for _ in range(10):
            self.now += 0.6
            self.pump()
            self.deliver_all()
        for model in self.models:
            assert not model.scheduler.requests
            assert model.engine.kv_tokens == 0
        for number in self.told:
            assert (number in self.ended) != (number in self.aborted)
        self.replies_are_right()
