"""Time the steps of one model's engine: a process that loads it and answers commands.

The engine is the one that would be served, of the same spec, alone in its process: no scheduler, no
network. A whole step is timed: assembling the batch, the pass, the choice of tokens and what the
policy needs of them; then the policy's own part. Requests are made up: they hold as many tokens as
asked for, which nobody had to read.

In an extend of k new tokens requests bring different numbers, as after handoffs: from 1 to 2 k - 1,
all equally likely; every other step brings 2 k less those of the step before, so that the mean is
k. (Matrix products are odd in some sizes: powers of two, which equal numbers would often make, can
take much less time than their neighbours.)

The spec comes as the first line on standard input, commands follow, each a line of JSON; every
answer is a line on standard output. The process ends with its input.
"""

from __future__ import annotations

import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any, Protocol

import msgspec

from trmodel.errors import TrmodelError
from trmodel.runtime.engines.base import Engine
from trmodel.runtime.log import log_to_stderr
from trmodel.runtime.messages import Sampling
from trmodel.runtime.policies import Policy
from trmodel.runtime.request import Batch, Request
from trmodel.runtime.spec import SubserverSpec
from trmodel.runtime.subserver import make_engine, make_policy

WARM_UP_STEPS = 2
"""Not counted at the start of every command: graphs, kernels and caches come to be."""
FEWEST_STEPS, MOST_STEPS = 4, 2000
GROWTH = 32
"""Tokens by which requests may outgrow the context asked for."""


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make steps; the answer is `Times`.

    Attributes
    ----------
    batch
        Requests in each.
    context
        Tokens of each request that the model has read before.
    new
        Tokens that each is to read on average: one is a decode, more an extend.
    seconds
        For so long, and at least a few steps. None for until the next line comes: then there is an
        answer as soon as steps are being made, and one at the end, both without times.
    """

    batch: int
    context: int
    new: int = 1
    seconds: float | None = None


class Times(msgspec.Struct, frozen=True, tag=True):
    """How long steps took, one by one, in milliseconds.

    Attributes
    ----------
    step_ms
        From the start until the tokens are known, on the clock of the process.
    route_ms
        The policy's decision after it.
    device_ms
        The same steps between two events on the GPU; empty without one.
    """

    step_ms: list[float] = []
    route_ms: list[float] = []
    device_ms: list[float] = []


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The engine is loaded.

    Attributes
    ----------
    kv_capacity, kv_bytes_per_token
        Tokens that its cache holds, and bytes of one on each GPU; None if it has no cache.
    """

    kv_capacity: int | None = None
    kv_bytes_per_token: float | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot do it, and why."""

    why: str


Answer = Ready | Times | Failed


class Timed(Engine, Protocol):
    """An engine that can be timed at a context."""

    def occupy(self, requests: list[Request]) -> None:
        """Hold what the requests may hold, up to their anchors, without reading it."""
        ...


class Stepper:
    """Made-up requests, and steps on them.

    Parameters
    ----------
    model, M
        The place of the engine's model, and how many there are.
    """

    def __init__(self, model: int, M: int, engine: Timed, policy: Policy) -> None:
        self.model, self.M, self.engine, self.policy = model, M, engine, policy
        self._requests: list[Request] = []
        self._random = random.Random(0)
        self._mirrored: list[int] = []
        runner = getattr(engine, "runner", None)
        on_gpu = runner is not None and str(runner.device).startswith("cuda")
        self._events = _Events(runner.torch) if runner is not None and on_gpu else None

    def run(self, ask: Ask, told: Callable[[], bool] = lambda: False) -> Times:
        """Make steps for as long as asked, or until told to stop."""
        while len(self._requests) < ask.batch:
            self._requests.append(self._made_up(len(self._requests) + 1))
        for request in self._requests[ask.batch :]:
            self.engine.release(request.id)
        del self._requests[ask.batch :]
        self._mirrored = []
        self._set(ask)
        for _ in range(WARM_UP_STEPS):
            self._step(ask, Times())
        times = Times()
        end = time.monotonic() + (ask.seconds or 0.0)
        while ask.seconds is None or not _enough(len(times.step_ms), end):
            if told():
                return Times()
            self._step(ask, Times() if ask.seconds is None else times)
        return times

    def _made_up(self, number: int) -> Request:
        # Chosen at random, as clients' tokens are by default.
        return Request(number, [], 0, Sampling(seed=number), 1, 0, [0] * self.M)

    def _set(self, ask: Ask) -> None:
        """Let requests hold the context, with a new token behind it."""
        for request in self._requests:
            request.anchor = min(ask.context, len(request.token_ids))
            del request.token_ids[request.anchor :]
            request.token_ids += _letters(request.id, request.anchor, ask.context + 1)
            request.anchor = ask.context
        self.engine.occupy(self._requests)

    def _step(self, ask: Ask, times: Times) -> None:
        requests = self._requests
        if max(request.anchor for request in requests) > ask.context + GROWTH:
            self._set(ask)
        for request, new in zip(requests, self._new(ask), strict=True):
            end = request.anchor + new
            request.token_ids += _letters(request.id, len(request.token_ids), end)
        if self._events:
            self._events.begin()
        start = time.perf_counter()
        batch = Batch(self.model, requests, time.monotonic(), [0.0] * len(requests))
        result = self.engine.step(batch)
        stepped = time.perf_counter()
        if self._events:
            times.device_ms.append(self._events.end())
        if result.errors:
            raise TrmodelError(next(iter(result.errors.values())))
        asked = time.perf_counter()
        [int(destination) for destination in self.policy.route(batch, result)]
        routed = time.perf_counter()
        times.step_ms.append(1000.0 * (stepped - start))
        times.route_ms.append(1000.0 * (routed - asked))
        for request, token in zip(requests, result.token_ids, strict=True):
            request.anchor = len(request.token_ids)
            request.steps += 1
            request.token_ids.append(token)

    def _new(self, ask: Ask) -> list[int]:
        """Return how many tokens each request is to read next."""
        if self._mirrored:
            drawn, self._mirrored = self._mirrored, []
            return drawn
        most = 2 * ask.new - 1
        drawn = [self._random.randint(1, most) for _ in range(ask.batch)]
        self._mirrored = [2 * ask.new - new for new in drawn]
        return drawn


def _enough(steps: int, end: float) -> bool:
    return steps >= (MOST_STEPS if time.monotonic() < end else FEWEST_STEPS)


class _Events:
    """The time between two moments on a GPU."""

    def __init__(self, torch: Any) -> None:
        self._ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def begin(self) -> None:
        self._ends[0].record()

    def end(self) -> float:
        self._ends[1].record()
        self._ends[1].synchronize()
        return float(self._ends[0].elapsed_time(self._ends[1]))


def _letters(seed: int, start: int, end: int) -> list[int]:
    """Tokens that every vocabulary has."""
    return [(7 * place + 31 * seed) % 251 for place in range(start, end)]


def serve(stepper: Stepper, lines: IO[bytes], answer: Callable[[Any], None]) -> None:
    """Answer commands until there are no more."""
    commands: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in lines:
            commands.put(line)
        commands.put(b"")

    threading.Thread(target=read, name="commands", daemon=True).start()
    while line := commands.get():
        ask = msgspec.json.decode(line, type=Ask)
        if ask.seconds is not None:
            answer(stepper.run(ask))
        else:
            answer(Times())
            answer(stepper.run(ask, lambda: not commands.empty()))
            if not commands.get():
                return


def main() -> int:
    """Load the engine whose spec comes on standard input, and answer."""
    # What libraries print must not get between the answers.
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    log_to_stderr()

    def answer(value: Any) -> None:
        out.write(msgspec.json.encode(value) + b"\n")

    try:
        spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=SubserverSpec)
        policy = make_policy(spec)
        engine: Any = make_engine(spec, policy.needs)
        runner = getattr(engine, "runner", None)
        answer(Ready() if runner is None else Ready(runner.capacity, runner.kv_bytes_per_token))
        serve(Stepper(spec.model, len(spec.names), engine, policy), sys.stdin.buffer, answer)
    except TrmodelError as error:
        answer(Failed(str(error)))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
