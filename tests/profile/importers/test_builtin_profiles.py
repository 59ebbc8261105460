"""The built-in profiles made by scripts/make_builtin_profiles.py, and the real package."""

import importlib.util
import json
import runpy
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from trmodel.profile import load_profile
from trmodel.profile.importers import import_aiconfigurator
from trmodel.profile.load import BUILTIN

SCRIPT = Path(__file__).parents[3] / "scripts" / "make_builtin_profiles.py"
NAMES = ("a100-imported", "h100", "h200")
MODELS = ["Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B", "Qwen3-8B", "Qwen3-32B"]

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None,
    reason="the optional package aiconfigurator-core is not installed",
)


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_complete_and_say_where_they_come_from(name):
    assert (BUILTIN / f"{name}.json").stat().st_size < 60_000
    profile = load_profile(name).profile
    assert profile.model_names == MODELS
    assert [model.tensor_parallel for model in profile.models] == [1, 1, 1, 1, 2]
    assert profile.hardware.gpus == 2
    assert profile.routing == "r2r"
    assert profile.context_tokens == 2048
    assert "must be measured or fitted" in profile.description
    for model in profile.models:
        assert model.overhead is None
        assert model.gpus == tuple(range(model.tensor_parallel))
        for part in (model.decode, model.extend, model.memory):
            assert "aiconfigurator-core 0.12.0" in part.provenance.source
            assert "Apache-2.0" in part.provenance.source
            assert part.provenance.method == "derived"
        rows = np.array(model.decode.latency_ms)
        assert rows.shape == (5, 9)
        assert np.all(rows == np.round(rows, 3))
        assert np.all(np.diff(rows, axis=0) > -0.05 * rows[:-1])  # a longer context costs more
        assert np.all(rows[:, -1] > rows[:, 0])
        dips = np.diff(rows, axis=1) / rows[:, :-1]
        # Smoothing leaves a dip of at least 5 % as it is, together with its neighbours.
        assert np.all((dips >= 0) | (dips.min(axis=1, keepdims=True) < -0.02))
        assert np.array(model.extend.latency_ms).shape == (10, 9)


def test_latencies_at_spots():
    spots = {
        ("a100-imported", "Qwen3-0.6B", 1): 2.358,
        ("a100-imported", "Qwen3-0.6B", 16): 7.231,
        ("a100-imported", "Qwen3-32B", 8): 27.614,
        ("a100-imported", "Qwen3-32B", 32): 38.474,
        ("h100", "Qwen3-0.6B", 32): 3.973,
        ("h200", "Qwen3-32B", 64): 15.359,
    }
    for (name, model, batch), latency in spots.items():
        profile = load_profile(name).profile
        table = profile.models[MODELS.index(model)].decode
        row = table.latency_ms[table.context_tokens.index(2048)]
        assert row[table.batch.index(batch)] == latency


def test_the_memory_of_the_models():
    profile = load_profile("a100-imported").profile
    weights = {model.name: model.memory.weight_bytes / 2e9 for model in profile.models}
    for name, billions in zip(MODELS, (0.596, 1.72, 4.02, 8.19, 32.76), strict=True):
        assert weights[name] == pytest.approx(billions, rel=2e-3)
    # 2 (K and V) x layers x 8 heads x 128 x 2 bytes
    layers = (28, 28, 36, 36, 64)
    assert [m.memory.kv_bytes_per_token for m in profile.models] == [4096 * n for n in layers]
    assert profile.hardware.gpu_memory_bytes == 80 * 2**30


def test_statuses_of_the_decode_tables():
    counts = {
        model.name: Counter(status for row in model.decode.status for status in row)
        for model in load_profile("a100-imported").profile.models
    }
    assert counts["Qwen3-0.6B"] == {"measured": 41, "extrapolated": 4}
    assert counts["Qwen3-32B"] == {"interpolated": 32, "extrapolated": 13}


@needs_package
def test_generation_alone_takes_what_nvidia_publishes():
    from aiconfigurator_core.sdk import EngineHandle

    for model, tp, expected, tolerance in (
        ("Qwen/Qwen3-0.6B", 1, (2.33, 2.90, 5.22), 0.005),
        ("Qwen/Qwen3-32B", 2, (25.5, 25.0, 29.4), 0.05),
    ):
        engine = EngineHandle.compile(
            model, "a100_sxm", "sglang", backend_version="0.5.10", tp_size=tp
        )
        for batch, latency in zip((1, 4, 16), expected, strict=True):
            total = engine.run_static(batch_size=batch, isl=1024, osl=256, mode="static_gen")[1]
            assert total / 255 == pytest.approx(latency, abs=tolerance)
            # The same in this package's terms: the mean over the contexts of the 255 steps.
            contexts = range(1025, 1280)
            steps = [engine.predict_decode_latency(batch, s - 1, 2) for s in contexts[::32]]
            assert np.mean(steps) == pytest.approx(total / 255, rel=0.01)


@needs_package
def test_the_script_makes_the_committed_files():
    make = runpy.run_path(str(SCRIPT))["make"]
    for name in NAMES:
        made, committed = json.loads(make(name)), json.loads((BUILTIN / f"{name}.json").read_text())
        for ours, theirs in zip(made.pop("models"), committed.pop("models"), strict=True):
            for table in ("decode", "extend"):
                # Only trmodel's own words on smoothing may differ.
                del ours[table]["provenance"]["note"], theirs[table]["provenance"]["note"]
                np.testing.assert_allclose(
                    ours[table].pop("latency_ms"), theirs[table].pop("latency_ms"), atol=0.0011
                )
            assert ours == theirs
        assert made == committed


@needs_package
def test_the_import_of_two_models_is_quick_and_without_a_network(monkeypatch):
    monkeypatch.setattr("socket.socket.connect", None)
    start = time.perf_counter()
    profile = import_aiconfigurator("a100_sxm")
    assert time.perf_counter() - start < 60
    assert profile.model_names == ["Qwen3-0.6B", "Qwen3-32B"]
