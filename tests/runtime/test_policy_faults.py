"""A policy that does wrong costs the requests that it was asked about, and nothing else."""

import pytest

from trmodel.runtime.desk import Desk
from trmodel.runtime.messages import FRONT, PeerReq, Sampling
from trmodel.runtime.policies import Policy
from trmodel.runtime.request import StepResult
from trmodel.runtime.scheduler import Scheduler
from trmodel.runtime.table import TableInForce

BAD = 666


class Faulty(Policy):
    """Stays at the model, but for requests of one seed, of which it makes a mess."""

    def __init__(self, fault):
        self.fault = fault

    def _raise_at(self, place, request):
        if self.fault == place and request.sampling.seed == BAD:
            raise ZeroDivisionError(place)

    def route(self, batch, result):
        bad = [request.sampling.seed == BAD for request in batch.requests]
        if not any(bad):
            return [0] * len(batch)
        self._raise_at("route", batch.requests[bad.index(True)])
        if isinstance(self.fault, int):
            return [self.fault if it else 0 for it in bad]
        others = {"none": None, "short": [0] * (len(batch) - 1), "words": ["x"] * len(batch)}
        return others.get(self.fault, bad)

    def commit(self, request, token_ids, source, destination):
        self._raise_at("commit", request)
        return token_ids

    def send(self, request, source, destination):
        self._raise_at("send", request)
        return super().send(request, source, destination)

    def receive(self, message, request):
        self._raise_at("receive", request)


@pytest.mark.parametrize(
    "fault", ["route", "commit", "send", "receive", "none", "short", "words", 2, -1]
)
def test_a_wrong_policy_ends_its_request_with_an_error_and_serving_goes_on(fault, caplog):
    desk = Desk(2, 0, 4, 4, ((1, 1),))
    scheduler = Scheduler(0, 2, Faulty(fault), TableInForce(((1, 1),)), 1, 1.0)
    requests = [desk.submit((65,), Sampling(max_tokens=2, seed=seed)) for seed in (BAD, 1)]
    released = []
    for now in range(8):
        scheduler.hear(desk.live)
        outgoing, desk.outgoing = desk.outgoing, []
        told = []
        for place, message in outgoing:
            if place == 0 and isinstance(message, PeerReq):
                told += scheduler.receive(message, now)
        if batch := scheduler.next_batch(now):
            told += scheduler.complete(StepResult([66] * len(batch)), now)
        for place, message in told:
            if place == FRONT:
                desk.receive(0, message)
        released += scheduler.released
        scheduler.released.clear()
    ends = {event.request: event.finish for event in desk.events if event.finish}
    assert ends[requests[0]].startswith("error: the policy failed: ")
    assert ends[requests[1]] == "length"
    assert not desk.entries
    assert not scheduler.requests
    assert set(released) == set(requests)
    assert "the policy failed" in caplog.text
