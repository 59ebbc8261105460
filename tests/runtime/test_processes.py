"""The executor as real processes on this machine."""

import asyncio
import os
import signal
import socket
import threading
import time

import httpx
import msgspec
import psutil
import pytest

from trmodel.runtime import front as front_module
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.front import Front, Unavailable
from trmodel.runtime.messages import Sampling
from trmodel.runtime.plan import make_plan
from trmodel.runtime.server.app import make_app

SCRIPT = [0, 1, 0, 0, 1, 1, 0]


def config(**changes):
    return ServerConfig.model_validate(
        {
            "profile": "a100-paper",
            "policy": "scripted",
            "policy_options": {"script": SCRIPT, "drop_on_leaving": [0]},
            "thresholds": "eager",
            "max_live": 8,
        }
        | changes
    )


@pytest.fixture
def serve():
    fronts = []

    def start(**changes):
        front = Front(make_plan(config(**changes)))
        fronts.append(front)
        front.start()
        assert front.wait_until_ready(60.0)
        return front

    yield start
    for front in fronts:
        front.stop()


class Client:
    """Waits for one reply and notes all that it hears."""

    def __init__(self, front, length, seed=0):
        self.events, self.done = [], threading.Event()
        self.front, self.seed, self.length = front, seed, length
        self.number = front.submit((65, 66), Sampling(max_tokens=length, seed=seed), self.hear)

    def hear(self, event):
        self.events.append(event)
        if event.finish:
            self.done.set()

    @property
    def tokens(self):
        return [token for event in self.events for token in event.token_ids]

    @property
    def ends(self):
        return [event.finish for event in self.events if event.finish]


def test_replies_come_whole(serve):
    front = serve()
    clients = [Client(front, length=20 + n, seed=n) for n in range(12)]
    for client in clients:
        assert client.done.wait(30.0)
        assert client.ends == ["length"]
        assert len(client.tokens) == client.length
    empty(front)


def test_a_killed_subserver_is_replaced_and_the_replies_go_on(serve):
    front = serve()
    clients = [Client(front, length=60, seed=n) for n in range(8)]
    for model in (0, 1):
        time.sleep(0.7)
        os.kill(front._processes[model].pid, signal.SIGKILL)
    for client in clients:
        assert client.done.wait(60.0), front.desk.entries
        assert client.ends == ["length"]
    calm = [Client(front, length=60, seed=n) for n in range(8)]
    for client, again in zip(clients, calm, strict=True):
        assert again.done.wait(60.0)
        assert client.tokens == again.tokens
    assert front.restarts == [1, 1]
    empty(front)


def empty(front):
    """No KV is left anywhere, once everybody has been told of the ends."""
    end = time.monotonic() + 10.0
    while time.monotonic() < end:
        held = [front.counted.get(i, {}).get("kv_tokens") for i in range(2)]
        if held == [0, 0] and not front.desk.entries:
            break
        time.sleep(0.1)
    assert held == [0, 0]
    assert psutil.Process().children()


def health_of(front):
    async def ask():
        transport = httpx.ASGITransport(make_app(front))
        async with httpx.AsyncClient(transport=transport, base_url="http://it") as client:
            return (await client.get("/health")).json()

    return asyncio.run(ask())


@pytest.fixture
def lost():
    """Fronts that never become ready, stopped at the end."""
    made = []

    def make(**changes):
        made.append(Front(make_plan(config(**changes))))
        return made[-1]

    yield make
    for front in made:
        front.stop()


def test_a_subserver_that_keeps_ending_fails_the_server(lost):
    front = lost()
    # A latency that is no number: not a wrong setting, which is told at once, but a bug.
    broken = {"kind": "replay", "latency_ms": ["6"]}
    front._specs = [msgspec.structs.replace(spec, engine=broken) for spec in front._specs]
    front.start()
    client = Client(front, length=5)
    assert not front.wait_until_ready(60.0)
    assert client.done.wait(5.0)
    assert client.ends == [f"error: {front.failed}"]
    assert "keeps ending" in front.failed
    with pytest.raises(Unavailable, match="keeps ending"):
        Client(front, length=5)
    assert health_of(front)["status"] == "failed"


def test_requests_end_when_a_remote_model_stays_away(lost, monkeypatch):
    monkeypatch.setattr(front_module, "AWAY_S", 1.0)
    addresses = [f"tcp://127.0.0.1:{port}" for port in free_ports(3)]
    models = dict(zip(["Qwen3-0.6B", "Qwen3-32B"], addresses, strict=False))
    remote = {"front": addresses[2], "models": models, "remote": ["Qwen3-32B"]}
    front = lost(transport=remote)
    front.start()
    client = Client(front, length=5)
    assert client.done.wait(5.0)
    assert client.ends == ["error: Qwen3-32B cannot be reached"]
    with pytest.raises(Unavailable, match="Qwen3-32B cannot be reached"):
        Client(front, length=5)
    assert health_of(front) == {"status": "starting", "missing": front.missing, "reason": None}
    assert "Qwen3-32B" in front.missing


def free_ports(count):
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in made]
    for each in made:
        each.close()
    return ports
