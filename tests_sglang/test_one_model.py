"""One model, served without a routing or a policy, as its users do: its life and its log."""

import json
import signal
import subprocess
import sys
import time

import httpx
import pytest


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):
    """A server that is ready, its address, and the file of its log."""
    folder = tmp_path_factory.mktemp("one")
    settings = {
        "engine": "sglang",
        "models": {"small": {"path": str(models["small"])}},
        "sglang": {"device": "cpu", "dtype": "float32"},
        "thresholds": "eager",
        "http": {"port": 0},
    }
    (folder / "server.yaml").write_text(json.dumps(settings))  # JSON is YAML
    log = folder / "log.txt"
    command = [sys.executable, "-m", "trmodel", "serve", "--config", folder / "server.yaml"]
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file)
    try:
        end = time.monotonic() + 120.0
        while "serving at " not in log.read_text():
            assert time.monotonic() < end, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield process, log.read_text().split("serving at ")[1].split()[0], log
    finally:
        process.kill()
        process.wait()


def test_it_replies_and_leaves_and_its_log_has_no_bars(server):
    process, url, log = server
    body = {"model": "trmodel", "max_tokens": 5, "temperature": 0}
    said = httpx.post(f"{url}/v1/completions", json=body | {"prompt": "hello"}, timeout=60.0)
    assert said.json()["usage"]["completion_tokens"] == 5
    chat = {"messages": [{"role": "user", "content": "hello"}]}
    told = [
        httpx.post(f"{url}/v1/chat/completions", json=body | chat | more, timeout=60.0).json()
        for more in ({}, {"chat_template_kwargs": {"enable_thinking": False}})
    ]
    assert told[0]["choices"] == told[1]["choices"]  # this template knows of no thinking
    assert httpx.get(f"{url}/v1/models").json()["data"][0]["max_model_len"] == 2048
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(10.0) == 0
    assert time.monotonic() - begun < 5.0
    lines = log.read_text().splitlines()
    assert len(lines) == 2, lines
    assert "max_context: 2048 tokens, not 32768: small attends to no more" in lines[0]
    assert lines[1] == f"serving at {url}"
