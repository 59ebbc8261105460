"""What the tests of whole servers with real models share: a server, a client, and plain models."""

import os
import random
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from trmodel.runtime.config import ServerConfig
from trmodel.runtime.front import Front
from trmodel.runtime.messages import Sampling
from trmodel.runtime.plan import make_plan


def config_of(paths, **settings):
    return ServerConfig.model_validate(
        {
            "engine": "sglang",
            "models": {name: {"path": str(path)} for name, path in paths.items()},
            "sglang": {"device": "cpu", "dtype": "float32"},
            "thresholds": "eager",
            "max_live": 8,
            "max_context": 512,
            **settings,
        }
    )


@contextmanager
def started(config):
    front = Front(make_plan(config))
    front.start()
    try:
        assert front.wait_until_ready(), front.failed
        yield front
    finally:
        front.stop()


class Client:
    """Requests of a front end and what came of them."""

    def __init__(self, front):
        self.front, self.tokens, self.finish = front, {}, {}
        self._ended = threading.Condition()

    def ask(self, prompt, tokens, **sampling):
        return self.ask_as(prompt, Sampling(tokens, **{"temperature": 0.0, **sampling}))

    def ask_as(self, prompt, sampling):
        """Ask for a reply; return its place here, and its number."""
        place = len(self.tokens)
        self.tokens[place] = []

        def hear(event):
            self.tokens[place] += event.token_ids
            if event.finish:
                with self._ended:
                    self.finish[place] = event.finish
                    self._ended.notify_all()

        return place, self.front.submit(tuple(prompt), sampling, hear)

    def wait(self, places, timeout_s=60.0):
        with self._ended:
            assert self._ended.wait_for(lambda: set(places) <= set(self.finish), timeout_s), (
                "some request did not end"
            )


def prompts(count, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(3, 900) for _ in range(draw.randrange(1, 20))] for _ in range(count)]


def settled(front):
    """Return what the models hold once they have told anew."""
    marks = dict(front.counted)
    end = time.monotonic() + 10.0
    while time.monotonic() < end:
        told = [front.counted[i] for i in range(len(front.names))]
        fresh = all(told[i] is not marks.get(i) for i in range(len(told)))
        if fresh and not any(counts["held"] or counts["kv_tokens"] for counts in told):
            break
        time.sleep(0.1)
    return [(counts["held"], counts["kv_tokens"]) for counts in told]


def python_path():
    """Return a PYTHONPATH with which subservers find the policies of the tests."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.pathsep.join([str(Path(__file__).parent), *paths])


def plain_model(path):
    """Load a model as transformers has it."""
    torch.set_grad_enabled(False)
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
