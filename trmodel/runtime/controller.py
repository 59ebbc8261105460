"""Keeping the thresholds right while serving: estimate, tune, and swap when it is worth it.

Every so often, and as soon as the routing has changed, the thresholds are tuned anew for the
routing and the step times that the models really have. They are brought into force when they
promise more than a margin over the present ones; every decision is kept with its reason. All of it
goes by copies of counts that the models send anyway: nothing here can hold up a token.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from trmodel.arrays import FloatArray
from trmodel.launch import shown_vector
from trmodel.runtime.estimate import Estimated, Estimator
from trmodel.runtime.front import Front
from trmodel.runtime.retune import Answer, Job
from trmodel.system import RoutedSystem

log = logging.getLogger(__name__)

SAMPLE_S = 1.0
SETTLE_S = 4.0
"""So long after a change of the routing was found what is new about it is gathered."""
FEWEST_STEPS = 500
"""Request-steps that an estimate must rest on."""
FEWEST_OF_A_SIZE = 30
"""Steps of a batch size from which its own mean time is used."""
TUNING_S = 60.0
"""So long a tuning may take; thresholds above the n that it reached stay those of that n."""
KEPT = 200


@dataclass(frozen=True)
class Decision:
    """One decision about the thresholds.

    Attributes
    ----------
    outcome
        ``changed``, ``advised`` (in mode advise), ``kept``, ``skipped`` or ``failed``.
    n
        Live requests at which throughput was compared.
    transition_probability, low, high
        Estimate of p_ij with its 95 % interval, (M, M); empty where none was made.
    predicted_tok_s
        Throughput at n under the thresholds that are in force after the decision.
    """

    at: str
    outcome: str
    reason: str
    n: int = 0
    steps: int = 0
    transition_probability: tuple[tuple[float, ...], ...] = ()
    low: tuple[tuple[float, ...], ...] = ()
    high: tuple[tuple[float, ...], ...] = ()
    present: tuple[int, ...] = ()
    proposed: tuple[int, ...] = ()
    gain_percent: float | None = None
    predicted_tok_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


class Controller:
    """Re-tunes a front end's thresholds.

    Parameters
    ----------
    front
        A running one; its configuration says how often and by which margin.
    window_s
        How far back the estimates look when the routing does not change.
    """

    def __init__(self, front: Front, window_s: float = 120.0) -> None:
        self.front, self.settings = front, front.plan.config.retune
        self.decisions: deque[Decision] = deque(maxlen=KEPT)
        self.outcomes: dict[str, int] = {}
        """How many decisions there were of each outcome."""
        self.tuner: subprocess.Popen[bytes] | None = None
        """The process that tunes now."""
        self._estimator = Estimator(len(front.names), window_s)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)

    def start(self) -> None:
        """Begin; nothing happens if the mode is off."""
        if self.settings.mode != "off":
            self._thread.start()

    def stop(self) -> None:
        """End; a tuning in progress is given up."""
        self._stopping.set()
        tuner = self.tuner
        if tuner is not None:
            tuner.kill()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + self.settings.every_s
        while not self._stopping.wait(SAMPLE_S):
            now = time.monotonic()
            changed = self._estimator.add(now, dict(self.front.counted), self.front.desk.n)
            if changed:
                due = min(due, now + SETTLE_S)
            if now < due:
                continue
            due = now + self.settings.every_s
            try:
                decision = self._decide()
            except Exception as error:  # serving goes on whatever is wrong here
                log.exception("re-tuning failed")
                decision = _decision("failed", str(error))
            if not self._stopping.is_set():
                self._note(decision)

    def _note(self, decision: Decision) -> None:
        self.decisions.append(decision)
        self.outcomes[decision.outcome] = self.outcomes.get(decision.outcome, 0) + 1
        log.info("thresholds %s: %s", decision.outcome, decision.reason)

    def _decide(self) -> Decision:
        found = self._estimator.estimate()
        steps = int(found.transitions.sum())
        if steps < FEWEST_STEPS:
            return _decision(
                "skipped", f"{steps} steps in the window, {FEWEST_STEPS} are needed", steps=steps
            )
        version, present = self.front.desk.table_version, self.front.desk.vectors
        system, max_live = self.front.plan.system, self.front.plan.config.max_live
        n = min(max(round(found.mean_n), 1), max_live)
        job = _job(system, found, n, present)
        low, high = found.intervals()
        about: dict[str, Any] = {
            "n": n,
            "steps": steps,
            "transition_probability": job.transition_probability,
            "low": _plain(low),
            "high": _plain(high),
            "present": present[min(n, len(present)) - 1],
        }
        answer = self._tune(job)
        if answer.error:
            return _decision("failed", answer.error, **about)
        proposed = answer.vectors[min(n, len(answer.vectors)) - 1]
        gain = 100.0 * (answer.new_tok_s / answer.present_tok_s - 1.0)
        about |= {
            "proposed": proposed,
            "gain_percent": gain,
            "predicted_tok_s": answer.present_tok_s,
        }
        words = (
            f"B = {shown_vector(proposed)} gives {gain:+.2f} % over "
            f"{shown_vector(about['present'])} at n = {n}"
        )
        if gain <= self.settings.margin_percent:
            margin = f"not above the margin of {self.settings.margin_percent:g} %"
            return _decision("kept", f"{words}, {margin}", **about)
        if self.settings.mode == "advise":
            return _decision("advised", words, **about)
        if self.front.desk.table_version != version:
            why = "thresholds were set by somebody else meanwhile"
            return _decision("skipped", f"{words}, but {why}", **about)
        self.front.propose(answer.vectors)
        about["predicted_tok_s"] = answer.new_tok_s
        return _decision("changed", words, **about)

    def _tune(self, job: Job) -> Answer:
        """Tune in a process of its own."""
        command = [sys.executable, "-m", "trmodel.runtime.retune"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tuner:
            self.tuner = tuner
            try:
                if self._stopping.is_set():
                    tuner.kill()
                told, _ = tuner.communicate(msgspec.json.encode(job), timeout=2.0 * TUNING_S)
            except subprocess.TimeoutExpired:
                tuner.kill()
                return Answer(error=f"tuning took more than {2.0 * TUNING_S:g} s")
            finally:
                self.tuner = None
        if tuner.returncode:
            return Answer(error=f"the tuner ended with {tuner.returncode}")
        return msgspec.json.decode(told, type=Answer)


def _decision(outcome: str, reason: str, **about: Any) -> Decision:
    return Decision(datetime.now(UTC).isoformat(timespec="seconds"), outcome, reason, **about)


def _job(system: RoutedSystem, found: Estimated, n: int, present: Any) -> Job:
    latency, wake, measured = latencies(system, found)
    alone = np.ones_like(system.slow_down)
    return Job(
        models=system.models,
        latency_ms=_plain(latency),
        transition_probability=_plain(found.transition_probability(system.transition_probability)),
        committed_tokens=_plain(found.committed_tokens(system.committed_tokens)),
        # Measured steps are as long as they are, what models do to each other included.
        slow_down=_plain(alone if measured else system.slow_down),
        wake_ms=tuple(map(float, wake)),
        handoff_ms=_plain(found.handoff_ms(system.handoff_ms)),
        entry=system.entry,
        max_batch=system.max_batch,
        grid_ms=system.grid_ms,
        max_live=system.N,
        n=n,
        present=present,
        time_limit_s=TUNING_S,
    )


def latencies(system: RoutedSystem, found: Estimated) -> tuple[FloatArray, FloatArray, bool]:
    """Return step latencies, waking, and whether all models were measured.

    Measured steps hold the waking that the present thresholds cause; others cause it less or more
    often. So latencies, (M, N) in ms by batch size, and waking, (M,) in ms, are the profile's times
    the ratio of measured steps to what the profile says of those very steps: the size's own, or the
    model's where a size has few.
    """
    latency, wake = system.latency_ms.copy(), system.wake_ms.copy()
    measured = True
    for i, steps in enumerate(found.steps):
        inside = {size: held for size, held in steps.items() if size <= latency.shape[1]}
        if sum(held for held, _, _ in inside.values()) < FEWEST_OF_A_SIZE:
            measured = False
            continue
        planned_ms = {
            size: held * latency[i, size - 1] + idle * wake[i]
            for size, (held, _, idle) in inside.items()
        }
        ratio = 1000.0 * sum(took for _, took, _ in inside.values()) / sum(planned_ms.values())
        ratios = np.full_like(latency[i], ratio)
        for size, (held, took_s, _) in inside.items():
            if held >= FEWEST_OF_A_SIZE:
                ratios[size - 1] = 1000.0 * took_s / planned_ms[size]
        latency[i] *= ratios
        wake[i] *= ratio
    return latency, wake, measured


def _plain(matrix: FloatArray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in matrix)
