"""Runs of a server at thresholds of its policy, for `trmodel.runtime.bench.share`."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trmodel.documents import StrPath, json_text, read_text, shown
from trmodel.errors import InputError, TrmodelError, UsageError
from trmodel.runtime.bench.prompts import Prompt
from trmodel.runtime.bench.running import running
from trmodel.runtime.bench.share import Run
from trmodel.runtime.bench.target import Target
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.policies.find import find_policy
from trmodel.runtime.policies.recording import read_steps
from trmodel.runtime.policies.threshold import ThresholdPolicy

_LOOK_EVERY_S = 1.0


class ServerRuns:
    """Starts a server at every threshold, and lets it answer the same requests.

    Parameters
    ----------
    config
        Of the server; its policy must be one with a threshold.
    prompts
        One for each request.
    reply_tokens
        Length of every reply.
    seed
        The k-th request has the seed ``seed + k``.
    """

    def __init__(
        self, config: ServerConfig, prompts: Sequence[Prompt], reply_tokens: int, seed: int = 0
    ) -> None:
        self.config, self.prompts = config, list(prompts)
        self.reply_tokens, self.seed = reply_tokens, seed

    def __call__(self, threshold: float) -> Run:
        """Run at a threshold.

        Raises
        ------
        TrmodelError
            One of its subclasses; if the server does not start or a reply fails.
        """
        with tempfile.TemporaryDirectory(prefix="trmodel-") as folder:
            recording = {
                "policy": self.config.policy,
                "options": {**self.config.policy_options, "threshold": threshold},
                "folder": folder,
            }
            config = self.config.model_copy(
                update={"policy": "recording", "policy_options": recording}
            )
            with running(config) as target:
                M = len(target.stats().models)
                ask_all(target, self.prompts, self.reply_tokens, self.seed, config.max_live)
            steps = read_steps(Path(folder))
        tokens = np.zeros((len(self.prompts), M), dtype=np.int64)
        for step in steps:
            tokens[step["seed"] - self.seed, step["model"]] += step["committed"]
        scores = np.array([step["score"] for step in steps if "score" in step], dtype=float)
        return Run(tokens, scores)


def threshold_policy(config: ServerConfig) -> ThresholdPolicy:
    """Make the policy of a server, which must have a threshold.

    Raises
    ------
    UsageError, InputError
        If it has none, or cannot be made.
    """
    rows = ((0.5, 0.5), (0.5, 0.5))  # policies by thresholds do not look at it
    policy = find_policy(config.policy, config.policy_options, rows, rows)
    if not isinstance(policy, ThresholdPolicy):
        raise UsageError(f"policy: {config.policy} has no threshold to calibrate")
    return policy


def ask_all(
    target: Target, prompts: Sequence[Prompt], reply_tokens: int, seed: int, most: int
) -> None:
    """Ask for a reply to every prompt, so many at a time, and wait for all.

    Raises
    ------
    TrmodelError
        If one of them fails.
    """
    slots, failed = threading.Semaphore(most), ""

    def hear(_: int, finish: str) -> None:
        nonlocal failed
        if finish:
            failed = failed or (finish if finish.startswith("error") else "")
            slots.release()

    def take_slot() -> None:
        while not slots.acquire(timeout=_LOOK_EVERY_S):
            target.stats()  # raises if the server has failed
        if failed:
            raise TrmodelError(f"a reply failed: {failed}")

    for k, prompt in enumerate(prompts):
        take_slot()
        target.ask(prompt, reply_tokens, seed + k, hear)
    for _ in range(most):
        take_slot()


def with_threshold(config: StrPath, threshold: float, json: bool = False) -> str:
    """Return the text of a server's file with another threshold, in YAML or JSON.

    Comments are lost.

    Raises
    ------
    InputError
        If it cannot be read or holds no settings.
    """
    import yaml

    text, _ = read_text(config, "a server's settings")
    settings = yaml.safe_load(text)
    if not isinstance(settings, dict):
        raise InputError(f"{shown(config)}: must hold named settings")
    options = {**(settings.get("policy_options") or {}), "threshold": threshold}
    changed = {**settings, "policy_options": options}
    return json_text(changed) + "\n" if json else yaml.safe_dump(changed, sort_keys=False)
