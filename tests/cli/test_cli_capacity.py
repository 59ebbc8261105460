"""``trmodel profile capacity``: the budget adds up, and says what binds."""

import csv
import io

import pytest

from trmodel.profile import load_profile
from trmodel.profile.capacity import capacity


def test_the_budget_of_every_gpu_adds_up(run):
    found = run("profile capacity h100 --context 1024..4096 --N 8,64 --json").json
    expected = capacity(load_profile("h100"), context=(1024, 4096))
    assert found["context_tokens"] == 4096
    assert found["binding_gpu"] == expected.binding_gpu
    sizes = ("memory_bytes", "reserved_bytes", "weight_bytes", "free_bytes", "kv_bytes_per_token")
    assert all(type(gpu[size]) is int for gpu in found["gpus"] for size in sizes)
    assert all(type(size) is int for gpu in found["gpus"] for size in gpu["weights"].values())
    assert found["largest_N"] == found["tokens"] // 4096
    for gpu in found["gpus"]:
        taken = gpu["reserved_bytes"] + sum(gpu["weights"].values()) + gpu["free_bytes"]
        assert taken == pytest.approx(gpu["memory_bytes"])
        assert gpu["tokens"] == gpu["free_bytes"] // gpu["kv_bytes_per_token"]
    assert min(gpu["tokens"] for gpu in found["gpus"]) == found["tokens"]
    assert [entry["fits"] for entry in found["largest_context"]] == [True, False]
    assert found["largest_context"][0]["context_tokens"] == found["tokens"] // 8


def test_the_table_says_what_binds(run):
    text = run("profile capacity h100 --context 3072").out
    assert "GPU 0 binds: it holds 169,425 cached tokens, at most N = 55 requests of 3072" in text
    assert run("profile capacity h100 --format md").out.count("\n| --: |") == 2
    rows = list(csv.DictReader(io.StringIO(run("profile capacity h100 --format csv").out)))
    assert [row["binds"] for row in rows] == ["True", "False"]


def test_routing_decides_which_models_count(run):
    two = run("profile capacity h100 --json").json
    three = run("profile capacity h100 --routing ensemble --json")
    if three.code == 0:
        assert three.json["largest_N"] < two["largest_N"]
    else:
        assert "routing" in three.err


def test_missing_fields_are_named(run):
    result = run("profile capacity a100-paper")
    assert (result.code, result.out) == (4, "")
    lines = result.err.splitlines()[1:]
    assert all(line.startswith("trmodel: error: ") for line in lines)
    assert "hardware.gpu_memory_bytes: is missing" in lines[0]


def test_weights_that_do_not_fit_are_a_line_for_each_gpu(run, plain_profile):
    import json
    from pathlib import Path

    plain = run("profile show h100 --json").json
    plain["hardware"]["gpu_memory_bytes"] = 40 * 10**9
    Path("small.json").write_text(json.dumps(plain))
    result = run("profile capacity small.json")
    assert (result.code, len(result.err.splitlines())) == (3, 3)
    assert "GPU 0: weights (" in result.err
    assert "GPU 1: weights (" in result.err
    assert run("tune --profile small.json --N 4 --clip").code == 3


@pytest.mark.parametrize("line", ["--N 0", "--format r2r", "--context x"])
def test_wrong_usage(run, line):
    assert run(f"profile capacity h100 {line}").code == 2
