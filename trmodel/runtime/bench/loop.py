"""The closed loop: N workers, each of which asks anew as soon as its reply ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from trmodel.errors import TrmodelError
from trmodel.runtime.bench.target import Target, wait_for

PROMPT = tuple(b"Why are there no closed loops in the open?")
REPLY_TOKENS = 4096

Asked = tuple[tuple[int, ...], int, int]
"""A prompt, how many tokens the reply has, and its seed."""


def asked_alike(reply_tokens: int, seed: int, prompt: Sequence[int] = PROMPT) -> Iterator[Asked]:
    """Yield requests that differ in their seeds alone: ``seed``, ``seed + 1``, ..."""
    return ((tuple(prompt), reply_tokens, k) for k in count(seed))


def asked_in_steady_state(N: int, reply_tokens: int, seed: int) -> Iterator[Asked]:
    """Yield requests with prompts of their own, the first N of them at all stages of a reply.

    What a step costs depends on the context where it is read anew; the contexts of N replies that
    begin together would all be short first and all be long later. So the first N have what they
    would have written by then in their prompts.
    """
    for k in count():
        begun = reply_tokens * (N - 1 - k) // N if k < N else 0
        prompt = b"%d. %b" % (seed + k, bytes(PROMPT))
        filled = (prompt * (begun // len(prompt) + 2))[: len(prompt) + begun]
        yield tuple(filled), reply_tokens - begun, seed + k


@dataclass(slots=True)
class Heard:
    """One reply as its client saw it, times in seconds of the monotonic clock."""

    asked_at: float
    came_at: list[tuple[float, int]] = field(default_factory=list)
    """When tokens came, and how many."""


class ClosedLoop:
    """Keeps N requests in a server until it is left.

    Parameters
    ----------
    target, N
        The server and how many requests.
    prompt
        Of every request.
    reply_tokens
        Length of every reply.
    seed
        The k-th reply of the run has the seed ``seed + k``: runs with the same seed draw the same
        routing decisions, as far as the policy goes by the request's seed.
    requests
        What is asked, one after the other; by default `asked_alike`.
    """

    def __init__(
        self,
        target: Target,
        N: int,
        reply_tokens: int = REPLY_TOKENS,
        seed: int = 0,
        requests: Iterator[Asked] | None = None,
        prompt: Sequence[int] = PROMPT,
    ) -> None:
        self.target, self.N = target, N
        self.replies: list[Heard] = []
        self.failed: str | None = None
        self._requests = requests or asked_alike(reply_tokens, seed, prompt)
        self._lock = threading.Lock()
        self._enders: dict[int, Callable[[], None]] = {}
        self._more = threading.Semaphore(0)
        self._ended: list[int] = []
        self._over = False
        self._asker = threading.Thread(target=self._ask_anew, name="asker", daemon=True)

    def __enter__(self) -> ClosedLoop:
        self._asker.start()
        for worker in range(self.N):
            self._ask(worker)
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._more.release()
        self._asker.join()
        for end in self._enders.values():
            end()
        if self.failed is None:
            wait_for(lambda: self.target.stats().n == 0, 30.0, "requests are still live")

    def check(self) -> None:
        """Raise what went wrong with a reply.

        Raises
        ------
        TrmodelError
        """
        if self.failed is not None:
            raise TrmodelError(f"a reply failed: {self.failed}")

    def _ask(self, worker: int) -> None:
        heard = Heard(time.monotonic())
        self.replies.append(heard)

        def hear(tokens: int, finish: str) -> None:
            if tokens:
                heard.came_at.append((time.monotonic(), tokens))
            if finish and not self._over:
                if finish.startswith("error"):
                    self.failed = finish
                    return
                self._ended.append(worker)
                self._more.release()

        with self._lock:
            prompt, tokens, seed = next(self._requests)
        self._enders[worker] = self.target.ask(prompt, tokens, seed, hear)

    def _ask_anew(self) -> None:
        # Not where a reply's end is heard: that thread must go on receiving.
        while self._more.acquire() and not self._over:
            try:
                self._ask(self._ended.pop())
            except TrmodelError as error:
                self.failed = str(error)
