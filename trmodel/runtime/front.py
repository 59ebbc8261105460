"""The front end behind its HTTP face: the desk, its links, and the subservers it looks after.

A subserver that dies, or says nothing for some seconds, is killed and started anew under the next
incarnation, and what it owned is rebuilt (`Desk.restarted`). Methods may be called from any
thread; listeners are called on the network thread and must not block.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from trmodel.errors import InputError
from trmodel.runtime.desk import Busy, Desk, Event
from trmodel.runtime.keys import load_keys
from trmodel.runtime.messages import FRONT, Counted, LiveCount, Message, Sampling
from trmodel.runtime.node import Node
from trmodel.runtime.plan import Plan
from trmodel.runtime.spec import SubserverSpec
from trmodel.runtime.table import Vectors

log = logging.getLogger(__name__)

SILENT_S = 5.0
"""A subserver that said nothing for so long is taken for dead."""
AWAY_S = 30.0
"""So long requests wait for a subserver that was started by hand and says nothing."""
_LEAVING_S = 5.0
"""Subservers that are told to end and take longer, all together, are killed."""
_WATCH_S = 0.1
_CALM_S = 30.0
_MOST_RESTARTS = 5
"""A subserver that dies more often than this in `_CALM_S` is not worth restarting."""

Listener = Callable[[Event], None]


class Unavailable(Busy):
    """The server takes no requests at all: it failed, goes down, or lacks a model."""


class Front:
    """A running server without its HTTP face.

    Parameters
    ----------
    plan
        What to run.
    places
        Addresses of every place as the front end sees them; None for those of the plan.
    """

    def __init__(self, plan: Plan, places: Mapping[int, str] | None = None) -> None:
        self.plan = plan
        self.names = plan.names
        config = plan.config
        incarnation = time.time_ns() // 10**6
        self._lock = threading.RLock()
        self.desk = Desk(
            len(plan.names),
            plan.system.entry_model,
            config.max_live,
            config.max_queue,
            plan.vectors,
            version=incarnation,
            kv_tokens=config.kv_tokens,
        )
        self._listeners: dict[int, Listener] = {}
        self.counted: dict[int, dict[str, Any]] = {}
        """The latest counts of each model."""
        self.counted_at: dict[int, float] = {}
        """When they came in, on this process's monotonic clock."""
        self.restarts = [0] * len(plan.names)
        self._restarted_at: list[list[float]] = [[] for _ in plan.names]
        self.starting_s = config.transport.starting_s or 60.0
        """So long a subserver may take until it is first heard."""
        self._specs: list[SubserverSpec] = list(plan.specs)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._started_at = [time.monotonic()] * len(plan.names)
        self._stopping = threading.Event()
        self.draining = False
        """Whether no more requests are taken because the server goes down."""
        self._away: set[int] = set()
        self.failed: str | None = None
        """Why the server cannot go on."""
        keys = None if config.transport.keys is None else load_keys(config.transport.keys)
        seen = self._specs[0].places if places is None else places
        self.node = Node(FRONT, seen, incarnation, self._inbox, keys)
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)

    def start(self) -> None:
        """Start the subservers and begin to serve."""
        self.node.start()
        with self._lock:
            for i, spec in enumerate(self._specs):
                if spec.supervised:
                    self.node.meet(i, spec.incarnation)
                    self._launch(i)
            self._pump()
        self._watcher.start()

    def _launch(self, i: int) -> None:
        spec = msgspec.structs.replace(self._specs[i], parent=os.getpid())
        process = subprocess.Popen(
            # All that it needs is in the spec; the name is for who looks at the list of processes.
            [sys.executable, "-m", "trmodel.runtime.subserver", spec.names[i]],
            stdin=subprocess.PIPE,
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(spec))
            process.stdin.close()
        self._processes[i] = process
        self._started_at[i] = time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether every model has been heard of and holds the thresholds."""
        with self._lock:
            return not self.failed and not self.draining and not self.missing

    @property
    def missing(self) -> list[str]:
        """Models that cannot serve now: not heard of for a while, or without the thresholds."""
        with self._lock:
            return [
                name
                for i, name in enumerate(self.names)
                if i not in self.desk.holders
                or self.node.silent_s(i, self._started_at[i]) > SILENT_S
            ]

    def wait_until_ready(self, timeout_s: float | None = None) -> bool:
        """Wait for the models; False if they take too long or cannot be started."""
        end = time.monotonic() + (timeout_s or self.starting_s)
        while time.monotonic() < end and self.failed is None:
            if self.ready:
                return True
            time.sleep(0.02)
        return False

    def submit(self, prompt: tuple[int, ...], sampling: Sampling, listener: Listener) -> int:
        """Accept a request; the listener hears of its tokens and its end.

        Raises
        ------
        Busy
            If the server has as many as it takes.
        Unavailable
            If it takes none at all now.
        """
        with self._lock:
            if self.failed:
                raise Unavailable(self.failed)
            if self.draining:
                raise Unavailable("the server is going down")
            if self._away:
                raise Unavailable(f"{self._names(self._away)} cannot be reached")
            if self.node.full:
                raise Busy("a model is far behind; try again later")
            number = self.desk.submit(prompt, sampling)
            self._listeners[number] = listener
            self._pump()
            return number

    def abort(self, number: int) -> None:
        """End a request that nobody wants any more."""
        with self._lock:
            self._listeners.pop(number, None)
            self.desk.abort(number)
            self._pump()

    def propose(self, vectors: Vectors) -> int:
        """Bring new thresholds into force; see `Desk.propose`."""
        with self._lock:
            version = self.desk.propose(vectors)
            self._pump()
            return version

    def locked(self) -> AbstractContextManager[bool]:
        """Hold the desk still, to look at more than one thing in it."""
        return self._lock

    def drain(self, timeout_s: float) -> bool:
        """Take no more requests and wait for those there are; False if some were left."""
        self.draining = True
        end = time.monotonic() + timeout_s
        while self.desk.entries and time.monotonic() < end:
            time.sleep(0.02)
        return not self.desk.entries

    def stop(self) -> None:
        """End the subservers and close everything; requests that are left hear of an error."""
        self.draining = True
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for process in self._processes.values():
            process.terminate()
        end = time.monotonic() + _LEAVING_S
        for process in self._processes.values():
            try:
                process.wait(max(end - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.node.stop()
        self._fail_all("the server went down")
        if self.plan.folder is not None:
            shutil.rmtree(self.plan.folder, ignore_errors=True)

    def kill(self) -> None:
        """End the subservers at once."""
        for process in self._processes.values():
            process.kill()

    def _fail_all(self, reason: str) -> None:
        with self._lock:
            listeners, self._listeners = self._listeners, {}
            for number, listener in listeners.items():
                self.desk.abort(number)
                listener(Event(number, (), f"error: {reason}"))

    def _inbox(self, came: list[tuple[int, Message]], live: LiveCount) -> None:
        with self._lock:
            for source, message in came:
                if isinstance(message, Counted):
                    self.counted[source] = message.values
                    self.counted_at[source] = time.monotonic()
                else:
                    self.desk.receive(source, message)
            self._pump()

    def _pump(self) -> None:
        """Send and tell what the desk wants sent and told."""
        self.node.tell(self.desk.live)
        if self.desk.outgoing:
            outgoing, self.desk.outgoing = self.desk.outgoing, []
            self.node.post(outgoing)
        events, self.desk.events = self.desk.events, []
        for event in events:
            listener = self._listeners.get(event.request)
            if event.finish:
                self._listeners.pop(event.request, None)
            if listener is not None:
                listener(event)

    def _watch(self) -> None:
        while not self._stopping.wait(_WATCH_S):
            for i, spec in enumerate(self._specs):
                link = self.node.links[i]
                if not spec.supervised:
                    if link.peer_incarnation > spec.incarnation:
                        self._begin_anew(i, link.peer_incarnation)
                    self._look_after_remote(i)
                    continue
                process = self._processes[i]
                heard = link.heard_at is not None and link.heard_at > self._started_at[i]
                patience = SILENT_S if heard else self.starting_s
                silent = self.node.silent_s(i, self._started_at[i]) > patience
                if process.poll() is None and not silent:
                    continue
                self._replace(i, process, silent)
                if self.failed:
                    return

    def _look_after_remote(self, i: int) -> None:
        """Nobody can start it from here: after a while its requests end with an error."""
        if self.node.silent_s(i, self._started_at[i]) <= AWAY_S:
            self._away.discard(i)
        elif i not in self._away:
            self._away.add(i)
            log.error("%s: its subserver says nothing", self.names[i])
            self._fail_all(f"{self.names[i]} cannot be reached")

    def _names(self, models: Iterable[int]) -> str:
        return ", ".join(self.names[i] for i in sorted(models))

    def _replace(self, i: int, process: subprocess.Popen[bytes], silent: bool) -> None:
        """Start a subserver anew that died or does not answer."""
        why = "does not answer" if silent else f"ended with {process.poll()}"
        log.warning("%s: its subserver %s; it is started anew", self.names[i], why)
        process.kill()
        process.wait()
        never_heard = self.node.links[i].heard_at is None
        if never_heard and process.returncode == InputError.exit_code:
            self._give_up(f"the subserver of {self.names[i]} cannot run; its log says why")
            return
        now, heard_at = time.monotonic(), self.node.links[i].heard_at or 0.0
        # However long it takes to load: one that is never heard does not get better.
        since = now - _CALM_S if heard_at > self._started_at[i] else 0.0
        self._restarted_at[i] = [t for t in self._restarted_at[i] if t > since] + [now]
        if len(self._restarted_at[i]) > _MOST_RESTARTS:
            self._give_up(f"the subserver of {self.names[i]} keeps ending")
            return
        self.restarts[i] += 1
        self._begin_anew(i, self._specs[i].incarnation + 1)
        self._launch(i)

    def _give_up(self, why: str) -> None:
        self.failed = why
        log.error("%s; giving up", why)
        self._fail_all(why)

    def _begin_anew(self, i: int, incarnation: int) -> None:
        with self._lock:
            self._specs[i] = msgspec.structs.replace(self._specs[i], incarnation=incarnation)
            self.node.meet(i, incarnation)
            self.desk.restarted(i, incarnation)
            self._pump()
