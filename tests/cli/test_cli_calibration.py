"""Fit, uncertainty, drivers of the gain and the grid check, as commands."""

import json
from pathlib import Path

import pytest

from trmodel.calibrate import gain_drivers
from trmodel.profile import build_system, load_profile

FIT = "profile fit --measurements paper-figure10"


@pytest.fixture
def fitted(monkeypatch, paper_fit):
    """Fit once for all; gives the options of the last call."""
    given = {}

    def remember(profile, measurements, **options):
        given.update(options)
        return paper_fit

    monkeypatch.setattr("trmodel.calibrate.fit_profile", remember)
    return given


def test_a_fit_says_parameters_errors_and_picks(run, fitted, paper_fit):
    text = run(FIT).out
    for estimate in paper_fit.estimates:
        assert estimate.parameter.name in text
        assert estimate.status in text
    assert f"mean absolute error {paper_fit.mean_error_percent:.1f} %" in text
    assert text.count("the model picks B = ") == len(paper_fit.picks)
    assert run(f"{FIT} --json").json == json.loads(json.dumps(paper_fit.to_dict()))
    assert len(run(f"{FIT} --format csv").out.splitlines()) == 1 + len(paper_fit.points)


def test_a_fit_can_be_written_as_a_profile(run, fitted, paper_fit):
    result = run(f"{FIT} -o mine.json --name mine --p 0.35 --seed 3 --allow-negative-overheads")
    assert result.code == 0
    assert result.err.splitlines()[-1] == "wrote mine.json"
    assert load_profile("mine.json").profile == paper_fit.to_profile("mine")
    assert (fitted["p"], fitted["seed"], fitted["allow_negative_overheads"]) == (0.35, 3, True)
    run(f"{FIT} -o other.json")
    assert load_profile("other.json").profile.name == "a100-imported-fitted"


@pytest.mark.parametrize(
    ("text", "part"),
    [("{", "not valid JSON"), ('{"schema": "x"}', "schema: "), (None, "no such file")],
)
def test_bad_measurements_are_refused(run, text, part):
    if text is not None:
        Path("bad.json").write_text(text)
    result = run("profile fit --measurements ./bad.json -o mine.json")
    assert (result.code, result.out, len(result.err.splitlines())) == (4, "", 1)
    assert part in result.err
    assert not Path("mine.json").exists()


def test_what_is_read_is_not_overwritten(run):
    Path("points.json").write_text("{}")
    assert run("profile fit --measurements points.json -o points.json").code == 2


def test_uncertainty_is_of_every_row_if_they_are_few(run):
    line = "tune --profile a100-imported --N 2,4 --uncertainty --samples 20"
    result = run(f"{line} --seed 5 --json -o all.json")
    for row in result.json["rows"]:
        spread = row["uncertainty"]
        assert (spread["N"], spread["samples"], spread["seed"]) == (row["N"], 20, 5)
        assert sum(c["probability_best"] for c in spread["candidates"]) == pytest.approx(1.0)
        chosen = next(c for c in spread["candidates"] if c["B"] == row["B"])
        assert chosen["low_tok_s"] < row["throughput_tok_s"] < chosen["high_tok_s"]
    assert run(f"{line} --seed 5 --json").json == result.json
    whole = json.loads(Path("all.json").read_text())["rows"]
    assert [row["uncertainty"] is None for row in whole] == [True, False, True, False]
    assert "N = 4: 20 samples (seed 0)" in run(line).out
    assert "best, " in run(f"{line} --format csv").out


def test_of_many_rows_the_last_is_examined(run):
    result = run("tune --profile a100-paper --N 1..5 --uncertainty --samples 5 --json")
    assert [row["uncertainty"] is None for row in result.json["rows"]] == 4 * [True] + [False]
    assert "uncertainty: of N = 5 only, of 5 rows" in result.err


def test_uncertainty_keeps_thresholds_that_were_fixed(run):
    line = "tune --profile a100-paper --N 4 --B0 2 --uncertainty --samples 5 --json"
    (row,) = run(line).json["rows"]
    assert all(c["B"][0] == 2 or c["B"] == [1, 1] for c in row["uncertainty"]["candidates"])


def test_explain_names_the_drivers_of_the_gain(run):
    (row,) = run("tune --profile a100-imported --N 4 --explain --json").json["rows"]
    system = build_system(load_profile("a100-imported"), 4)
    expected = [driver.to_dict() for driver in gain_drivers(system, row["B"])]
    assert row["explanation"]["drivers"] == expected
    text = run("tune --profile a100-imported --N 4 --explain").out
    assert all(f"driver, {driver['reading']}" in text for driver in expected)
    (alone,) = run("tune --profile a100-paper --N 1 --explain --json").json["rows"]
    assert alone["explanation"]["drivers"] == []


def test_the_grid_can_be_checked(run):
    line = "predict --profile a100-imported --N 3 --B 1,2 --check-grid"
    document = run(f"{line} --json").json
    steps = document["grid_check"]["steps"]
    assert [step["grid_ms"] for step in steps] == [0.1, 0.05, 0.025]
    assert steps[0]["throughput_tok_s"] == pytest.approx(document["throughput_tok_s"])
    assert document["grid_check"]["error_percent"] < 1.0
    assert "grid 0.1 ms: " in run(line).out
    assert "grid_error_tok_s_percent" in run(f"{line} --format csv").out
    assert "grid_check" not in run("predict --profile a100-paper --N 3 --B 1,2 --json").json
