"""Subservers leave in time, whatever they are doing when they are told or left behind."""

import os
import signal
import subprocess
import sys
import time

import httpx
import msgspec
import pytest
from executor_client import Client, make_config
from server_process import gone

from trmodel.runtime.leaving import LEAVE_S
from trmodel.runtime.plan import make_plan

STUCK = """
import ctypes


def stuck(*_, **__):
    '''A call of C that does not come back, nor let Python look for signals.'''
    print('stuck', flush=True)
    mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex), lock(mutex)


from trmodel.runtime.engines.replay import ReplayEngine

ReplayEngine.{what} = stuck
"""


@pytest.fixture
def stuck(tmp_path, monkeypatch):
    """Every process that is started has the replay engine stuck in one of its methods."""

    def make(what):
        (tmp_path / "sitecustomize.py").write_text(STUCK.format(what=what))
        path = os.environ.get("PYTHONPATH")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), path])))

    return make


def test_a_subserver_leaves_in_the_middle_of_a_step(stuck, fronts):
    stuck("step")
    front = fronts()
    Client(front, length=5)
    time.sleep(0.5)  # it has begun
    processes = list(front._processes.values())
    begun = time.monotonic()
    front.stop()
    assert time.monotonic() - begun < LEAVE_S + 1.0
    assert sorted(process.returncode for process in processes) == [0, 128 + signal.SIGTERM]


def test_subservers_leave_in_the_middle_of_a_step_when_the_front_end_is_killed(stuck, servers):
    stuck("step")
    server = servers().start().ready()
    models = server.models
    body = {"model": "trmodel", "prompt": "a", "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=10.0):
        time.sleep(0.5)  # it has begun
        server.signal(signal.SIGKILL)
        assert gone(models, LEAVE_S + 1.0)


def test_a_subserver_leaves_while_it_loads(stuck):
    stuck("__init__")
    spec = msgspec.structs.replace(make_plan(make_config()).specs[0], parent=os.getpid())
    process = subprocess.Popen(
        [sys.executable, "-m", "trmodel.runtime.subserver"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdin.write(msgspec.json.encode(spec))
    process.stdin.close()
    assert process.stdout.readline() == b"stuck\n"
    process.terminate()
    assert process.wait(1.0) == 128 + signal.SIGTERM
    process.stdout.close()
