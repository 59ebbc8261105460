"""Real engines measured into a profile, from the command to thresholds in force."""

import json
import os

import pytest

from trmodel.cli.main import main
from trmodel.profile import load_profile
from trmodel.runtime.config import load_config
from trmodel.runtime.plan import make_plan


def test_from_two_models_to_thresholds(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cores = sorted(os.sched_getaffinity(0))
    settings = {
        "engine": "sglang",
        "models": {
            name: {"path": str(models[name]), "cores": [cores[i % len(cores)]]}
            for i, name in enumerate(("small", "large"))
        },
        "sglang": {"device": "cpu", "dtype": "float32"},
        "max_context": 512,
        "routing": "r2r",
        "p": 0.35,
    }
    (tmp_path / "server.yaml").write_text(json.dumps(settings))
    line = "profile measure --engine sglang --config server.yaml --largest 2 --contexts 64,256"
    line += " --new-tokens 4 --seconds 1.5 --warm-up 0.5 -o own.json --quiet"
    assert main(line.split()) == 0
    profile = load_profile("own.json").profile
    small, large = profile.models
    assert (small.name, large.name) == ("small", "large")
    for model in profile.models:
        assert model.decode.batch == model.extend.batch == (1, 2)
        assert model.decode.contexts == (64, 256)
        assert model.extend.new_tokens == (1, 4)
        assert model.extend.context_tokens == profile.context_tokens == 64
        assert model.overhead.value_ms >= 0.0
        assert model.wake.value_ms >= 0.0
        assert model.decode.provenance.method == "measured"
    assert large.decode.rows[0][0] > 2.0 * small.decode.rows[0][0]
    # Keys and values of all layers, heads and dimensions in float32.
    assert small.memory.kv_bytes_per_token == 2 * 2 * 2 * 32 * 4
    assert large.memory.kv_bytes_per_token == pytest.approx(2 * 8 * 4 * 64 * 4, rel=1e-3)
    assert profile.handoff.latency_ms > 0.0
    assert profile.software["sglang"] == "0.5.23"
    assert main("tune --profile own.json --N 2 -o table.json --quiet".split()) == 0
    (tmp_path / "served.yaml").write_text(json.dumps(settings | {"profile": "own.json"}))
    plan = make_plan(load_config("served.yaml").model_copy(update={"max_live": 2}))
    table = json.loads((tmp_path / "table.json").read_text())
    assert plan.vectors[-1] == tuple(table["thresholds"][-1])
