"""``trmodel profile import``: the profile to stdout or a file, a summary to stderr."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from trmodel.errors import InputError, UsageError
from trmodel.profile import load_profile

TABLE = """\
model,batch,latency_ms,context_tokens,new_tokens,tensor_parallel
small,1,2.5,1024,,1
small,4,6.5,1024,,1
small,1,3.0,1024,8,1
small,4,7.5,1024,8,1
large,1,25.0,1024,,2
large,4,30.5,1024,,2
"""
AICONFIGURATOR = "profile import aiconfigurator --system gpu_a --model Acme/One"


def record(k, batch):
    requests = {
        "num_prefill_requests": 0,
        "sum_prefill_tokens": 0,
        "sum_prefill_kv_tokens": 0,
        "num_decode_requests": batch,
        "sum_decode_kv_tokens": 512 * batch,
    }
    time = 0.01 + 0.001 * batch
    return json.dumps({"counter_id": k, "wall_time": time, "scheduled_requests": requests})


@pytest.fixture
def stand_in(monkeypatch):
    """Replace the import by a recording of its arguments; ``error`` is raised if set."""
    called = SimpleNamespace(system=None, models=None, options=None, error=None)

    def importer(system, models, **options):
        called.system, called.models, called.options = system, models, options
        if called.error:
            raise called.error
        return load_profile("h100").profile

    monkeypatch.setattr("trmodel.profile.importers.import_aiconfigurator", importer)
    return called


def test_a_table_becomes_a_profile(run):
    Path("steps.csv").write_text(TABLE)
    result = run("profile import csv steps.csv -o mine.json --name mine --gpu A100 --routing r2r")
    assert (result.code, result.out) == (0, "")
    assert result.err.splitlines() == [
        "small: decode 2 x 1: 2 measured; extend 2 x 1: 2 measured",
        "large: decode 2 x 1: 2 measured",
        "wrote mine.json",
    ]
    profile = load_profile("mine.json").profile
    assert (profile.name, profile.hardware.gpu, profile.routing) == ("mine", "A100", "r2r")
    assert run("tune --profile mine.json --N 2").code == 0


def test_without_a_file_stdout_gets_the_profile(run):
    Path("steps.csv").write_text(TABLE)
    quiet = run("profile import csv steps.csv --quiet")
    assert (quiet.json["name"], quiet.err) == ("imported", "")


def test_doubts_are_warnings(run):
    Path("steps.csv").write_text("model,batch,latency_ms\na,1,2500\na,4,9000\n")
    result = run("profile import csv steps.csv")
    assert result.code == 0
    assert "trmodel: warning: " in result.err


def test_metrics_become_a_profile(run):
    lines = [record(2 * k + b, b) for k in range(20) for b in (1, 2)]
    Path("metrics.jsonl").write_text("\n".join(lines) + "\n")
    line = "profile import sglang-metrics metrics.jsonl --model small --warm-up 2"
    result = run(f"{line} --min-samples 5 --sglang-version 0.5.23")
    (model,) = result.json["models"]
    assert (model["name"], model["decode"]["latency_ms"]) == ("small", [11.0, 12.0])
    assert result.json["software"] == {"sglang": "0.5.23"}
    refused = run(f"{line} --warm-up -1")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("trmodel: error: --warm-up: ")


def test_a_table_that_is_wrong_is_a_line_for_each_problem(run):
    Path("steps.csv").write_text("model,batch,latency_ms\na,0,1\na,1,x\n")
    result = run("profile import csv steps.csv -o mine.json")
    assert (result.code, result.out) == (4, "")
    assert [line[:40] for line in result.err.splitlines()] == [
        "trmodel: error: steps.csv: line 2: batch",
        "trmodel: error: steps.csv: line 3: laten",
    ]
    assert not Path("mine.json").exists()
    assert run("profile import csv none.csv").code == 4
    assert run("profile import csv steps.csv -o steps.csv").code == 2


def test_options_reach_the_importer(run, stand_in):
    result = run(
        f"{AICONFIGURATOR}:tp2 --model B --batches 1,2,4 --contexts 512 --new-tokens 1,8 "
        "--context-tokens 512 --memory-fraction 0.8 --version 1 --routing r2r -o mine.json"
    )
    assert result.code == 0
    assert (stand_in.system, stand_in.models) == ("gpu_a", ["Acme/One:tp2", "B"])
    sizes = {key: stand_in.options[key] for key in ("batches", "contexts", "new_tokens")}
    assert sizes == {"batches": [1, 2, 4], "contexts": [512], "new_tokens": [1, 8]}
    assert (stand_in.options["version"], stand_in.options["memory_fraction"]) == ("1", 0.8)
    assert "Qwen3-0.6B: decode 9 x 5: 41 measured, 4 extrapolated; extend " in result.err
    assert load_profile("mine.json").profile == load_profile("h100").profile


@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (UsageError("system: the package has no data for 'x'"), 2, "--system: the package"),
        (UsageError("model: expected NAME or NAME:tp2"), 2, "--model: expected NAME"),
        (InputError("model 'x': there is no configuration of it"), 4, "model 'x': there is no"),
    ],
)
def test_what_the_package_lacks_is_one_line(run, stand_in, error, code, part):
    stand_in.error = error
    result = run(f"{AICONFIGURATOR} -o mine.json")
    assert (result.code, result.out, len(result.err.splitlines())) == (code, "", 1)
    assert f"trmodel: error: {part}" in result.err
    assert not Path("mine.json").exists()


def test_a_missing_extra_is_one_line_that_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    result = run(AICONFIGURATOR)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert "pip install 'trmodel[aiconfigurator]'" in result.err


def test_nothing_is_imported_to_where_it_cannot_be_written(run, stand_in):
    assert run(f"{AICONFIGURATOR} -o no/such/mine.json").code == 4
    assert stand_in.system is None


def test_metrics_in_milliseconds_are_noticed_as_such(run):
    requests = {
        "num_prefill_requests": 0,
        "sum_prefill_tokens": 0,
        "sum_prefill_kv_tokens": 0,
        "num_decode_requests": 1,
        "sum_decode_kv_tokens": 1000,
    }
    record = {"wall_time": 5.2, "scheduled_requests": requests}  # 5.2 ms, or so it was meant
    Path("metrics.jsonl").write_text(20 * f"{json.dumps(record)}\n")
    result = run("profile import sglang-metrics metrics.jsonl --model m -o mine.json")
    assert result.code == 0
    assert "5200 ms is long for a step of m; milliseconds given as seconds?" in result.err
