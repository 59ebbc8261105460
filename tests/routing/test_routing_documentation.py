"""docs/routing.md is true: its document loads, its code runs, its trace can be read."""

import json
import re
from pathlib import Path

import pytest

from trmodel import predict
from trmodel.routing import load_routing
from trmodel.routing.trace import read_trace

TEXT = (Path(__file__).parents[2] / "docs" / "routing.md").read_text(encoding="utf-8")


def block(language):
    (found,) = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return found


def test_the_document_loads_and_ends_a_reply_every_hundred_tokens(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_text(block("json"))
    assert load_routing(path).restart == json.loads(block("json"))["restart"]
    found = predict("a100-paper", N=3, B=(1, 2), routing=path)
    assert found.throughput_tok_s / found.replies_per_s == pytest.approx(100, rel=0.5)


def test_the_code_runs(capsys):
    exec(block("python"), {})
    assert all(float(line) > 0 for line in capsys.readouterr().out.splitlines())


def test_the_trace_is_one(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(block("text"))
    trace = read_trace(path)
    assert trace.requests == 2
    assert trace.models == ("Qwen3-0.6B", "Qwen3-32B")
