import csv
import io
import json
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
