"""Each model's batches over a stretch of simulated time, and as a Chrome trace.

A trace (the Trace Event Format that Perfetto and chrome://tracing load) has a process for each
strategy, a thread for each model and a complete event ``X`` for each batch; times in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmodel.errors import LimitError, UsageError
from trmodel.simulate.paired import Case
from trmodel.simulate.simulator import Simulator
from trmodel.system_checks import is_number, is_positive

MOST_BATCHES = 1 << 20
DEFAULT_TIMELINE_MS = 300.0


@dataclass(frozen=True)
class Batch:
    """One batch: the model's index, its requests, and from when to when it ran.

    ``end_ms`` is infinite if it ran beyond the end of the timeline.
    """

    model: int
    requests: tuple[int, ...]
    start_ms: float
    end_ms: float

    @property
    def size(self) -> int:
        """How many requests it holds."""
        return len(self.requests)


@dataclass(frozen=True)
class Timeline:
    """The batches, by start, that ran at some time between ``start_ms`` and ``end_ms``."""

    models: tuple[str, ...]
    B: tuple[int, ...]
    start_ms: float
    end_ms: float
    batches: tuple[Batch, ...]

    def shown(self, batch: Batch) -> tuple[float, float]:
        """Return from when to when a batch ran within the timeline."""
        return max(batch.start_ms, self.start_ms), min(batch.end_ms, self.end_ms)


def timeline(
    case: Case,
    *,
    seed: int = 0,
    start_ms: float = 0.0,
    duration_ms: float = DEFAULT_TIMELINE_MS,
) -> Timeline:
    """Simulate from time 0 and keep what ran from ``start_ms`` on, for ``duration_ms``.

    Raises
    ------
    UsageError, InfeasibleError, InputError
        See `Simulator`, and if the times make no sense.
    LimitError
        If more than `MOST_BATCHES` batches start until the end.
    """
    if not (is_number(start_ms) and math.isfinite(start_ms) and start_ms >= 0.0):
        raise UsageError(f"timeline_from: must be milliseconds of at least 0, got {start_ms}")
    if not is_positive(duration_ms):
        raise UsageError(f"timeline_ms: must be a positive number, got {duration_ms}")
    end_ms = start_ms + duration_ms
    room = 1 << 10
    while True:
        run = Simulator(case.system, case.B, case.options, seed)
        counts = run.run_until(end_ms, timeline=room)
        logged = int(counts.logged[0])
        if logged < room:
            break
        room *= 4
        if room > MOST_BATCHES:
            raise LimitError(f"timeline: more than {MOST_BATCHES:,} batches until {end_ms:g} ms")
    ends = np.nan_to_num(counts.log_end[:logged], nan=np.inf)
    batches = (
        Batch(
            int(counts.log_model[row]),
            tuple(counts.log_slots[row, : counts.log_size[row]].tolist()),
            float(counts.log_start[row]) * run.unit_ms,
            float(ends[row]) * run.unit_ms,
        )
        for row in range(logged)
    )
    return Timeline(
        case.system.models,
        tuple(int(b) for b in run.rules.thresholds[case.system.N]),
        start_ms,
        end_ms,
        tuple(batch for batch in batches if batch.end_ms > start_ms and batch.start_ms < end_ms),
    )


def chrome_trace(timelines: Mapping[str, Timeline]) -> dict[str, Any]:
    """Return timelines, by name of the strategy, in Chrome's trace event format."""
    events: list[dict[str, Any]] = []
    for pid, (name, line) in enumerate(timelines.items(), start=1):
        events.append(_named("process_name", pid, 0, name))
        events += [_named("thread_name", pid, tid, m) for tid, m in enumerate(line.models, 1)]
        for batch in line.batches:
            # Rounded before they are subtracted, so that neighbours never overlap.
            start, end = (round(1000.0 * ms, 3) for ms in line.shown(batch))
            events.append(
                {
                    "name": f"{line.models[batch.model]} x{batch.size}",
                    "cat": "batch",
                    "ph": "X",
                    "pid": pid,
                    "tid": batch.model + 1,
                    "ts": start,
                    "dur": round(end - start, 3),
                    "args": {"batch_size": batch.size, "requests": list(batch.requests)},
                }
            )
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
