"""``tune --slo``, ``pareto`` and ``arrivals`` on the command line."""

import csv
import io
import json
from pathlib import Path

import pytest

import trmodel

SLO = "tune --profile a100 --N 4,6 --slo p99-itl-ms=65"
ARRIVALS = "arrivals --N 3 --reply-tokens 50 --replies 300"


def test_the_table_says_what_binds_and_what_it_costs(run):
    result = run(SLO)
    assert result.code == 0
    expected = trmodel.tune_with_objectives(["p99-itl-ms=65"], "a100", [4, 6])
    for N in (4, 6):
        outcome = expected.outcomes[N]
        assert "\n  ".join(outcome.lines) in result.out
        assert f"costs {outcome.cost_percent:.1f} % of throughput" in result.out
    assert result.out.count("binds: p99-itl-ms") == 2


def test_json_and_csv_hold_the_outcome(run):
    document = run(f"{SLO} --json").json
    row = document["rows"][1]
    assert row["objectives"]["binding"] == ["p99-itl-ms"]
    assert row["objectives"]["chosen"]["B"] == row["B"]
    assert row["objectives"]["unconstrained"]["B"] == [2, 5]
    assert row["objectives"]["excluded"][0]["meets"] is False
    record = list(csv.DictReader(io.StringIO(run(f"{SLO} --format csv").out)))[1]
    assert (record["objectives_met"], record["binding"]) == ("True", "p99-itl-ms")


def test_a_file_has_every_row_and_r2r_the_thresholds_that_meet(run):
    assert run(f"{SLO} --quiet -o table.json").code == 0
    document = json.loads(Path("table.json").read_text())
    assert [row["N"] for row in document["rows"]] == [1, 2, 3, 4, 5, 6]
    assert all(row["objectives"]["met"] for row in document["rows"])
    lists = run(f"{SLO} --format r2r").out.split()
    assert lists[1] == ",".join(str(B[0]) for B in document["thresholds"])


def test_impossible_objectives_exit_with_3_and_the_nearest_miss(run):
    code, out, err = run("tune --N 3 --slo p99-itl-ms=20 --slo min-request-speed=10")
    assert (code, out) == (3, "")
    lines = err.splitlines()
    assert "N = 3: none of 6 live vectors meets p99-itl-ms <= 20" in lines[1]
    assert "nearest: B = " in lines[2]
    assert "at best alone: p99-itl-ms" in lines[3]
    assert all(line.startswith("trmodel: error: ") for line in lines[1:])


def test_some_impossible_rows_exit_with_3_and_are_marked(run):
    result = run("tune --profile a100 --N 2,6 --slo p99-itl-ms=58")
    assert result.code == 3
    assert "misses p99-itl-ms" in result.out
    assert "N = 6: none of 21 live vectors meets p99-itl-ms <= 58; the row holds" in result.err


def test_explain_names_the_objectives(run):
    result = run("tune --N 6 --slo p99-itl-ms=65 --explain")
    assert (
        "why: chosen for the objectives, of 21 live vectors; without them 2,5 gives" in result.out
    )


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("tune --N 4 --slo p97-itl-ms=3", '--slo: "p97-itl-ms" is not an objective; known are'),
        ("tune --N 4 --slo p99-itl-ms", "--slo: must be like p99-itl-ms=60"),
        ("tune --N 4 --slo p99-ttft-ms=3", "--slo: p99-ttft-ms: replies never end"),
        ("tune --N 4 --slo p99-itl-ms=3 --sweep p=0.1", "--slo: cannot be combined with --sweep"),
        ("tune --N 4 --slo p99-itl-ms=3 --uncertainty", "cannot be combined with --uncertainty"),
        ("pareto --N 4 --delay min-request-speed", "--delay: min-request-speed is no delay"),
        ("pareto --N 4 --delay p99-what", '--delay: "p99-what" is not an objective'),
        ("pareto --N 4 --batches 3", "--batches: at least 64 are needed"),
        ("pareto --N 4 --format r2r", "--format r2r: "),
        ("arrivals --N 4 --replies 3", "--replies: at least 64"),
        ("arrivals --N 4 --precision 0", "--precision: must be above 0"),
        ("arrivals --N 4 --reply-tokens 0.5", "--reply-tokens: the mean must be"),
        ("arrivals --N 4 --hold-ms -1", "--hold-ms: must be a positive number"),
        ("arrivals --N 4 --B 1,1 --thresholds x.json", "--thresholds gives them already"),
        ("arrivals --N 4 --B 1", "2 thresholds are needed"),
    ],
)
def test_wrong_usage_is_one_line_with_code_2(run, line, part):
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert part in err.splitlines()[-1]


@pytest.mark.parametrize("option", ["--reply-tokens", "--thresholds"])
def test_a_file_that_is_missing_is_code_4(run, option):
    code, _, err = run(f"arrivals --N 4 {option} nothing.json")
    assert code == 4
    assert "nothing.json: no such file" in err


def test_pareto_shows_the_front_and_with_all_everything(run):
    short, whole = run("pareto --N 4 --batches 20000"), run("pareto --N 4 --batches 20000 --all")
    assert short.code == whole.code == 0
    assert "chosen" in short.out
    assert "eager" in short.out
    assert "of 10 live vectors are on the front" in short.out
    assert whole.out.count("dominated") > short.out.count("dominated")
    rows = run("pareto --N 4 --batches 20000 --json").json["rows"]
    assert len(rows) == 10
    record = list(csv.DictReader(io.StringIO(run("pareto --N 4 --batches 20000 --format csv").out)))
    assert [r["place"] for r in record] == [r["place"] for r in rows]


def test_arrivals_say_the_largest_rate_and_how_sure_it_is(run):
    result = run(f"{ARRIVALS} --slo p90-ttft-ms=300 --plot load.png")
    assert result.code == 0
    assert Path("load.png").stat().st_size > 1000
    expected = trmodel.arrivals("a100", 3, slo=["p90-ttft-ms=300"], reply_tokens=50, replies=300)
    assert f"largest rate: {expected.largest.rate_per_s:.4g} requests per second" in result.out
    assert f"surely not at {expected.surely_too_much_per_s:.4g}" in result.out
    assert "replies of 50 tokens on average" in result.out
    document = run(f"{ARRIVALS} --slo p90-ttft-ms=300 --json").json
    assert document["largest_rate_per_s"] == expected.largest.rate_per_s
    assert document["binding"] == ["p90-ttft-ms"]
    assert document["rows"][0]["measured"][0]["verdict"] == "met"


def test_arrivals_take_lengths_and_thresholds_from_files(run):
    Path("lengths.txt").write_text("10 90\n")
    assert run("tune --N 3 --quiet -o table.json").code == 0
    line = "arrivals --N 3 --replies 300 --reply-tokens lengths.txt --json"
    given, tuned = run(f"{line} --thresholds table.json").json, run(line).json
    assert given["mean_reply_tokens"] == 50.0
    assert given["rows"] == tuned["rows"]
    refused = run(f"{line} --thresholds table.json -o table.json")
    assert refused.code == 2
    assert "table.json is what is read" in refused.err


def test_objectives_that_no_load_meets_are_code_3(run):
    code, out, err = run(f"{ARRIVALS} --slo p99-itl-ms=9 --slo p50-ttft-ms=1")
    assert (code, out) == (3, "")
    assert "not met even at" in err
    assert "nor: p" in err
    assert run(f"{ARRIVALS} --B 1,2").code == 3
