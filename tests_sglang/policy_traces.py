"""What the tests of policies share: batches with made-up tensors, and a server run by hand."""

import sys
from pathlib import Path

import torch

from trmodel.runtime.messages import FRONT, Kind, PeerReq, Sampling
from trmodel.runtime.request import Batch, Request, StepResult
from trmodel.runtime.scheduler import Scheduler
from trmodel.runtime.table import TableInForce

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import make_routers as routers

__all__ = ["Run", "batch_of", "result_of", "routers"]


def batch_of(model, size, **fields):
    """Return a batch of requests of one token each."""
    requests = [Request(i, [65], 1, Sampling(seed=i), 0, 0, [0, 0], **fields) for i in range(size)]
    return Batch(model, requests, 0.0, [0.0] * size)


def result_of(size, V=50, d=16, seed=0, token_ids=None):
    """Return random tensors: some distributions are wide, some narrow."""
    draw = torch.Generator().manual_seed(seed)
    scale = torch.logspace(-1, 1.5, size)[torch.randperm(size, generator=draw)]
    return StepResult(
        token_ids or torch.randint(V, (size,), generator=draw).tolist(),
        {
            "logits": torch.randn(size, V, generator=draw) * scale[:, None],
            "hidden": torch.randn(size, d, generator=draw),
            "embedding": torch.randn(size, d, generator=draw),
        },
    )


class Run:
    """One request through the schedulers of two models; the caller says what steps sample.

    Parameters
    ----------
    sample
        Given the model and its request, returns a token and a row of logits.
    committed, extra
        Output that there is already, and what the policy had noted, as in a rebuilt request.
    """

    def __init__(self, policies, sample, stop_ids=(), committed=(), extra=None):
        self.sample, self.steps, self.finish = sample, [], ""
        table = TableInForce(((1, 1),))
        self.schedulers = [Scheduler(i, 2, policies[i], table, 1, 1.0) for i in range(2)]
        sampling = Sampling(max_tokens=10**6, seed=3, stop_ids=stop_ids)
        tokens = (65, *committed)
        start = PeerReq(0, 1, FRONT, 0, Kind.new, 0, tokens, 1, 0, (0, 0), sampling, extra or {})
        self.schedulers[0].receive(start, 0.0)
        self.output = []

    def step(self):
        """Run the one batch that can start; note who ran it and what was committed."""
        (scheduler,) = [s for s in self.schedulers if s.waiting]
        batch = scheduler.next_batch(0.0)
        token, logits = self.sample(batch.model, batch.requests[0])
        result = StepResult([token], {"logits": torch.tensor([logits])})
        for to, message in scheduler.complete(result, 0.0):
            if to == FRONT:
                self.output += message.token_ids
                self.finish = message.finish
                self.steps.append((batch.model, message.owner, list(message.token_ids)))
            else:
                self.schedulers[to].receive(message, 0.0)

    def until(self, steps):
        """Make so many steps, or as many as there are."""
        while len(self.steps) < steps and not self.finish:
            self.step()
        return self.steps
