"""The closed loop: N workers, each of which asks anew as soon as its reply ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from trmodel.errors import TrmodelError
from trmodel.runtime.bench.target import Target, wait_for

PROMPT = tuple(b"Why are there no closed loops in the open?")
REPLY_TOKENS = 4096


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
    """

    def __init__(
        self,
        target: Target,
        N: int,
        reply_tokens: int = REPLY_TOKENS,
        seed: int = 0,
        prompt: Sequence[int] = PROMPT,
    ) -> None:
        self.target, self.N, self.reply_tokens = target, N, reply_tokens
        self.prompt = prompt
        self.replies: list[Heard] = []
        self.failed: str | None = None
        self._seeds = count(seed)
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

        self._enders[worker] = self.target.ask(
            self.prompt, self.reply_tokens, next(self._seeds), hear
        )

    def _ask_anew(self) -> None:
        # Not where a reply's end is heard: that thread must go on receiving.
        while self._more.acquire() and not self._over:
            try:
                self._ask(self._ended.pop())
            except TrmodelError as error:
                self.failed = str(error)
