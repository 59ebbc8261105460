"""One measurement: a closed loop of N requests under thresholds B, from start to figures.

What happens before the warm-up is over is not counted. Throughput is what clients saw: tokens that
came within the window, with a confidence interval from the batch means of its sections. Steps,
waits and routing come from what the subservers count: differences of their totals at both ends of
the window, each by the subserver's own clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from trmodel._version import __version__
from trmodel.errors import TrmodelError, UsageError
from trmodel.launch import is_live, require_live
from trmodel.runtime.bench.loop import PROMPT, REPLY_TOKENS, Asked, ClosedLoop
from trmodel.runtime.bench.target import Stats, Target, wait_for
from trmodel.runtime.counters import Bins, late, summary
from trmodel.runtime.table import Vectors
from trmodel.simulate.intervals import ratio

SCHEMA = "trmodel/measured-point"
SECTIONS = 32
"""Of the window, for the interval."""
STALL, LATE = 2.0, 10.0
"""Steps and handoffs that take more than so many medians were held up by the machine."""
_TABLE_S = 10.0
_TOLD_S = 10.0
_SILENT = "not every subserver has told what it counts"


def vectors_up_to(B: Sequence[int], N: int) -> Vectors:
    """Return a live table whose vector at N is B: below, its largest thresholds are lowered.

    Raises
    ------
    InfeasibleError
        If B itself is not live at N.
    """
    require_live(B, N)
    rows = []
    for n in range(1, N + 1):
        row = list(B)
        while not is_live(row, n):
            row[row.index(max(row))] -= 1
        rows.append(tuple(row))
    return tuple(rows)


def measure_point(
    target: Target,
    N: int,
    B: Sequence[int],
    *,
    seconds: float = 20.0,
    warm_up: float = 3.0,
    reply_tokens: int = REPLY_TOKENS,
    seed: int = 0,
    requests: Iterator[Asked] | None = None,
    prompt: Sequence[int] = PROMPT,
    record: bool = False,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """Measure one setting; the target should have no other load.

    Parameters
    ----------
    seconds, warm_up
        Length of the window, and what comes before it.
    reply_tokens, seed, requests, prompt
        See `ClosedLoop`.
    record
        Keep when every token came.

    Returns
    -------
    dict
        Plain values, a line of the results file; ``docs/measuring.md`` explains them.

    Raises
    ------
    InfeasibleError, UsageError, TrmodelError
        If B can deadlock, an argument makes no sense, or the server failed.
    """
    if not (seconds > 0.0 and warm_up >= 0.0):
        raise UsageError(f"seconds: the window must have a length, got {seconds:g}")
    B = tuple(B)
    target.set_thresholds(vectors_up_to(B, N))
    wait_for(lambda: target.stats().table_in_use, _TABLE_S, "the thresholds are not in use")
    started = datetime.now(UTC)
    load_before = os.getloadavg()[0]
    with ClosedLoop(target, N, reply_tokens, seed, requests, prompt) as loop:
        _pause(loop, warm_up)
        first, start = target.stats(), time.monotonic()
        _pause(loop, seconds)
        end = time.monotonic()
        wait_for(lambda: _told_since(first, target.stats()), _TOLD_S, _SILENT)
        last = target.stats()
        _check(first, last, N)
    spans = _spans(first, last)
    return {
        "schema": SCHEMA,
        "schema_version": 1,
        "trmodel_version": __version__,
        "started_at": started.isoformat(timespec="seconds"),
        "load_average": [load_before, os.getloadavg()[0]],
        "models": list(first.models),
        "N": N,
        "B": list(B),
        "seconds": end - start,
        "warm_up_s": warm_up,
        "reply_tokens": reply_tokens,
        "seed": seed,
        **_seen_by_clients(loop, start, end, confidence),
        **_counted(first.models, spans, N),
        **({"replies": _record(loop, start, end)} if record else {}),
    }


def _check(first: Stats, last: Stats, N: int) -> None:
    """Refuse a window in which the load or the thresholds were not those asked for."""
    if min(first.queued, last.queued) > 0:
        raise UsageError(f"N: the server runs {last.n} requests at a time, not {N} (max_live)")
    if first.table_version != last.table_version:
        raise TrmodelError("somebody else changed the thresholds during the measurement")


def _told_since(before: Stats, now: Stats) -> bool:
    """Whether every model has told something newer: on a busy machine that takes its time."""

    def at(stats: Stats, model: int) -> float:
        return float(stats.counted.get(model, {}).get("now_s", 0.0))

    return all(at(now, model) > at(before, model) for model in range(len(before.models)))


def _pause(loop: ClosedLoop, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0.0:
        loop.check()
        time.sleep(min(left, 0.1))


def _seen_by_clients(
    loop: ClosedLoop, start: float, end: float, confidence: float
) -> dict[str, Any]:
    """Return throughput with its interval, and the delays of tokens within the window."""
    times, counts, gaps, first_tokens = [], [], [], []
    for reply in loop.replies:
        before = None
        for came_at, count in list(reply.came_at):
            if start <= came_at < end:
                times.append(came_at)
                counts.append(count)
                if before is None:
                    first_tokens.append(came_at - reply.asked_at)
                else:
                    gaps += [came_at - before] + [0.0] * (count - 1)
            before = came_at
    per_section, edges = np.histogram(times, SECTIONS, (start, end), weights=counts)
    speed = ratio(np.asarray(per_section, dtype=float), np.diff(edges), confidence)
    return {
        "tokens": int(sum(counts)),
        "throughput_tok_s": speed.value,
        "throughput_interval_tok_s": [speed.low, speed.high],
        "confidence": confidence,
        "inter_token_ms": _delays(gaps),
        "first_token_ms": _delays(first_tokens),
    }


def _record(loop: ClosedLoop, start: float, end: float) -> list[dict[str, Any]]:
    """Return for each reply when it was asked for and when tokens came, from the window's start."""
    return [
        {
            "asked_s": reply.asked_at - start,
            "came_s": [[came_at - start, count] for came_at, count in reply.came_at],
        }
        for reply in loop.replies
        if any(start <= came_at < end for came_at, _ in reply.came_at)
    ]


def _delays(seconds: list[float]) -> dict[str, float | None]:
    if not seconds:
        return {"mean": None, "p50": None, "p90": None, "p99": None}
    values = 1000.0 * np.asarray(seconds)
    p50, p90, p99 = np.quantile(values, (0.5, 0.9, 0.99)).tolist()
    return {"mean": float(values.mean()), "p50": p50, "p90": p90, "p99": p99}


def _spans(first: Stats, last: Stats) -> list[dict[str, Any]]:
    """Return for each model what it counted between two moments.

    Raises
    ------
    TrmodelError
        If a subserver was started anew in between, or said nothing.
    """
    spans = []
    for model, name in enumerate(first.models):
        before, after = first.counted.get(model), last.counted.get(model)
        if before is None or after is None or after["now_s"] - before["now_s"] <= 0.0:
            raise TrmodelError(f"{name}: its subserver told nothing; the window is too short")
        if before["pid"] != after["pid"]:
            raise TrmodelError(f"{name}: its subserver was started anew while it was measured")
        spans.append(difference(before, after))
    return spans


def difference(before: Any, after: Any) -> Any:
    """Subtract totals: numbers, and lists and mappings of them; what was not there is 0."""
    if isinstance(after, dict):
        empty = before if isinstance(before, dict) else {}
        return {key: difference(empty.get(key), value) for key, value in after.items()}
    if isinstance(after, (list, tuple)):
        old = before if isinstance(before, (list, tuple)) else [None] * len(after)
        return [difference(a, b) for a, b in zip(old, after, strict=True)]
    return after - (before or 0)


def _counted(models: Sequence[str], spans: list[dict[str, Any]], N: int) -> dict[str, Any]:
    per_model = []
    rate = sum(sum(span["committed"]) / span["now_s"] for span in spans)
    parts = dict.fromkeys(("forward", "route", "threshold_wait", "batch_wait"), 0.0)
    for name, span in zip(models, spans, strict=True):
        batches = {int(size): entry for size, entry in span["batches"].items() if entry[0]}
        steps = sum(entry[0] for entry in batches.values())
        requests = sum(size * entry[0] for size, entry in batches.items())
        waits = span["threshold_wait_s"] + span["batch_wait_s"]
        per_model.append(
            {
                "name": name,
                "counted_s": span["now_s"],
                "batches": {str(size): entry[0] for size, entry in batches.items()},
                "steps": {
                    str(size): summary(_whole(span["step_bins"][str(size)]), STALL)
                    for size in batches
                },
                "idle_starts": {size: n for size, n in span["idle_starts"].items() if n},
                "arrivals": [summary(_whole(bins), LATE) for bins in span["arrival_bins"]],
                "mean_batch": requests / steps if steps else None,
                "admission_delay_ms": 1000.0 * waits / requests if requests else None,
                "busy_fraction": sum(entry[1] for entry in batches.values()) / span["now_s"],
                "route_ms": 1000.0 * span["route_s"] / requests if requests else 0.0,
                "transitions": span["transitions"],
                "committed": span["committed"],
                "extended_tokens": span["extended"],
                "mean_context_tokens": span["context"] / requests if requests else None,
                "resent": span["resent"],
                "held_up_percent": 100.0 * _held_up_s(span) / span["now_s"],
            }
        )
        for part in parts:
            parts[part] += span[f"{part}_s"] / span["now_s"]
    ledger = {f"{part}_ms": 1000.0 * value / rate for part, value in parts.items() if rate}
    if rate:
        ledger["handoff_ms"] = 1000.0 * N / rate - sum(ledger.values())
        ledger["total_ms"] = 1000.0 * N / rate
    extend = sum(span["extend_s"] / span["now_s"] for span in spans)
    steps_by_model = [sum(entry["transitions"]) for entry in per_model]
    return {
        "committed_tok_s": rate,
        "transition_probability": [
            [count / max(sum(entry["transitions"]), 1) for count in entry["transitions"]]
            for entry in per_model
        ],
        "step_share": [count / max(sum(steps_by_model), 1) for count in steps_by_model],
        "ledger": ledger,
        "extend_ms": 1000.0 * extend / rate if rate else None,
        "per_model": per_model,
    }


def _held_up_s(span: dict[str, Any]) -> float:
    """Return how much longer than their like the steps and handoffs took that the machine stalled.

    Handoffs of one moment (a bin) are one stall.
    """
    found = 0.0
    for bins in span["step_bins"].values():
        found += sum(count * extra_s for extra_s, count in late(_whole(bins), STALL))
    for bins in span["arrival_bins"]:
        found += sum(extra_s for extra_s, _ in late(_whole(bins), LATE))
    return found


def _whole(bins: dict[str, int]) -> Bins:
    return {int(place): count for place, count in bins.items() if count}


def told(target: Target) -> None:
    """Wait until every subserver has told what it counts.

    Raises
    ------
    TrmodelError
    """

    def all_told() -> bool:
        stats = target.stats()
        return len(stats.counted) == len(stats.models)

    wait_for(all_told, _TOLD_S, _SILENT)
