"""A request that an engine cannot go on with ends with an error; the others go on."""

import os

import httpx
import pytest
from executor_client import Client, nothing_is_left

from trmodel.runtime.desk import Desk
from trmodel.runtime.engines.replay import ReplayEngine
from trmodel.runtime.messages import FRONT, PeerReq, Sampling
from trmodel.runtime.policies import Scripted
from trmodel.runtime.request import StepResult
from trmodel.runtime.scheduler import Scheduler
from trmodel.runtime.table import TableInForce

BAD = 666
FAULTY = f'''
from trmodel.runtime.engines.replay import ReplayEngine

step = ReplayEngine.step


def faulty(self, batch):
    """As it is, but for requests of one seed that the large model has gone on with for a while."""
    result = step(self, batch)
    for place, request in enumerate(batch.requests):
        if self.model == 1 and request.sampling.seed == {BAD} and request.committed >= 3:
            result.errors[place] = "out of luck"
    return result


ReplayEngine.step = faulty
'''


class FaultyEngine(ReplayEngine):
    """Cannot make the second step of requests of one seed."""

    def step(self, batch):
        result = super().step(batch)
        for place, request in enumerate(batch.requests):
            if request.sampling.seed == BAD and request.steps == 1:
                result.errors[place] = "out of luck"
        return result


def test_a_step_that_fails_for_one_request_ends_that_one():
    desk = Desk(1, 0, 4, 4, ((1,),))
    # B(n) = n: a failed request that were still waited for would stop the others.
    scheduler = Scheduler(0, 1, Scripted([0]), TableInForce(((1,), (2,), (3,))), 4, 1e9)
    engine = FaultyEngine(0, [0.0])
    good, bad, other = (
        desk.submit((65,), Sampling(max_tokens=4, seed=seed)) for seed in (1, BAD, 2)
    )
    sizes = []
    for now in range(12):
        scheduler.hear(desk.live)
        outgoing, desk.outgoing = desk.outgoing, []
        for _, message in outgoing:
            if isinstance(message, PeerReq):
                scheduler.receive(message, now)
        if batch := scheduler.next_batch(now):
            sizes.append(len(batch))
            batch.started_at = 0.0
            for place, message in scheduler.complete(engine.step(batch), now):
                assert place == FRONT
                desk.receive(0, message)
        for number in scheduler.released:
            engine.release(number)
        scheduler.released.clear()
    ends = {event.request: event.finish for event in desk.events if event.finish}
    assert ends == {good: "length", bad: "error: the engine failed: out of luck", other: "length"}
    tokens = [event for event in desk.events if event.request == bad and event.token_ids]
    assert len(tokens) == 1, "what came before the failed step was told"
    assert sizes == [3, 3, 2, 2]
    assert not desk.entries
    assert not scheduler.requests
    assert engine.kv_tokens == 0


def test_a_policy_is_asked_in_vain_about_a_request_that_failed():
    """It is asked about the batch as it is; nothing comes of what it says, or of its own fault."""

    class Picky(Scripted):
        def commit(self, request, token_ids, source, destination):
            raise AssertionError("there is no token")

    scheduler = Scheduler(0, 2, Picky([1]), TableInForce(((1, 1),)), 4, 1.0)
    desk = Desk(2, 0, 4, 4, ((1, 1),))
    desk.submit((65,), Sampling(seed=BAD))
    for place, message in desk.outgoing:
        if place == 0 and isinstance(message, PeerReq):
            scheduler.receive(message, 0.0)
    scheduler.next_batch(0.0)
    ((place, report),) = scheduler.complete(StepResult([0], errors={0: "no luck"}), 0.0)
    assert (place, report.finish, report.token_ids) == (
        FRONT,
        "error: the engine failed: no luck",
        (),
    )


@pytest.fixture
def faulty_engines(tmp_path, monkeypatch):
    """Every process that is started has the replay engine fail for some requests."""
    (tmp_path / "sitecustomize.py").write_text(FAULTY)
    path = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), path])))


def test_a_request_that_always_fails_does_not_bring_the_server_down(faulty_engines, fronts):
    front = fronts()
    clients = [Client(front, length=40, seed=seed) for seed in (1, 2, 3)]
    bad = [Client(front, length=40, seed=BAD) for _ in range(4)]
    for client in bad:
        assert client.done.wait(20.0)
        assert client.ends == ["error: the engine failed: out of luck"]
        assert len(client.tokens) >= 3
    for client in clients:
        client.check()
    Client(front, length=5, seed=4).check()
    assert front.restarts == [0, 0]
    nothing_is_left(front)


def test_over_http_it_is_the_servers_fault_that_the_engine_failed(faulty_engines, servers):
    server = servers().start().ready()
    body = {"model": "trmodel", "prompt": "a", "max_tokens": 60, "seed": BAD}
    reply = httpx.post(f"{server.url}/v1/completions", json=body)
    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "engine_failed"
    assert "out of luck" in reply.json()["error"]["message"]
    assert "Retry-After" not in reply.headers
