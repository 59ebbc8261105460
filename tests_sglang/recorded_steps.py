"""A policy for tests: routes by a script and writes down the logits of every step."""

import os
from pathlib import Path

import torch

from trmodel.runtime.policies import Scripted


class Recorded(Scripted):
    """`Scripted`; of each step it keeps what the model had read and what it said.

    One file a step in the folder, written by the subserver's process.
    """

    needs = frozenset({"logits"})

    def __init__(self, folder, script, drop_on_leaving=()):
        super().__init__(script, drop_on_leaving)
        self.folder, self.steps = Path(folder), 0

    def route(self, batch, result):
        self.steps += 1
        torch.save(
            {
                "model": batch.model,
                "requests": [request.id for request in batch.requests],
                "steps": [request.steps for request in batch.requests],
                "token_ids": [list(request.token_ids) for request in batch.requests],
                "logits": result.tensors["logits"].clone(),
            },
            self.folder / f"{batch.model}-{os.getpid()}-{self.steps}.pt",
        )
        return super().route(batch, result)
