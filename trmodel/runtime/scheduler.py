"""The scheduler of one model: who waits, who runs, who is pending, and when a batch starts.

It does no input or output and reads no clock: messages and times are given to it, and what it has
to say is returned. The launch rule is that of chain and simulation (`trmodel.launch`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence

from trmodel.launch import launch_size, threshold_in_force
from trmodel.runtime.messages import (
    FRONT,
    Kind,
    LiveCount,
    Lost,
    Message,
    Owned,
    PeerReq,
    Report,
)
from trmodel.runtime.policies.base import Policy
from trmodel.runtime.request import Batch, Request, State, StepResult
from trmodel.runtime.table import TableInForce

log = logging.getLogger(__name__)

Outgoing = tuple[int, Message]
"""A message and the place it goes to."""


class Scheduler:
    """The requests of one model.

    Parameters
    ----------
    model, M
        Its place, and how many models there are.
    policy
        Decides who goes on after each step.
    table
        The thresholds in force.
    max_batch
        The most requests in one step.
    hold_s
        A partial batch starts once its oldest request has waited this long.
    """

    def __init__(
        self,
        model: int,
        M: int,
        policy: Policy,
        table: TableInForce,
        max_batch: int,
        hold_s: float,
    ) -> None:
        self.model, self.M = model, M
        self.policy, self.table = policy, table
        self.max_batch, self.hold_s = max_batch, hold_s
        self.live = LiveCount()
        self.requests: dict[int, Request] = {}
        self.released: list[int] = []
        """Requests whose KV is to be freed; the caller empties it."""
        self._waiting: deque[Request] = deque()
        self._running: Batch | None = None
        self._ended: set[int] = set()
        """Requests that are over, as long as messages about them may still be under way."""

    @property
    def waiting(self) -> int:
        """Requests in the queue, k_i."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Size of the running batch, b_i."""
        return 0 if self._running is None else len(self._running)

    def hear(self, live: LiveCount) -> None:
        """Note how many requests are live, if it is news."""
        if live.version <= self.live.version:
            return
        self.live = live
        self._ended = {request for request in self._ended if request >= live.oldest}

    def receive(self, message: PeerReq, now: float) -> list[Outgoing]:
        """Take in a request, or what is said about one."""
        request = self.requests.get(message.request)
        if message.kind in (Kind.finished, Kind.aborted):
            if message.request >= self.live.oldest:
                self._ended.add(message.request)
            self._forget(message.request)
            return []
        if message.request in self._ended or message.request < self.live.oldest:
            return []
        if request is not None and message.handoff <= request.handoff:
            return []
        if message.anchor > (0 if request is None else len(request.token_ids)):
            return [(FRONT, Lost(message.request, message.handoff, self.model))]
        if request is None or request.state is State.running:
            # Rebuilt while a step on it runs: the engine reads the old one yet, whose outcome is
            # void.
            request = _anew(message, request)
            self.requests[request.id] = request
        request.anchor = _agreed(request, message)
        request.token_ids[message.anchor :] = message.token_ids
        request.handoff, request.steps = message.handoff, message.steps
        request.seen = list(message.seen)
        request.seen[self.model] = len(request.token_ids)
        try:
            self.policy.receive(message, request)
        except Exception as error:
            return [self._policy_failed(request, error)]
        if request.state is not State.waiting:
            self._queue(request, now)
        return []

    def _queue(self, request: Request, now: float) -> None:
        request.state, request.came_at = State.waiting, now
        self._waiting.append(request)

    def _forget(self, number: int) -> None:
        """Drop a request. Only the front end says that it is over: it may be rebuilt here yet."""
        request = self.requests.pop(number, None)
        if request is None:
            return
        if request.state is State.waiting:
            self._waiting.remove(request)
        if request.state is not State.running:
            self.released.append(number)

    def next_batch(self, now: float) -> Batch | None:
        """Start a batch if the launch rule says so."""
        if not self._waiting or self._running is not None:
            return None
        threshold = threshold_in_force(
            self.table.threshold(self.model, self.live.n),
            now - self._waiting[0].came_at,
            self.hold_s,
        )
        size = launch_size(len(self._waiting), 0, threshold, self.max_batch)
        if size == 0:
            return None
        taken = [self._waiting.popleft() for _ in range(size)]
        for request in taken:
            request.state = State.running
            # A token is sampled from what is read: where nothing is new, the last is read again.
            request.anchor = min(request.anchor, len(request.token_ids) - 1)
        self._running = Batch(self.model, taken, now, [now - r.came_at for r in taken])
        return self._running

    def next_deadline(self) -> float | None:
        """When the oldest waiting request will have been held long enough, if one waits."""
        if not self._waiting or self._running is not None:
            return None
        return self._waiting[0].came_at + self.hold_s

    def complete(self, result: StepResult, now: float) -> list[Outgoing]:
        """End the running batch: commit tokens, and hand over or queue every request."""
        batch = self._running
        assert batch is not None
        self._running = None
        outgoing: list[Outgoing] = []
        routed = self._route(batch, result)
        for place, (request, token, destination) in enumerate(
            zip(batch.requests, result.token_ids, routed, strict=True)
        ):
            if self.requests.get(request.id) is not request:
                if request.id not in self.requests:
                    self.released.append(request.id)  # it ended while it ran
                continue
            if place in result.errors:
                outgoing.append(self._fail(request, f"the engine failed: {result.errors[place]}"))
                self.released.append(request.id)
                continue
            try:
                if isinstance(destination, Exception):
                    raise destination
                outgoing += self._after_step(request, token, destination, now)
            except Exception as error:
                outgoing.append(self._policy_failed(request, error))
                self.released.append(request.id)
        return outgoing

    def _route(self, batch: Batch, result: StepResult) -> Sequence[int | Exception]:
        """Ask the policy where each request goes; what it raises comes in their place."""
        try:
            routed = self.policy.route(batch, result)
            if hasattr(routed, "tolist"):  # of a tensor: one copy from its device, not one for each
                routed = routed.tolist()
            destinations = [int(destination) for destination in routed]
            if len(destinations) != len(batch):
                raise ValueError(f"{len(destinations)} destinations for {len(batch)} requests")
        except Exception as error:
            return [error] * len(batch)
        return [
            j if 0 <= j < self.M else ValueError(f"there is no model {j}") for j in destinations
        ]

    def _policy_failed(self, request: Request, error: Exception) -> Outgoing:
        log.error("request %d: the policy failed", request.id, exc_info=error)
        return self._fail(request, f"the policy failed: {type(error).__name__}: {error}")

    def _fail(self, request: Request, why: str) -> Outgoing:
        """End a request that cannot go on: the others and the process do."""
        request.steps += 1
        self._forget(request.id)
        what = f"error: {why}"
        return FRONT, Report(request.id, request.handoff, request.steps, (), self.model, what)

    def _after_step(
        self, request: Request, token: int, destination: int, now: float
    ) -> Iterable[Outgoing]:
        request.anchor = len(request.token_ids)
        request.steps += 1
        tokens = self.policy.commit(request, [token], self.model, destination)
        finish = _cut(request, tokens)
        request.token_ids += tokens
        request.seen[self.model] = len(request.token_ids)
        if finish == "" and destination != self.model:
            request.handoff += 1
        yield (
            FRONT,
            Report(
                request.id,
                request.handoff,
                request.steps,
                tuple(tokens),
                self.model if finish else destination,
                finish,
                dict(request.extra),  # it may be changed in place before the report has left
            ),
        )
        if finish:
            self._forget(request.id)
            self.released.append(request.id)
        elif destination == self.model:
            self._queue(request, now)
        else:
            request.state, request.left_at = State.pending, now
            message = self.policy.send(request, self.model, destination)
            request.seen[destination] = len(request.token_ids)
            yield destination, message

    def inventory(self, known: dict[int, int]) -> tuple[Owned, ...]:
        """List the requests that this model owns, with the output that the front end lacks."""
        return tuple(
            Owned(
                request.id,
                request.handoff,
                request.steps,
                known.get(request.id, 0),
                tuple(request.token_ids[request.prompt + known.get(request.id, 0) :]),
                dict(request.extra),
            )
            for request in self.requests.values()
            if request.state is not State.pending
        )

    def abort_all(self) -> None:
        """Forget every request and free its KV."""
        for number in list(self.requests):
            self._forget(number)


def _cut(request: Request, tokens: list[int]) -> str:
    """Cut the new tokens where the reply ends, in place, and say why it does; empty if not."""
    sampling = request.sampling
    for place, token in enumerate(tokens):
        if token in sampling.stop_ids:
            del tokens[place:]
            return "stop"
        if request.committed + place + 1 >= sampling.max_tokens:
            del tokens[place + 1 :]
            return "length"
    return ""


def _anew(message: PeerReq, old: Request | None) -> Request:
    """Make a request that a message tells of, with what is known of it."""
    return Request(
        id=message.request,
        token_ids=[] if old is None else list(old.token_ids),
        prompt=message.prompt,
        sampling=message.sampling,
        handoff=message.handoff,
        steps=message.steps,
        seen=[],
        anchor=0 if old is None else old.anchor,
    )


def _agreed(request: Request, message: PeerReq) -> int:
    """Return how many of the tokens held are those of a request as it is told now.

    After a rebuild what another model went on with may differ from what was held of it.
    """
    told = message.token_ids
    for place in range(message.anchor, min(request.anchor, message.anchor + len(told))):
        if request.token_ids[place] != told[place - message.anchor]:
            return place
    return min(request.anchor, message.anchor + len(told))
