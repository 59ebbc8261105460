"""The executor as real processes on this machine, under faults of processes and of the network.

Numbers are those of `test_invariants`.
"""

import os
import signal
import time
from dataclasses import replace

import msgspec
import psutil
import pytest
import zmq
from executor_client import Client, make_config, nothing_is_left
from faulty_proxy import Proxy

from trmodel.runtime.messages import FRONT
from trmodel.runtime.plan import make_plan


def test_replies_come_whole(fronts):
    front = fronts()
    for client in [Client(front, length=20 + n, seed=n) for n in range(12)]:
        client.check()
    nothing_is_left(front)


def test_killed_subservers_are_replaced_and_replies_go_on(fronts):
    """Invariants 1, 3, 6."""
    front = fronts(thresholds="tune")
    clients = [Client(front, length=60, seed=n) for n in range(8)]
    for model in (0, 1):
        time.sleep(0.7)
        os.kill(front.counted[model]["pid"], signal.SIGKILL)
    for client in clients:
        client.check()
    assert front.restarts == [1, 1]
    nothing_is_left(front)


def test_a_stopped_subserver_that_goes_on_is_not_believed(fronts):
    """Invariants 2 and 6: what an older incarnation still says changes nothing."""
    front = fronts()
    clients = [Client(front, length=40, seed=n) for n in range(6)]
    time.sleep(0.5)
    old = psutil.Process(front.counted[1]["pid"])
    # As a process that hangs, but the supervisor is only told to start another.
    old.suspend()
    process = front._processes[1]
    front._begin_anew(1, front._specs[1].incarnation + 1)
    front._launch(1)
    time.sleep(1.5)
    old.resume()
    for client in clients:
        client.check()
    assert process.wait(10.0) is not None, "an older incarnation must end itself"
    nothing_is_left(front)


def test_an_abort_frees_everywhere(fronts):
    """Invariant 3."""
    front = fronts()
    clients = [Client(front, length=2_000, seed=n) for n in range(6)]
    time.sleep(0.5)
    for client in clients[:4]:
        front.abort(client.number)
    time.sleep(0.3)
    heard = [len(client.events) for client in clients[:4]]
    assert front.desk.n == 2
    for client in clients[4:]:
        front.abort(client.number)
    nothing_is_left(front)
    assert [len(client.events) for client in clients[:4]] == heard


def test_thresholds_that_no_queue_can_meet_after_a_burst(fronts):
    """Invariant 4: thresholds follow n down, so that the last requests of a burst end as well."""
    front = fronts(thresholds="tune", max_live=16, hold_ms=1e6)
    started = time.monotonic()
    for client in [Client(front, length=5 + 3 * n, seed=n) for n in range(16)]:
        client.check(30.0)
    assert time.monotonic() - started < 25.0


def test_thresholds_change_under_load(fronts):
    """Invariant 5 holds by construction (`TableInForce`); here it is the requests that go on."""
    front = fronts(hold_ms=1e6)
    clients = [Client(front, length=80, seed=n) for n in range(8)]
    for b in (6, 2, 8, 1, 4):
        front.propose(tuple((1, min(b, n)) for n in range(1, 9)))
        time.sleep(0.25)
    for client in clients:
        client.check()
    assert front.desk.table_in_use
    nothing_is_left(front)


@pytest.mark.parametrize(
    "faults", [{"drop": 0.05}, {"repeat": 0.2, "delay": 0.2}, {"drop": 0.03, "delay": 0.1}]
)
def test_a_bad_network_changes_no_reply(fronts, tmp_path, faults):
    """Invariants 1, 2, 3 through proxies that lose, repeat and reorder frames on every way."""
    plan = make_plan(make_config())
    real = plan.specs[0].places
    context = zmq.Context()
    before = {place: f"ipc://{tmp_path}/{place}" for place in real}
    proxies = [
        Proxy(context, before[place], address, faults, place) for place, address in real.items()
    ]
    specs = tuple(
        msgspec.structs.replace(
            spec,
            front_address=before[FRONT],
            addresses=tuple(spec.addresses[i] if i == spec.model else before[i] for i in range(2)),
        )
        for spec in plan.specs
    )
    try:
        front = fronts(replace(plan, specs=specs), {**before, FRONT: real[FRONT]})
        for client in [Client(front, length=25, seed=n) for n in range(8)]:
            client.check(90.0)
        nothing_is_left(front)
        assert all(proxy.hurt > 0 for proxy in proxies)
    finally:
        for proxy in proxies:
            proxy.stop()
        context.destroy(0)
