"""The server as processes: starting, ending, and what is left when one of them dies."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import psutil
import pytest
from server_process import BODY, TRMODEL, Stream, gone


def gone_or_zombies(processes, within_s):
    """Whether they end although their parent cannot take note."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if all(p.status() == psutil.STATUS_ZOMBIE for p in processes):
            return True
        time.sleep(0.1)
    return False


def test_told_to_end_it_lets_replies_end_first(servers):
    server = servers().start().ready()
    models = server.models
    stream = Stream(server, max_tokens=60)
    server.signal()
    time.sleep(0.3)
    health = httpx.get(f"{server.url}/health")
    assert (health.status_code, health.json()["status"]) == (503, "draining")
    refused = httpx.post(f"{server.url}/v1/completions", json=BODY)
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    stream.join(20.0)
    assert (len(stream.text), stream.lines[-1]) == (60, "[DONE]")
    assert server.process.wait(10.0) == 0
    assert gone(models, 1.0)


def test_replies_that_take_too_long_to_end_are_told_so(servers):
    server = servers(http={"drain_s": 0.3}).start().ready()
    stream = Stream(server, max_tokens=2000)
    server.signal(signal.SIGINT)
    assert server.process.wait(10.0) == 0
    stream.join(5.0)
    assert "went down" in json.loads(stream.lines[-2])["error"]["message"]
    assert stream.lines[-1] == "[DONE]"


def test_a_second_signal_ends_it_at_once(servers):
    server = servers().start().ready()
    models = server.models
    Stream(server, max_tokens=2000)
    server.signal()
    time.sleep(0.5)
    server.signal()
    assert server.process.wait(2.0) == 130
    assert gone(models, 2.0)


def test_subservers_end_with_a_front_end_that_is_killed(servers):
    server = servers().start().ready()
    models = server.models
    (folder,) = {
        Path(connection.laddr).parent
        for connection in models[0].net_connections("unix")
        if Path(connection.laddr).parent.name.startswith("trmodel-")
    }
    Stream(server, max_tokens=2000)
    server.signal(signal.SIGKILL)
    assert gone(models, 5.0)
    assert not folder.exists()


def test_a_stream_outlives_its_subservers(servers):
    server = servers().start().ready()
    calm = Stream(server, max_tokens=100, seed=9)
    calm.join(20.0)
    stream = Stream(server, max_tokens=100, seed=9)
    for model in server.models:
        model.kill()
    stream.join(30.0)
    assert stream.lines[-1] == "[DONE]"
    assert stream.text == calm.text
    assert server.stats()["restarts"] == [1, 1]


def test_a_stream_outlives_a_pause_of_the_front_end(servers):
    server = servers().start().ready()
    calm = Stream(server, max_tokens=100, seed=9)
    calm.join(20.0)
    models = server.models
    stream = Stream(server, max_tokens=100, seed=9)
    server.signal(signal.SIGSTOP)
    assert gone_or_zombies(models, 6.0)
    server.signal(signal.SIGCONT)
    stream.join(30.0)
    assert stream.lines[-1] == "[DONE]"
    assert stream.text == calm.text


def test_after_an_idle_time_requests_are_served_as_before(servers):
    server = servers().start().ready()
    Stream(server, max_tokens=5).join(10.0)
    time.sleep(10.0)
    assert httpx.get(f"{server.url}/health").status_code == 200
    streams = [Stream(server, max_tokens=10, seed=n) for n in range(8)]
    for stream in streams:
        stream.join(10.0)
        assert stream.lines[-1] == "[DONE]"
        assert len(stream.text) == 10


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"profil": "a100"}, 4, "profil: unknown field"),
        ({"profile": "nothing"}, 4, "no such file"),
        ({"policy": "no.such:Policy"}, 4, "policy: no.such:Policy cannot be loaded"),
        ({"transport": {"models": {"other": "ipc://x"}}}, 4, "no model is called other"),
        ({"transport": {"front": "tcp://10.1.1.1:9"}}, 4, "needs keys"),
        ({"transport": {"front": "udp://x"}}, 4, "must begin with ipc:// or tcp://"),
        ({"transport": {"front": "tcp://127.0.0.1"}}, 4, "must end in a port"),
        ({"transport": {"front": "tcp://127.0.0.1:70000"}}, 4, "must end in a port"),
        (
            {"transport": {"front": "ipc://x", "models": {"Qwen3-0.6B": "ipc://x"}}},
            4,
            "two addresses are the same",
        ),
        (
            {"policy_options": {"x": 1}},
            4,
            "policy_options.x: bernoulli has no such option",
        ),
        (
            {"policy": "scripted", "policy_options": {"script": []}},
            4,
            "policy_options.script: must not be empty",
        ),
        (
            {"policy": "scripted", "policy_options": {"script": [0, 2]}},
            4,
            "policy_options: scripted names model 2, the server has 0 to 1",
        ),
        ({"transport": {"remote": ["Qwen3-32B"]}}, 4, "give the address of"),
        ({"transport": {"front": "ipc:///no/such/folder/x"}}, 4, "cannot be listened on"),
        ({"thresholds": "missing.json"}, 4, "missing.json: no such file"),
        ({"http": {"host": "no host"}}, 4, "cannot be listened on"),
    ],
)
def test_what_cannot_start_says_why_in_one_line(servers, changes, code, said):
    server = servers(**changes).start()
    assert server.process.wait(30.0) == code
    (line,) = server.log.read_text().splitlines()
    assert line.startswith("trmodel: error: ")
    assert said in line


def test_a_port_that_is_taken(servers):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = servers().start("--port", str(taken.getsockname()[1]))
        assert server.process.wait(30.0) == 4
    assert "cannot be listened on: Address already in use" in server.log.read_text()


def test_without_the_extra_it_says_what_to_install(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'zmq' else find(name, *rest)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*TRMODEL, "serve"], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "trmodel: error: serving needs zmq, not installed; pip install 'trmodel[serve]'"
    ]
