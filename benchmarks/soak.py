"""Run a server for minutes under load, with aborts, kills and changes of thresholds; does it leak?

    python benchmarks/soak.py --minutes 10

Closed loop of 24 clients on 16 places; every twentieth reply is aborted, every minute a subserver
in turn is killed, every ten seconds thresholds change. Prints memory and descriptors of the front
end (this process) and of the subservers as they go, and at the end what was left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import threading
import time

import psutil

from trmodel.runtime.config import ServerConfig
from trmodel.runtime.desk import Event
from trmodel.runtime.front import Front
from trmodel.runtime.messages import Sampling
from trmodel.runtime.plan import make_plan

CLIENTS, LIVE = 24, 16


class Load:
    """Clients that ask again as soon as a reply ends."""

    def __init__(self, front: Front) -> None:
        self.front, self.random = front, random.Random(1)
        self.replies = self.aborted = self.errors = self.tokens = 0
        self.over = False
        self._threads = [threading.Thread(target=self._client, daemon=True) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Ask no more and wait for what is under way."""
        self.over = True
        for thread in self._threads:
            thread.join(60.0)

    def _client(self) -> None:
        while not self.over:
            done, seen = threading.Event(), []

            def hear(event: Event, done: threading.Event = done, seen: list[str] = seen) -> None:
                self.tokens += len(event.token_ids)
                if event.finish:
                    seen.append(event.finish)
                    done.set()

            length = self.random.randint(10, 200)
            prompt = tuple(self.random.randrange(256) for _ in range(self.random.randint(1, 300)))
            seed = self.random.randrange(10**6)
            number = self.front.submit(prompt, Sampling(max_tokens=length, seed=seed), hear)
            if self.random.random() < 0.05:
                done.wait(self.random.random() * 2.0)
                self.front.abort(number)
                self.aborted += 1
            elif not done.wait(60.0) or seen != ["length"]:
                self.errors += 1
            self.replies += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    settings = {"profile": "a100-paper", "thresholds": "eager", "max_live": LIVE, "hold_ms": 1000.0}
    front = Front(make_plan(ServerConfig.model_validate(settings)))
    front.start()
    front.wait_until_ready()
    load, me = Load(front), psutil.Process()
    print("   s  replies  tok/s  front MiB  fds  threads  subservers MiB  fds   kv tokens  kills")
    started, before, turn = time.monotonic(), 0, 0
    while (now := time.monotonic() - started) < minutes * 60.0:
        time.sleep(10.0)
        b = 1 + (turn * 5) % LIVE
        front.propose(tuple((1, min(b, n)) for n in range(1, LIVE + 1)))
        turn += 1
        if turn % 6 == 0:
            os.kill(front.counted[turn // 6 % 2]["pid"], signal.SIGKILL)
        if turn % 3 == 0:
            others = me.children()
            print(
                f"{now:5.0f} {load.replies:8d} {(load.tokens - before) / 30:6.0f}"
                f" {me.memory_info().rss / 2**20:10.1f} {me.num_fds():4d} {me.num_threads():8d}"
                f" {sum(p.memory_info().rss for p in others) / 2**20:15.1f}"
                f" {sum(p.num_fds() for p in others):4d}"
                f" {sum(front.counted[i].get('kv_tokens', 0) for i in range(2)):11d}"
                f" {sum(front.restarts):9d}",
                flush=True,
            )
            before = load.tokens
    load.end()
    time.sleep(3.0)
    left = [(front.counted[i]["kv_tokens"], front.counted[i]["held"]) for i in range(2)]
    print(
        f"{load.replies} replies, {load.aborted} aborted, {load.errors} in error;"
        f" left: {len(front.desk.entries)} requests, KV and requests of the models {left}"
    )
    front.stop()


if __name__ == "__main__":
    main()
