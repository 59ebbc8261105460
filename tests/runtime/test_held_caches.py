"""A cache is gone on from only as far as it holds the request that is told."""

import pytest
from untrusting_engine import Origins, UntrustingEngine

from trmodel.runtime.messages import FRONT, Kind, PeerReq, Sampling
from trmodel.runtime.policies import Policy
from trmodel.runtime.request import State
from trmodel.runtime.scheduler import Scheduler
from trmodel.runtime.table import TableInForce

SAMPLING = Sampling(max_tokens=100)
PROMPT = (65, 66)


class Chosen(Policy):
    """Goes where the test says, with or without the token."""

    destination, keeps = 0, True

    def route(self, batch, result):
        return [self.destination] * len(batch)

    def commit(self, request, token_ids, source, destination):
        return token_ids if self.keeps else []


class Place:
    """Model 0 of two, with an engine that refuses a stale cache."""

    def __init__(self):
        self.policy = Chosen()
        self.scheduler = Scheduler(0, 2, self.policy, TableInForce(((1, 1),)), 8, 1.0)
        self.engine = UntrustingEngine(0, Origins())

    def tell(self, handoff, token_ids, *, kind=Kind.handoff, anchor=0, steps=0):
        self.scheduler.receive(
            PeerReq(
                request=1,
                handoff=handoff,
                source=FRONT if kind is Kind.new else 1,
                destination=0,
                kind=kind,
                anchor=anchor,
                token_ids=tuple(token_ids),
                prompt=len(PROMPT),
                steps=steps,
                seen=(0, 0),
                sampling=SAMPLING,
            ),
            0.0,
        )

    def step(self, destination=0, *, keeps=True):
        """Return what had been read of the request when its token was made."""
        batch = self.scheduler.next_batch(0.0)
        result = self.engine.step(batch)
        self.policy.destination, self.policy.keeps = destination, keeps
        self.scheduler.complete(result, 0.0)
        return self.engine.origins.of[result.token_ids[0]].read

    @property
    def request(self):
        return self.scheduler.requests[1]


@pytest.fixture
def place():
    made = Place()
    made.tell(1, PROMPT, kind=Kind.new)
    return made


def test_the_last_token_is_read_again_where_nothing_is_new(place):
    """Its own token was dropped, and so was the other model's: no token to go on from is new."""
    assert place.step(destination=1, keeps=False) == PROMPT
    place.tell(3, (), anchor=2, steps=2)
    assert place.step() == PROMPT
    assert place.request.anchor == 2


def test_the_last_token_is_read_again_where_a_request_stays_without_its_token(place):
    for _ in range(3):
        assert place.step(keeps=False) == PROMPT


def test_what_another_model_went_on_with_replaces_what_was_held(place):
    """Rebuilt elsewhere from the prompt, it comes with other tokens than were held here."""
    place.step()
    place.step()
    place.step(destination=1)
    told = (*PROMPT, 7, 8, 9, 10)
    place.tell(1 << 32, told, steps=4)
    assert place.request.anchor == len(PROMPT)
    assert place.step() == told


def test_a_rebuilt_request_keeps_what_agrees(place):
    place.step()
    place.step()
    told = tuple(place.request.token_ids)
    place.tell(1 << 32, told, kind=Kind.new, steps=2)
    assert place.request.anchor == len(told) - 1
    assert place.step() == told


@pytest.mark.parametrize("early", [True, False])
def test_a_request_that_is_rebuilt_while_it_runs_loses_that_step_alone(place, early):
    """Whether its engine has read the tokens by then or not."""
    place.step()
    batch = place.scheduler.next_batch(0.0)
    result = place.engine.step(batch) if early else None
    told = (*PROMPT, 7)
    place.tell(1 << 32, told, kind=Kind.new, steps=1)
    assert place.request.state is State.waiting
    place.scheduler.complete(result or place.engine.step(batch), 0.0)
    assert tuple(place.request.token_ids) == told
    assert not place.scheduler.released
    assert place.step() == told
