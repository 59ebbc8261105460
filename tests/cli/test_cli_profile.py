import csv
import io
import json
import re
from pathlib import Path

import pytest

from trmodel.profile import load_profile, profile_names, profile_schema


def test_list_names_every_builtin(run):
    result = run("profile list")
    assert (result.code, result.err) == (0, "")
    assert all(name in result.out for name in profile_names())
    listed = run("profile list --json").json["profiles"]
    assert [profile["name"] for profile in listed] == profile_names()
    assert len(run("profile list --format csv").out.splitlines()) == 1 + len(profile_names())
    assert run("profile list --format md").out.startswith("| name |")


@pytest.mark.parametrize("name", profile_names())
def test_show_gives_a_profile_that_can_be_used(run, name):
    result = run(f"profile show {name} --json -o mine.json")
    said = [line for line in result.err.splitlines() if "warning: " not in line]
    assert said == [f"profile: built-in {name}", "wrote mine.json"]
    assert (said == result.err.splitlines()) == (name != "h200")  # whose data have real dips
    assert result.json == json.loads(Path("mine.json").read_text())
    assert load_profile("mine.json").profile == load_profile(name).profile
    assert run("profile show mine.json").err.splitlines()[0] == "profile: mine.json"
    text = run(f"profile show {name}").out
    for model in load_profile(name).profile.models:
        assert model.name in text
        assert model.decode.provenance.source in text


def test_show_adds_the_step_up(run):
    rows = list(csv.DictReader(io.StringIO(run("profile show a100 --format csv").out)))
    models = {model.name: model for model in load_profile("a100").profile.models}
    assert len(rows) == sum(len(m.decode.batch) * len(m.decode.rows) for m in models.values())
    for row in rows:
        overhead = models[row["model"]].overhead
        assert float(row["overhead_ms"]) == (overhead.value_ms if overhead else 0.0)
        added = float(row["decode_ms"]) + float(row["overhead_ms"])
        assert float(row["step_ms"]) == pytest.approx(added)


def test_schema_is_the_schema(run):
    assert run("profile schema").json == profile_schema()
    assert run("profile schema --json").json == profile_schema()
    assert run("profile schema --format csv").code == 2


def test_profiles_have_no_thresholds(run):
    for line in ("list", "show a100"):
        result = run(f"profile {line} --format r2r")
        assert (result.code, result.out) == (2, "")


def test_show_at_a_context_has_a_status_for_each_step(run):
    lines = run("profile show h100 --context 1024..3072 --format csv").out.splitlines()
    assert lines[0] == "model,batch,decode_ms,overhead_ms,step_ms,status"
    assert len(lines) == 1 + 9 * 5
    assert {line.rpartition(",")[2] for line in lines[1:]} <= {
        "measured",
        "interpolated",
        "extrapolated",
    }
    assert run("profile show h100 --context 1024 --json").code == 2
    Path("steps.csv").write_text("model,batch,latency_ms,context_tokens\na,1,5,1024\n")
    assert run("profile import csv steps.csv -o one.json").code == 0
    assert "used unchanged" in run("profile show one.json --context 4096").err


def test_show_draws_a_chart_and_a_plot(run):
    assert "ms of a step by batch size" not in run("profile show a100").out
    lines = run("profile show a100-paper --chart").out.splitlines()
    assert "   1  6.0  " + 40 * "█" in lines
    assert "1024  27.9  " + 40 * "█" in lines
    assert run("profile show a100 --chart --json").code == 2
    result = run("profile show h100 --plot steps.svg")
    assert result.err.splitlines()[-1] == "wrote steps.svg"
    assert Path("steps.svg").stat().st_size > 1000
    assert run("profile show h100 --plot steps.gif").code == 4


def test_show_prints_what_was_smoothed_and_says_so(run, plain_profile):
    plain_profile["models"][0]["decode"] |= {"batch": [1, 2], "latency_ms": [25.5, 25.0]}
    Path("dip.json").write_text(json.dumps(plain_profile))
    result = run("profile show dip.json")
    assert "trmodel: warning: Qwen3-0.6B: dip of 2.0 % at batch 2 smoothed" in result.err
    assert "dip of 2.0 % at batch 2 smoothed (isotonic regression)" in result.out
    rows = list(csv.DictReader(io.StringIO(run("profile show dip.json --format csv").out)))
    assert [row["decode_ms"] for row in rows[:2]] == ["25.25", "25.25"]
    decode = run("profile show dip.json --json").json["models"][0]["decode"]
    assert decode["latency_ms"] == [25.25, 25.25]
    assert "smoothed" in decode["provenance"]["note"]


def documented_profile():
    text = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")
    return re.search(r"```json\n(.*?)```", text, re.DOTALL)[1]


def test_show_leaves_nothing_out(run):
    Path("mine.json").write_text(documented_profile())
    text = run("profile show mine.json").out
    for line in (
        "memory: 85.9 GB a GPU, 6.0 GB of each reserved",
        "handoff: 0.3 ms, Qwen3-32B to Qwen3-0.6B 0.5 ms (assumed; an example)",
        "Qwen3-0.6B: tensor parallel 1 on GPU 0, at most 16 requests a step, context 2048 tokens",
        "Qwen3-32B: tensor parallel 2 on GPU 0, 1, context 1024, 4096 tokens",
        "memory: 65.5 GB of weights, 262,144 KV bytes a token",
        "batches padded to: 1, 2, 4, 8, 16, 24, 32, 48, 64",
        "overhead: 3.5 ms, added to every step",
        "wake: 1.2 ms, added to a step if the model was idle",
        "decode of Qwen3-32B: ms by batch and context (* extrapolated; the others measured)",
        "extend of Qwen3-32B: ms by batch and new tokens of each request, after 2048 cached "
        "tokens (all measured)",
    ):
        assert line in text.splitlines()
    assert "52.2*" in text
    grids = [line.split() for line in text.splitlines()]
    assert ["64", "44.9", "52.2*"] in grids
    assert ["64", "47.6", "60.3", "121"] in grids
    assert ["1", "2.5", "3.5", "6", "measured"] in grids
    assert "extend of Qwen3-32B" in run("profile show mine.json --context 2048").out
    whole = run("profile show mine.json --json").json
    assert whole == json.loads(documented_profile())


def test_records_hold_both_tables_with_the_status_of_each_entry(run):
    Path("mine.json").write_text(documented_profile())
    rows = list(csv.DictReader(io.StringIO(run("profile show mine.json --format csv").out)))
    assert len(rows) == 3 + 4 * 2 + 4 * 3
    (last,) = [row for row in rows if row["status"] == "extrapolated"]
    assert (last["context"], last["batch"], last["decode_ms"]) == ("4096", "64", "52.2")
    extends = [row for row in rows if row["extend_ms"]]
    assert extends[-1] == {
        "model": "Qwen3-32B",
        "context": "2048",
        "new_tokens": "16",
        "batch": "64",
        "decode_ms": "",
        "extend_ms": "121.0",
        "overhead_ms": "0.0",
        "step_ms": "121.0",
        "status": "measured",
    }


def test_show_names_the_fit(run):
    assert "fit: paper-figure10: arXiv:2610.12242" in run("profile show a100").out
