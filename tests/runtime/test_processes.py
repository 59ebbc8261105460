"""The executor as real processes on this machine."""

import os
import signal
import threading
import time

import psutil
import pytest

from trmodel.runtime.config import ServerConfig
from trmodel.runtime.front import Front
from trmodel.runtime.messages import Sampling
from trmodel.runtime.plan import make_plan

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
