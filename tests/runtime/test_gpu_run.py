"""The run of all that wants a GPU: whatever its parts do, it ends in time and says what lacks."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from trmodel.runtime.engines.sglang.folder import ModelFolder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gpu_run(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import measure_gpu

    yield measure_gpu
    for name in ("measure_gpu", "standard_serving", "peer"):
        del sys.modules[name]


def quick(plan):
    yield "speed", {"throughput_tok_s": plan}


def failing(plan):
    yield "before", {}
    raise ValueError("no such GPU")


def dying(plan):
    os._exit(3)
    yield


def endless(plan):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield "child", {"pid": child.pid}
    time.sleep(600.0)


def test_every_part_says_how_it_went(gpu_run):
    parts = [gpu_run.Part(each, 0.0, 30.0) for each in (quick, failing, dying)]
    parts.append(gpu_run.Part(endless, 0.0, 4.0))
    parts.append(gpu_run.Part(quick, 1000.0, 1000.0))
    written = []
    began = time.monotonic()
    found = gpu_run.measure_all(7.0, parts[:4], 60.0, lambda it: written.append(json.dumps(it)))
    assert found["quick"]["state"] == "whole"
    assert found["quick"]["found"] == {"speed": {"throughput_tok_s": 7.0}}
    assert found["failing"]["state"] == "failed"
    assert found["failing"]["why"] == "ValueError: no such GPU"
    assert found["failing"]["found"] == {"before": {}}
    assert found["dying"]["state"] == "failed"
    assert found["endless"]["state"] == "cut off"
    child = found["endless"]["found"]["child"]["pid"]
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"
    assert len(written) == 4
    assert json.loads(written[-1]) == found
    late = gpu_run.measure_all(7.0, parts[4:], 60.0, lambda document: None)
    assert late["quick"]["state"] == "left out"
    assert "60 s were left, it needs 1000" in late["quick"]["why"]
    assert time.monotonic() - began < 60.0


def test_made_up_models_are_folders_of_models(gpu_run, tmp_path):
    """Of the sizes that they are named by: what a token's cache takes is that of Qwen3."""
    folder = ModelFolder(gpu_run.made_up(tmp_path, "8b"))
    assert folder.kv_bytes_per_token("auto") == 2 * 36 * 8 * 128 * 2
    assert folder.max_context == 40_960
    shape = gpu_run.SHAPES["8b"]
    hidden, width = shape["hidden"], 128
    attention = hidden * width * (2 * shape["heads"] + 2 * 8)
    parameters = shape["layers"] * (attention + 3 * hidden * shape["inner"])
    parameters += 2 * hidden * gpu_run.VOCABULARY
    assert parameters == pytest.approx(8.19e9, rel=0.01)
