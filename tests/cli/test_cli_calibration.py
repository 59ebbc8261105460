"""Fit, uncertainty, drivers of the gain and the grid check, as commands."""

import json
from pathlib import Path

import pytest

from trmodel.calibrate import gain_drivers
from trmodel.errors import LimitError
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
    options = "--p 0.35 --seed 3 --context 1..9 --allow-negative-overheads"
    result = run(f"{FIT} -o mine.json --name mine {options}")
    assert result.code == 0
    assert result.err.splitlines()[-1] == "wrote mine.json"
    assert load_profile("mine.json").profile == paper_fit.to_profile("mine")
    assert (fitted["p"], fitted["seed"], fitted["context"]) == (0.35, 3, (1, 9))
    assert fitted["allow_negative_overheads"] is True
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


def test_uncertainty_says_which_spreads_it_used_and_where_they_are_from(run):
    line = "tune --N 2 --uncertainty --samples 5 --json"
    fitted = run(line)
    assert "uncertainty: overheads and slow-downs are drawn from the profile's fit to" in fitted.err
    assert fitted.json["rows"][0]["uncertainty"]["spreads"].startswith(
        "p by 10 % (default), overheads and slow-downs as the fit leaves them (paper-figure10: "
    )
    stated = run(f"{line} --profile a100-paper --latency-spread 5 --p-spread 0")
    assert "spreads are stated, not measured: the profile records no fit" in stated.err
    assert stated.json["rows"][0]["uncertainty"]["spreads"] == (
        "p by 0 %, latencies by 5 % per model, slow-downs by 10 % (default)"
    )
    both = run(f"{line} --slow-down-spread 2.5").json["rows"][0]["uncertainty"]["spreads"]
    assert "slow-downs by 2.5 %, overheads and slow-downs as the fit leaves them" in both


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--samples 20", "--samples: is of --uncertainty"),
        ("--p-spread 20", "--p-spread: is of --uncertainty"),
        ("--uncertainty --samples 1", "--samples: from 2 to 10000"),
        ("--uncertainty --samples 10001", "--samples: from 2 to 10000"),
        ("--uncertainty --slow-down-spread 101", "--slow-down-spread: must be between 0 and 100"),
        ("--uncertainty --latency-spread nan", "--latency-spread: must be between 0 and 100"),
    ],
)
def test_options_of_uncertainty_are_checked(run, options, words):
    result = run(f"tune --profile a100-paper --N 2 {options}")
    assert (result.code, result.out) == (2, "")
    assert words in result.err


def test_the_most_samples_are_those_of_the_function():
    from trmodel.calibrate.uncertainty import MAX_SAMPLES
    from trmodel.cli.tune import MOST_SAMPLES

    assert MOST_SAMPLES == MAX_SAMPLES


def test_uncertainty_ends_at_the_time_limit_with_what_there_is(run, monkeypatch):
    def late(*_, **given):
        raise LimitError(f"the time limit was reached, deadline {given['deadline'] > 0}")

    monkeypatch.setattr("trmodel.cli.uncertainty.uncertainty", late)
    result = run("tune --profile a100-paper --N 2 --uncertainty --time-limit 60 --json")
    assert result.code == 5
    assert result.json["rows"][0]["uncertainty"] is None
    assert "the time limit was reached, deadline True (N = 2)" in result.err
