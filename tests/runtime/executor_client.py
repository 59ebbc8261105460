"""What the tests of the executor share: a configuration, a client, and what it must be told."""

import threading
import time

from trmodel.runtime.config import ServerConfig
from trmodel.runtime.engines.replay import ReplayEngine
from trmodel.runtime.messages import Sampling
from trmodel.runtime.request import Request

SCRIPT = (0, 1, 0, 0, 1, 1, 0)
"""Which model follows each step; the small one's token is dropped when another follows."""


def make_config(**changes):
    return ServerConfig.model_validate(
        {
            "profile": "a100-paper",
            "policy": "scripted",
            "policy_options": {"script": list(SCRIPT), "drop_on_leaving": [0]},
            "thresholds": "eager",
            "max_live": 8,
        }
        | changes
    )


def faultless(prompt, length, seed, script=SCRIPT):
    """The output of a request that is served alone, written independently of the scheduler."""
    engines = [ReplayEngine(i, [0.0]) for i in range(max(script) + 1)]
    tokens, output, at, step = [65] * prompt, [], 0, 0
    while len(output) < length:
        request = Request(0, tokens + output, prompt, Sampling(seed=seed), 0, 0, [0, 0])
        token = engines[at].token(request)
        onward = script[step % len(script)]
        step += 1
        if not (at == 0 and onward != 0):
            output.append(token)
        at = onward
    return output


class Client:
    """Waits for one reply and notes all that it hears."""

    PROMPT = 2

    def __init__(self, front, length, seed=0):
        self.events, self.done = [], threading.Event()
        self.seed, self.length = seed, length
        sampling = Sampling(max_tokens=length, seed=seed)
        self.number = front.submit((65,) * self.PROMPT, sampling, self.hear)

    def hear(self, event):
        self.events.append(event)
        if event.finish:
            self.done.set()

    @property
    def tokens(self):
        return [token for event in self.events for token in event.token_ids]

    @property
    def ends(self):
        return [event.finish for event in self.events if event.finish]

    def check(self, timeout_s=60.0):
        """It ended once, and the reply is the one that no fault had part in."""
        assert self.done.wait(timeout_s)
        assert self.ends == ["length"]
        assert self.tokens == faultless(self.PROMPT, self.length, self.seed)


def nothing_is_left(front):
    """No KV and no request is left anywhere, once everybody has been told of the ends."""
    end = time.monotonic() + 15.0
    held = None
    while time.monotonic() < end:
        held = [
            (front.counted.get(i, {}).get("kv_tokens"), front.counted.get(i, {}).get("held"))
            for i in range(2)
        ]
        if held == [(0, 0), (0, 0)] and not front.desk.entries:
            return
        time.sleep(0.1)
    raise AssertionError(f"left: {held}, {front.desk.entries}")
