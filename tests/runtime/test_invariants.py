"""What must always hold, tested by number with a network that does its worst.

While `LossyExecutor` does what it can, and when the network has healed at the end:

1. Every output position is committed once, in order.
2. A message older than the last accepted handoff, or repeated, changes nothing.
3. When a request ends anywhere, every model frees its KV.
4. No batch that cannot fill is waited for.
5. Every threshold vector in use is live.
6. The requests of a model that died are rebuilt and go on, with what the policy noted of them.
7. What a model's cache holds of a request is what the reply really begins with.

Replies that do not depend on how often a step is tried must be as if nothing had happened. Where
they do, each token must have been made from the very tokens before it.
"""

import os

from executor_client import SCRIPT, faultless
from hypothesis import HealthCheck, Phase, settings
from lossy_executor import PROMPT_TOKEN, LossyExecutor
from untrusting_engine import ByToken, Origins, UntrustingEngine

from trmodel.runtime.engines.replay import ReplayEngine
from trmodel.runtime.policies import Scripted

QUICK = os.environ.get("QUICK")
EXAMPLES = int(os.environ.get("EXAMPLES", 100))
"""So many are quick; look for more by hand."""


SCRIPTS = {2: SCRIPT, 3: (0, 1, 2, 0, 0, 2, 1, 1, 0)}
"""By the number of models."""


class Counting(Scripted):
    """Counts the steps of a request itself, in what travels with it."""

    def route(self, batch, result):
        for request in batch.requests:
            told = request.extra.get("steps", 0)
            assert told == request.steps
            request.extra["steps"] = told + 1
        return super().route(batch, result)


class Repeatable(LossyExecutor):
    """Tokens and ways depend on seed and position alone."""

    def make_policy(self):
        return Counting(SCRIPTS[self.M], drop_on_leaving=(0,))

    def make_engine(self, place):
        return ReplayEngine(place, [0.0])

    def check(self, number, tokens):
        prompt, length = self.wanted[number]
        expected = faultless(prompt, length, seed=length, script=SCRIPTS[self.M])
        assert tokens == expected[: len(tokens)]


class Unrepeatable(LossyExecutor):
    """A second try gives other tokens, which may go another way."""

    def make_policy(self):
        return ByToken(self.M)

    def make_engine(self, place):
        if not hasattr(self, "origins"):
            self.origins = Origins()
        return UntrustingEngine(place, self.origins)

    def check(self, number, tokens):
        read = [PROMPT_TOKEN] * self.wanted[number][0]
        step = -1
        for token in tokens:
            origin = self.origins.of[token]
            assert origin.read == tuple(read)
            assert origin.step > step
            step = origin.step
            read.append(token)


SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=60,
    deadline=None,
    phases=[Phase.explicit, Phase.generate] if QUICK else list(Phase),
    suppress_health_check=list(HealthCheck),
)
TestRepeatable = Repeatable.TestCase
TestRepeatable.settings = SETTINGS
TestUnrepeatable = Unrepeatable.TestCase
TestUnrepeatable.settings = SETTINGS
