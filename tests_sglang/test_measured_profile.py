"""Real engines measured into a profile, from the command to thresholds in force."""

import json
import os

import pytest

from trmodel.cli.main import main
from trmodel.profile import load_profile
from trmodel.runtime.bench.engine_times import GROWTH, Ask, Stepper
from trmodel.runtime.config import load_config
from trmodel.runtime.engines.sglang.options import EngineOptions
from trmodel.runtime.engines.sglang.start import start_engine
from trmodel.runtime.plan import make_plan
from trmodel.runtime.policies import Scripted


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


def test_contexts_take_room_without_being_read(models):
    options = EngineOptions(
        path=str(models["small"]), dtype="float32", kv_tokens=1024, max_context=512
    )
    engine = start_engine(0, options, 4)
    stepper = Stepper(0, 1, engine, Scripted([0]))
    read = []
    forward = engine.runner.forward

    def noted(helds, unseen):
        read.append([(len(held), len(ids)) for held, ids in zip(helds, unseen, strict=True)])
        return forward(helds, unseen)

    engine.runner.forward = noted
    for batch, context, new in [(2, 300, 1), (4, 100, 3), (1, 200, 1)]:
        read.clear()
        stepper.run(Ask(batch, context, new, 0.0))
        assert all(len(step) == batch for step in read)
        brought = [count for step in read for _, count in step]
        assert sum(brought) == new * len(brought)
        assert all(
            context <= held <= context + GROWTH + 2 * new for step in read for held, _ in step
        )
        assert batch * context <= engine.kv_tokens <= batch * (context + GROWTH + 4 * new)
    assert engine.dropped == 0
