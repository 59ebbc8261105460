"""Health, metrics, counts and thresholds."""

import asyncio
import json
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from trmodel.cli.main import main
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.front import Front
from trmodel.runtime.plan import make_plan
from trmodel.runtime.server.app import make_app


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The document that ``trmodel tune -o`` writes."""
    path = tmp_path_factory.mktemp("tuned") / "thresholds.json"
    assert main(["tune", "--profile", "a100-paper", "--N", "4", "-o", str(path), "--quiet"]) == 0
    return json.loads(path.read_text())


def ask(server, tokens, n=8):
    body = {"model": "trmodel", "prompt": "a", "max_tokens": tokens, "n": n, "seed": 1}
    assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code == 200


def metrics_of(server):
    reply = httpx.get(f"{server.url}/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(reply.text))
    assert all(family.name.startswith("trmodel:") for family in families)
    assert all(family.documentation for family in families if "created" not in family.name)
    return {
        (
            sample.name.removeprefix("trmodel:"),
            *(value for _, value in sorted(sample.labels.items())),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def test_health(server):
    reply = httpx.get(f"{server.url}/health")
    assert reply.status_code == 200
    assert reply.json() == {"status": "ready", "missing": [], "reason": None}


def test_metrics_agree_with_what_was_served(server):
    ask(server, 20)
    server.wait_until_empty()
    before, counted = metrics_of(server), server.stats()["counted"]
    ask(server, 25)
    server.wait_until_empty()
    after = metrics_of(server)
    gained = {key: value - before.get(key, 0.0) for key, value in after.items()}
    assert gained["requests_total", "length"] == 8
    assert gained["output_tokens_total",] == 8 * 25
    assert gained["prompt_tokens_total",] == 1
    assert gained["admission_wait_seconds_count",] == 8
    assert gained["time_to_first_token_seconds_count",] == 8
    assert gained["inter_token_seconds_count",] == 8 * 24
    small, large = server.stats()["models"]
    # Labels come in the order of their names: the destination before the model.
    committed = sum(value for key, value in gained.items() if key[0] == "committed_tokens_total")
    assert committed == 8 * 25
    assert gained["handoffs_total", small] == gained["transitions_total", large, small] > 0
    assert gained["handoffs_total", large] == gained["transitions_total", small, large]
    for i, name in enumerate((small, large)):
        now = server.stats()["counted"][i]["batches"]
        was = counted[i]["batches"]
        batches = sum(entry[0] for entry in now.values()) - sum(e[0] for e in was.values())
        assert gained["batch_size_count", name] == gained["step_seconds_count", name] == batches
        assert after["batch_size_bucket", "+Inf", name] == after["batch_size_count", name]
        one = now.get("1", [0])[0]
        assert after["batch_size_bucket", "1.0", name] == one
        assert after["threshold", name] == 1
        assert after["restarts_total", name] == 0
    assert (after["active_requests",], after["queued_requests",], after["ready",]) == (0, 0, 1)


def in_use(server):
    """The thresholds, once every model holds them."""
    end = time.monotonic() + 20.0
    while True:
        shown = httpx.get(f"{server.url}/thresholds").json()
        if shown["in_use"] or time.monotonic() > end:
            assert shown["in_use"]
            return shown
        time.sleep(0.05)


def test_thresholds_are_shown_and_replaced(server, tuned):
    shown = in_use(server)
    assert shown["thresholds"][0] == [1, 1]
    put = httpx.put(f"{server.url}/thresholds", json=tuned)
    assert put.status_code == 200, put.text
    assert put.json()["version"] == shown["version"] + 1
    assert put.json()["thresholds"] == tuned["thresholds"]
    ask(server, 10)
    assert in_use(server)["version"] == put.json()["version"]
    server.wait_until_empty()
    assert server.stats()["counted"][1]["table_version"] == put.json()["version"]


def test_thresholds_that_do_not_fit_are_refused(server, tuned):
    def put(document, query=""):
        reply = httpx.put(f"{server.url}/thresholds{query}", json=document)
        return reply.status_code, reply.json().get("error", {}).get("message", "")

    version = httpx.get(f"{server.url}/thresholds").json()["version"]
    code, message = put(tuned | {"models": ["a", "b"]})
    assert code == 409
    assert "force=true" in message
    other = tuned | {"profile": {"name": "h100"}}
    code, message = put(other)
    assert code == 409
    assert "profile" in message
    code, message = put(tuned | {"thresholds": [[2, 1]]})
    assert code == 400
    assert "deadlock" in message
    # Force is about names: thresholds that can deadlock are never taken.
    assert put(other | {"thresholds": [[2, 1]]}, "?force=true")[0] == 400
    for wrong in ([[1]], [[0, 1]], [[1, True]], [[1, 1.5]], [], "x", None):
        assert put(tuned | {"thresholds": wrong})[0] == 400
    assert put([])[0] == 400
    for models in (3, [1]):
        assert put(tuned | {"models": models})[0] == 409
    assert httpx.get(f"{server.url}/thresholds").json()["version"] == version
    for named in (other, tuned | {"models": 3}):
        assert put(named, "?force=true")[0] == 200


def test_requests_can_be_looked_at(server):
    body = {"model": "trmodel", "prompt": "abc", "max_tokens": 500, "n": 10, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body):
        shown = httpx.get(f"{server.url}/debug/requests").json()["requests"]
    assert [each["state"] for each in shown] == ["live"] * 8 + ["queued"] * 2
    assert {each["prompt_tokens"] for each in shown} == {3}
    server.wait_until_empty()


async def replies(app, host, headers, document):
    transport = httpx.ASGITransport(app, client=(host, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://it") as client:
        put = await client.put("/thresholds", json=document, headers=headers)
        return put.status_code, (await client.get("/debug/requests", headers=headers)).status_code


@pytest.mark.parametrize(
    ("key", "host", "headers", "code"),
    [
        (None, "127.0.0.1", {}, 200),
        (None, "::1", {}, 200),
        (None, "10.0.0.7", {}, 403),
        (None, "127.0.0.1", {"X-Forwarded-For": "10.0.0.7"}, 403),
        ("secret", "127.0.0.1", {}, 401),
        ("secret", "127.0.0.1", {"Authorization": "Bearer wrong"}, 401),
        ("secret", "10.0.0.7", {"Authorization": "Bearer secret"}, 200),
    ],
)
def test_who_may_change_thresholds(key, host, headers, code, tuned):
    config = {"profile": "a100-paper", "thresholds": "eager", "http": {"admin_key": key}}
    front = Front(make_plan(ServerConfig.model_validate(config)))
    try:
        assert asyncio.run(replies(make_app(front), host, headers, tuned)) == (code, code)
        assert front.desk.table_version == (2 if code == 200 else 1)
    finally:
        front.stop()
