"""Many streams at once, with memory and descriptors that stay as they are."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def streams(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import streams

    yield streams
    del sys.modules["streams"]


def test_a_hundred_streams_leave_nothing_behind(streams):
    found = streams.measure(streams=100, tokens=8, rounds=2, idle_s=0.5)
    first, second = found["rounds"]
    for each in (first, second):
        assert each["failures"] == 0, each["examples"]
        # Each open stream is one descriptor, and there are no others.
        assert each["most"]["descriptors"] <= found["before"]["descriptors"] + 110
        assert each["after"]["descriptors"] <= found["before"]["descriptors"] + 5
    assert found["left"] == {"requests": 0, "kv_tokens": 0}
    grown = second["after"]["front_memory_mib"] - first["after"]["front_memory_mib"]
    assert grown < 5.0
