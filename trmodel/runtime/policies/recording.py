"""A policy around another one that notes what was decided: a trace of a server."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from trmodel.runtime.messages import PeerReq
from trmodel.runtime.policies.base import Policy, SmallModel
from trmodel.runtime.policies.options import OptionError, options_at, text
from trmodel.runtime.policies.threshold import ThresholdPolicy
from trmodel.runtime.request import Batch, Request, StepResult

_OPTIONS = "policy_options.options"


class Recording(Policy):
    """Route as another policy does, and write a line for every step of every request.

    Every model's process writes a file of its own, JSON lines of ``request``, ``seed``, ``step``,
    ``model`` and ``destination`` (places), ``committed`` (tokens), and ``score`` where a threshold
    decided. `read_steps` puts them together.

    Parameters
    ----------
    policy, options
        The other policy.
    folder
        Where to write; it must exist, and be without an earlier run's files when a server starts.
    """

    takes_routing = True

    def __init__(
        self,
        transition_probability: Sequence[Sequence[float]],
        committed_tokens: Sequence[Sequence[float]],
        policy: str,
        folder: str,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        from trmodel.runtime.policies.find import find_policy

        if not Path(text("folder", folder)).is_dir():
            raise OptionError("folder", f"{folder} is no folder")
        options = {} if options is None else options
        if not isinstance(options, Mapping):
            raise OptionError("options", f"must be named options, got {options!r}")
        self.inner = find_policy(
            text("policy", policy),
            options,
            transition_probability,
            committed_tokens,
            where=_OPTIONS,
        )
        self.needs, self.models = self.inner.needs, self.inner.models
        self.takes_routing = self.inner.takes_routing
        self._folder = Path(folder)
        self._file: TextIO | None = None
        self._scores: dict[int, float] = {}

    def check_start(self, small: SmallModel | None) -> None:
        if there := sorted(path.name for path in self._folder.glob("*.jsonl")):
            raise OptionError(
                "folder",
                f"{self._folder} has the steps of an earlier run, {there[0]}; name an empty one",
            )
        with options_at(_OPTIONS):
            self.inner.check_start(small)

    def route(self, batch: Batch, result: StepResult) -> Any:
        inner = self.inner
        self._scores = {}
        if isinstance(inner, ThresholdPolicy) and inner.scores(batch):
            scores = inner.score(batch, result).tolist()
            numbers = (request.id for request in batch.requests)
            self._scores = {
                number: score
                for number, score in zip(numbers, scores, strict=True)
                if score == score
            }
        return inner.route(batch, result)

    def commit(
        self, request: Request, token_ids: list[int], source: int, destination: int
    ) -> list[int]:
        kept = self.inner.commit(request, token_ids, source, destination)
        row: dict[str, float] = {
            "request": request.id,
            "seed": request.sampling.seed,
            "step": request.steps,
            "model": source,
            "destination": destination,
            "committed": sum(token not in request.sampling.stop_ids for token in kept),
        }
        if request.id in self._scores:
            row["score"] = self._scores[request.id]
        if self._file is None:
            name = self._folder / f"{source}-{os.getpid()}.jsonl"
            self._file = open(name, "a", buffering=1, encoding="utf-8")  # noqa: SIM115
            weakref.finalize(self, self._file.close)
        self._file.write(json.dumps(row) + "\n")
        return kept

    def send(self, request: Request, source: int, destination: int) -> PeerReq:
        return self.inner.send(request, source, destination)

    def receive(self, message: PeerReq, request: Request) -> None:
        self.inner.receive(message, request)


def read_steps(folder: Path) -> list[dict[str, Any]]:
    """Read what `Recording` wrote: the steps of each request together, in order."""
    lines = (line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines())
    return sorted(map(json.loads, lines), key=lambda row: (row["request"], row["step"]))
