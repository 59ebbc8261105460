"""A subserver that is started by hand, as on another machine, and the front end that it serves."""

import json
import signal
import subprocess
import time
from queue import Queue

import pytest
import zmq
from server_process import TRMODEL, Stream, free_ports, gone
from zmq.utils.monitor import recv_monitor_message

from trmodel.runtime.bench.target import wait_for
from trmodel.runtime.messages import FRONT, Counted, decode
from trmodel.runtime.node import Node

LARGE = 1


def over_tcp(folder, starting_s=30.0):
    """Settings of a server whose large model is started by hand, with keys."""
    keys = folder / "keys.json"
    if not keys.exists():
        subprocess.run([*TRMODEL, "keys", str(keys)], check=True, stderr=subprocess.DEVNULL)
        assert keys.stat().st_mode & 0o077 == 0
    front, small, large = (f"tcp://127.0.0.1:{port}" for port in free_ports(3))
    return {
        "front": front,
        "models": {"Qwen3-0.6B": small, "Qwen3-32B": large},
        "remote": ["Qwen3-32B"],
        "keys": str(keys),
        "starting_s": starting_s,
    }


def test_a_model_that_does_not_answer_is_named(servers, tmp_path):
    transport = over_tcp(tmp_path, starting_s=4.0)
    server = servers(transport=transport).start()
    assert server.process.wait(30.0) == 5
    lines = [line for line in server.log.read_text().splitlines() if "trmodel: error" in line]
    large = transport["models"]["Qwen3-32B"]
    assert lines == [f"trmodel: error: no answer within 4 s from Qwen3-32B at {large}"]


@pytest.fixture
def remote():
    """Start the large model of a server by hand."""
    made = []

    def start(server):
        command = [*TRMODEL, "subserver", "--config", str(server.folder / "server.yaml")]
        with (server.folder / f"remote-{len(made)}.txt").open("w") as log:
            made.append(subprocess.Popen([*command, "--model", "Qwen3-32B"], stderr=log))
        return made[-1]

    yield start
    for process in made:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_a_remote_subserver_outlives_front_ends_and_is_replaced(servers, tmp_path, remote):
    server = servers(transport=over_tcp(tmp_path))
    process = remote(server)
    server.start().ready()
    calm = Stream(server, max_tokens=60, seed=3)
    calm.join(20.0)
    assert calm.lines[-1] == "[DONE]"
    Stream(server, max_tokens=2000)
    small = server.models[0]
    server.signal(signal.SIGKILL)
    server.process.wait()
    server.process.stdout.close()
    assert gone([small], 5.0)
    server.start().ready()
    assert server.models[1].pid == process.pid
    server.wait_until_empty()  # nothing of the former front end's requests is left
    again = Stream(server, max_tokens=60, seed=3)
    again.join(20.0)
    assert again.text == calm.text
    # Its own death is bridged too: the next one takes over what it had.
    long = Stream(server, max_tokens=150, seed=3)
    process.kill()
    process.wait()
    other = remote(server)
    long.join(40.0)
    assert (len(long.text), long.lines[-1]) == (150, "[DONE]")
    other.send_signal(signal.SIGTERM)
    assert other.wait(5.0) == 0


def test_a_front_end_that_is_killed_leaves_nothing_behind_for_long(servers, tmp_path, remote):
    """Requests and KV are freed within 5 s, while no other front end has come."""
    transport = over_tcp(tmp_path) | {"keys": None}
    server = servers(transport=transport, max_context=4000)
    remote(server)
    server.start().ready()
    for n in range(4):
        Stream(server, max_tokens=2000, seed=n)
    wait_for(lambda: server.stats()["counted"][1]["kv_tokens"] > 100, 20.0, "nothing is held")
    server.signal(signal.SIGKILL)
    killed_at = time.monotonic()
    server.process.wait()
    server.process.stdout.close()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as listener:
        listener.linger = 0
        listener.bind(transport["front"])
        held, took_s = 0, None
        while took_s is None:
            assert listener.poll(6000), "it says nothing"
            frame = decode(listener.recv_multipart()[-1])
            if frame.source != LARGE:
                continue
            if frame.to_incarnation == 0:
                # It has begun anew and knows no front end, which is after it has freed everything.
                took_s = time.monotonic() - killed_at
            held += sum(isinstance(m, Counted) and m.values["held"] > 0 for m in frame.messages)
    assert held, "it held nothing all the time"
    assert took_s < 5.0
    counted = Queue()
    node = Node(FRONT, addresses(transport), time.time_ns() // 10**6, collect(counted))
    node.start()
    try:
        first = counted.get(timeout=10.0)
    finally:
        node.stop()
    assert first.incarnation == frame.incarnation
    assert (first.values["held"], first.values["kv_tokens"]) == (0, 0)


def addresses(transport):
    return {FRONT: transport["front"], **dict(enumerate(transport["models"].values()))}


def collect(counted):
    def inbox(came, live):
        for source, message in came:
            if source == LARGE and isinstance(message, Counted):
                counted.put(message)

    return inbox


def test_who_has_no_keys_is_not_let_in(servers, tmp_path, remote):
    transport = over_tcp(tmp_path)
    server = servers(transport=transport)
    remote(server)
    server.start().ready()
    context = zmq.Context()
    public, secret = zmq.curve_keypair()
    ours = json.loads((tmp_path / "keys.json").read_text())
    for keys in (None, (public, secret)):
        stranger = context.socket(zmq.DEALER)
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.setsockopt(zmq.HANDSHAKE_IVL, 500)
        if keys:
            stranger.curve_publickey, stranger.curve_secretkey = keys
            stranger.curve_serverkey = ours["public"].encode()
        monitor = stranger.get_monitor_socket()
        stranger.connect(transport["front"])
        events = set()
        while monitor.poll(1500):
            events.add(recv_monitor_message(monitor)["event"])
            if events & {
                zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
                zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
                zmq.EVENT_HANDSHAKE_FAILED_AUTH,
                zmq.EVENT_DISCONNECTED,
            }:
                break
        assert zmq.EVENT_CONNECTED in events
        assert zmq.EVENT_HANDSHAKE_SUCCEEDED not in events
        stranger.disable_monitor()
        monitor.close()
        stranger.close()
    context.destroy(linger=0)
    stream = Stream(server, max_tokens=10)
    stream.join(10.0)
    assert stream.lines[-1] == "[DONE]"


def test_a_subserver_that_is_not_remote_is_refused(servers, tmp_path):
    server = servers(transport=over_tcp(tmp_path))
    command = [*TRMODEL, "subserver", "--config", str(server.folder / "server.yaml"), "--model"]
    done = subprocess.run([*command, "Qwen3-0.6B"], capture_output=True, text=True)
    assert done.returncode == 4
    assert "not under transport.remote" in done.stderr
