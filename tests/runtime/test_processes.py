"""A front end and subservers that do not come up, or stall."""

import asyncio

import httpx
import msgspec
import pytest
from executor_client import Client, make_config
from server_process import free_ports

from trmodel.runtime import front as front_module
from trmodel.runtime.front import Front, Unavailable
from trmodel.runtime.plan import make_plan
from trmodel.runtime.server.app import make_app


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
        made.append(Front(make_plan(make_config(**changes))))
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
