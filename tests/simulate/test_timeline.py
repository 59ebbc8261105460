"""Timelines: what they hold is consistent with itself, and the trace with its format."""

import json
from itertools import pairwise

import jsonschema
import pytest

from trmodel.errors import LimitError, UsageError
from trmodel.profile import build_system, load_profile
from trmodel.simulate import Simulator
from trmodel.simulate.strategies import STRATEGIES, strategy_case
from trmodel.simulate.timeline import chrome_trace, timeline

SYSTEM = build_system(load_profile("a100"), 6)
CASES = {name: strategy_case(name, SYSTEM, (2, 4)) for name in STRATEGIES}

TRACE = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "items": {
                "required": ["name", "ph", "pid", "tid"],
                "properties": {
                    "name": {"type": "string"},
                    "ph": {"enum": ["X", "M"]},
                    "pid": {"type": "integer"},
                    "tid": {"type": "integer"},
                    "ts": {"type": "number", "minimum": 0},
                    "dur": {"type": "number", "exclusiveMinimum": 0},
                    "args": {"type": "object"},
                },
                "if": {"properties": {"ph": {"const": "X"}}},
                "then": {"required": ["ts", "dur", "args"]},
            },
        },
    },
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_timeline_is_consistent(name):
    line = timeline(CASES[name], start_ms=100.0, duration_ms=2000.0)
    assert (line.start_ms, line.end_ms) == (100.0, 2100.0)
    assert len(line.batches) > 50
    for i in range(2):
        own = [batch for batch in line.batches if batch.model == i]
        assert all(a.end_ms <= b.start_ms + 1e-6 for a, b in pairwise(own))
    for request in range(6):
        own = [batch for batch in line.batches if request in batch.requests]
        assert len(own) > 10
        assert all(a.end_ms <= b.start_ms + 1e-6 for a, b in pairwise(own))
    assert all(len(set(batch.requests)) == batch.size >= 1 for batch in line.batches)
    if name == "delayed":
        assert all(batch.size >= (2, 4)[batch.model] for batch in line.batches)
    if name in ("step-sync", "model-sync"):
        assert all(a.end_ms <= b.start_ms + 1e-6 for a, b in pairwise(line.batches))


def test_a_later_start_is_a_cut_of_the_whole():
    whole = timeline(CASES["eager"], duration_ms=1000.0)
    part = timeline(CASES["eager"], start_ms=400.0, duration_ms=600.0)
    assert part.batches == tuple(b for b in whole.batches if b.end_ms > 400.0)
    assert any(b.start_ms < 400.0 for b in part.batches)
    assert sum(b.end_ms == float("inf") for b in whole.batches) in (1, 2)


def test_busy_time_is_that_of_the_counts():
    duration = 60_000.0
    line = timeline(CASES["delayed"], duration_ms=duration)
    assert len(line.batches) > 1024  # longer than the first log
    counts = Simulator(SYSTEM, (2, 4)).run_until(duration)
    done = [b for b in line.batches if b.end_ms <= duration]
    for i in range(2):
        busy = sum(b.end_ms - b.start_ms for b in done if b.model == i)
        assert busy == pytest.approx(float(counts.busy[i]), abs=40.0)
        assert sum(b.model == i for b in done) == counts.batches[i]


def test_a_batch_from_before_does_not_end_one_of_the_timeline():
    whole = Simulator(SYSTEM, (1, 1)).run_batches(400, timeline=1000)
    rows = list(zip(whole.log_model, whole.log_start, whole.log_end, strict=True))
    for before in range(1, 40):
        run = Simulator(SYSTEM, (1, 1))
        run.run_batches(before)
        part = run.run_batches(50, timeline=200)
        logged = int(part.logged[0])
        found = zip(part.log_model, part.log_start, part.log_end, strict=True)
        finished = [row for row in list(found)[:logged] if row[2] == row[2]]
        assert len(finished) >= 47
        assert all(row in rows for row in finished)


def test_the_trace_follows_its_format():
    lines = {name: timeline(case, start_ms=50.0) for name, case in CASES.items()}
    trace = json.loads(json.dumps(chrome_trace(lines), allow_nan=False))
    jsonschema.validate(trace, TRACE)
    events = trace["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == dict(enumerate(STRATEGIES, start=1))
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"
    }
    assert threads == {
        (pid, tid): model for pid in names for tid, model in enumerate(SYSTEM.models, start=1)
    }
    for pid, name in names.items():
        batches = [e for e in events if e["ph"] == "X" and e["pid"] == pid]
        assert len(batches) == len(lines[name].batches)
        for event, batch in zip(batches, lines[name].batches, strict=True):
            assert event["tid"] == batch.model + 1
            assert event["args"] == {"batch_size": batch.size, "requests": list(batch.requests)}
            start, end = lines[name].shown(batch)
            assert event["ts"] == pytest.approx(1000.0 * start, abs=1e-3)
            assert event["ts"] + event["dur"] == pytest.approx(1000.0 * end, abs=2e-3)
            assert 50_000.0 <= event["ts"] < 350_000.0
        for tid in (1, 2):
            own = [event for event in batches if event["tid"] == tid]
            assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-9 for a, b in pairwise(own))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"start_ms": -1.0}, "timeline_from"),
        ({"start_ms": float("nan")}, "timeline_from"),
        ({"duration_ms": 0.0}, "timeline_ms"),
        ({"duration_ms": float("inf")}, "timeline_ms"),
    ],
)
def test_times_that_make_no_sense(asked, named):
    with pytest.raises(UsageError, match=named):
        timeline(CASES["eager"], **asked)


def test_too_long_a_timeline(monkeypatch):
    monkeypatch.setattr("trmodel.simulate.timeline.MOST_BATCHES", 2000)
    with pytest.raises(LimitError, match="more than 2,000 batches"):
        timeline(CASES["eager"], duration_ms=1e6)
