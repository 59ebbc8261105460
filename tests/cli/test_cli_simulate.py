"""``trmodel simulate`` and ``trmodel compare``: every format, every option, every refusal."""

import csv
import io
import json
from pathlib import Path

import pytest

import trmodel
from trmodel.simulate import Options

SIM = "simulate --profile a100-paper --N 4 --B 1,3"
QUICK = "--batches 6400 --quiet"


def test_the_table_shows_intervals_and_how_they_were_found(run):
    result = run(f"{SIM} --batches 6400")
    assert result.code == 0
    assert "a100-paper: Qwen3-0.6B, Qwen3-32B at N = 4, delayed B = 1,3" in result.out
    for part in ("±", "tok/s", "between tokens", "p99", "handoff", "simulated: 6,", "seed 0"):
        assert part in result.out
    assert "whole reply" not in result.out
    assert result.err.splitlines()[0] == "profile: built-in a100-paper"


def test_json_is_what_python_gives(run):
    document = run(f"{SIM} --seed 3 --confidence 0.9 --json {QUICK}").json
    found = trmodel.simulate_profile(
        "a100-paper", N=4, B=(1, 3), seed=3, confidence=0.9, batches=6400
    )
    assert document["schema"] == "trmodel/simulation"
    assert document["method"] == "simulated"
    assert document["strategy"] == "delayed"
    assert (document["seed"], document["confidence"]) == (3, 0.9)
    assert document["throughput_tok_s"] == {
        "value": found.throughput_tok_s.value,
        "low": found.throughput_tok_s.low,
        "high": found.throughput_tok_s.high,
    }
    assert document["ledger"]["total_ms"] == pytest.approx(
        4000.0 / found.throughput_tok_s.value, rel=1e-9
    )
    assert document["inter_token_ms"]["p99"]["value"] == found.inter_token_ms.p99.value
    assert document["reply_ms"]["mean"]["value"] is None
    assert len(document["per_model"]) == 2


def test_csv_and_markdown(run):
    (row,) = csv.DictReader(io.StringIO(run(f"{SIM} --format csv {QUICK}").out))
    assert float(row["throughput_low"]) < float(row["throughput_tok_s"])
    assert (row["strategy"], row["B_Qwen3-32B"], row["method"]) == ("delayed", "3", "simulated")
    assert "| between tokens |" in run(f"{SIM} --format md {QUICK}").out
    result = run(f"{SIM} -o found.json {QUICK}")
    assert result.out == ""
    assert json.loads(Path("found.json").read_text())["B"] == [1, 3]


def test_exact_beside_simulated(run):
    document = run(f"{SIM} --on-grid --exact --json --confidence 0.999 --quiet").json
    exact = trmodel.predict("a100-paper", N=4, B=(1, 3))
    assert document["exact"]["throughput_tok_s"] == exact.throughput_tok_s
    assert document["exact"]["within_interval"] is True
    assert document["grid_ms"] == 0.1
    point = run(f"simulate --N 1 --B 1,1 --p 0 --on-grid --exact --json {QUICK}").json
    assert point["exact"]["within_interval"] is True
    said = run(f"{SIM} --exact {QUICK}").out
    assert f"exact: {exact.throughput_tok_s:.1f} tok/s" in said
    document = run(f"{SIM} --strategy all --exact --json {QUICK}").json
    assert ["exact" in row for row in document["rows"]] == [False, False, True, True]


def test_a_chain_that_is_too_large_is_told_after_the_answer(run):
    result = run("simulate --profile a100-paper --N 300 --B 1,1 --exact --batches 640 --json")
    assert result.code == 5
    assert result.json["N"] == 300
    assert "trmodel: error: exact: " in result.err
    assert "outgrows the limit" in result.err


def test_precision(run):
    wide = run(f"{SIM} --json {QUICK}").json
    narrow = run(f"{SIM} --precision 0.5 --json {QUICK}").json
    half = narrow["throughput_tok_s"]["high"] - narrow["throughput_tok_s"]["value"]
    assert half <= 0.005 * narrow["throughput_tok_s"]["value"]
    assert narrow["batches"] > wide["batches"]


def test_arrivals_lengths_and_hold(run):
    Path("lengths.txt").write_text("50\n150\n")
    line = f"{SIM} --arrivals 1 --hold-ms 40 --batches 20000 --json --quiet --reply-tokens"
    found = run(line, "lengths.txt").json
    assert found["replies_per_s"]["value"] == pytest.approx(1.0, rel=0.15)
    assert found["mean_live"] < 4
    assert found["options"] == {
        "on_grid": False,
        "hold_ms": 40.0,
        "arrivals_per_s": 1.0,
        "reply_tokens": "lengths.txt",
        "mean_reply_tokens": 100.0,
    }
    expected = trmodel.simulate_profile(
        "a100-paper",
        N=4,
        B=(1, 3),
        options=Options(hold_ms=40.0, arrivals_per_s=1.0, reply_tokens=(50.0, 150.0)),
        batches=20_000,
    )
    assert found["reply_ms"]["p90"]["value"] == expected.reply_ms.p90.value
    assert found["first_token_ms"]["mean"]["value"] > 6.0
    assert run(line, "100").json["options"]["mean_reply_tokens"] == pytest.approx(100, rel=0.01)
    said = run(f"{SIM} --arrivals 1 --hold-ms 40 --reply-tokens 100 {QUICK}").out
    assert "replies/s" in said
    assert "whole reply" in said
    assert " live; " in said


@pytest.mark.parametrize("strategy", ["eager", "step-sync", "model-sync"])
def test_one_of_the_other_strategies(run, strategy):
    document = run(f"simulate --N 4 --strategy {strategy} --json {QUICK}").json
    assert document["strategy"] == strategy
    assert document["B"] == [1, 1]


def test_all_strategies(run):
    result = run(f"{SIM} --strategy all --plot all.png --batches 6400")
    assert result.code == 0
    for name in ("step-sync", "model-sync", "eager", "delayed", "gain of delayed %"):
        assert name in result.out
    assert Path("all.png").read_bytes().startswith(b"\x89PNG")
    document = run(f"{SIM} --strategy all --json {QUICK}").json
    assert document["schema"] == "trmodel/strategies"
    found = trmodel.compare_strategies("a100-paper", N=4, B=(1, 3), batches=6400)
    gains = {row["strategy"]: row["gain_percent"] for row in document["rows"]}
    assert gains["delayed"] is None
    assert gains["eager"] == {
        "value": found.gain_percent["eager"].value,
        "low": found.gain_percent["eager"].low,
        "high": found.gain_percent["eager"].high,
    }
    rows = list(csv.DictReader(io.StringIO(run(f"{SIM} --strategy all --format csv {QUICK}").out)))
    assert [row["gain_percent"] == "" for row in rows] == [False, False, False, True]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".json"])
def test_timelines(run, suffix):
    file = f"timeline{suffix}"
    result = run(f"{SIM} --timeline {file} --timeline-ms 100 --timeline-from 50 --batches 6400")
    assert result.code == 0
    assert f"wrote {file}" in result.err
    assert Path(file).stat().st_size > 500
    if suffix == ".json":
        trace = json.loads(Path(file).read_text())
        events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        assert min(e["ts"] for e in events) == 50_000
        assert max(e["ts"] + e["dur"] for e in events) == pytest.approx(150_000)
        assert {e["pid"] for e in events} == {1}


def test_a_trace_of_all_strategies(run):
    run(f"{SIM} --strategy all --timeline trace.json {QUICK}")
    trace = json.loads(Path("trace.json").read_text())
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert names == ["step-sync", "model-sync", "eager", "delayed"]


WRONG = {
    "simulate --N 4": "--B: delayed batching needs",
    "simulate --N 4 --strategy all": "--B: delayed batching needs",
    "simulate --N 4 --B 1,1 --strategy lazy": "--strategy",
    "simulate --N 4 --B 1,1 --strategy eager": "--B: eager has no thresholds",
    "simulate --N 4 --strategy eager --hold-ms 5": "--hold-ms: eager does not hold",
    "simulate --N x --B 1,1": "--N",
    f"{SIM} --hold-ms 0": "--hold-ms",
    f"{SIM} --arrivals -1 --reply-tokens 5": "--arrivals",
    f"{SIM} --arrivals 1": "--arrivals: with arrivals replies must end",
    f"{SIM} --reply-tokens 0": "--reply-tokens",
    f"{SIM} --reply-tokens nan": "--reply-tokens",
    f"{SIM} --batches 10": "--batches",
    f"{SIM} --precision 0": "--precision",
    f"{SIM} --confidence 1": "--confidence",
    f"{SIM} --seed -1": "--seed",
    f"{SIM} --plot x.png": "--plot",
    f"{SIM} --format r2r": "--format r2r",
    f"{SIM} --timeline x.png --timeline-ms 0": "--timeline-ms",
    f"{SIM} --timeline x.png --timeline-from -1": "--timeline-from",
    f"{SIM} --timeline x.json -o x.json": "--timeline",
    f"{SIM} --exact --hold-ms 5": "--exact: the exact chain does not have: hold_ms",
    "simulate --N 4 --strategy step-sync --exact": "--exact",
    "compare --N 4 --B 1,3 --share 0": "--share",
    "compare --N 4 --B 1,3 --share 100": "--share",
    "compare --N 4 --B 1,3 --reply-tokens 0": "--reply-tokens",
    "compare --N 4 --B 1,3,3": "--B",
    "compare --N 4 --B 1,3 --seed -1": "--seed",
    "compare --N 4 --B 1,3 --format r2r": "--format r2r",
    "compare": "--N",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_usage(run, line):
    result = run(line)
    assert (result.code, result.out) == (2, "")
    error = result.err.splitlines()[-1]
    assert error.startswith("trmodel: error: ")
    assert WRONG[line] in error
    assert not list(Path().iterdir())


def test_other_refusals(run):
    assert run("simulate --profile a100-paper --N 4 --B 1,9").code == 3
    assert run(f"{SIM} --reply-tokens missing.txt").code == 4
    assert run(f"{SIM} --timeline timeline.gif").code == 4
    assert run(f"{SIM} --timeline no/such/trace.json").code == 4
    result = run(f"{SIM} --timeline t.json --timeline-from 1e12")
    assert (result.code, result.out) == (5, "")


def test_compare(run):
    result = run("compare --profile a100-paper --N 4 --B 1,3 --batches 6400 --plot c.svg")
    assert result.code == 0
    for part in (
        "delayed, B = 1,3",
        "request-level",
        "large only",
        "small only",
        "tokens by large %",
        "no overhead apart from the step",
    ):
        assert part in result.out
    assert "<svg" in Path("c.svg").read_text()
    line = "compare --profile a100-paper --N 4 --share 26 --keep-overhead"
    document = run(f"{line} --json {QUICK}").json
    assert document["schema"] == "trmodel/comparison"
    assert document["B"] == [1, 3]
    assert [row["large_token_percent"] for row in document["rows"]] == pytest.approx(
        [35.0, 35.0, 26.0, 100.0, 0.0]
    )
    assert document["rows"][3]["throughput_tok_s"]["value"] == pytest.approx(4000.0 / 27.9)
    (first, *_) = csv.DictReader(io.StringIO(run(f"{line} --B 1,2 --format csv {QUICK}").out))
    assert first["system"] == "delayed"


def test_predict_tells_what_handoff_latency_shifts(run):
    profile = run("profile show a100-paper --json --quiet").json
    provenance = profile["models"][0]["decode"]["provenance"]
    profile["handoff"] = {"latency_ms": 2.0, "pairs": [], "provenance": provenance}
    Path("slow.json").write_text(json.dumps(profile))
    result = run("predict --profile slow.json --N 1 --B 1,1")
    shift = 100.0 * ((6.0 + 0.35 * 27.9) / (6.0 + 0.35 * 31.9) - 1.0)
    assert "handoff latency: shifts throughput by -8.1" in result.out
    assert "not in the exact chain" in result.err
    document = run("predict --profile slow.json --N 1 --B 1,1 --json --quiet").json
    found = document["handoff_shift_percent"]
    assert found["low"] < shift < found["high"]
    sweep = run("predict --profile slow.json --N 2 --B 1,1 --sweep p=0,0.2 --json --quiet").json
    assert sweep["rows"][0]["handoff_shift_percent"] is None
    assert sweep["rows"][1]["handoff_shift_percent"]["value"] < 0.0
    table = run("predict --profile slow.json --N 2 --B 1,1 --sweep p=0.1,0.2 --format csv --quiet")
    assert all(
        float(r["handoff_shift_percent"]) < 0 for r in csv.DictReader(io.StringIO(table.out))
    )
    plain = run("predict --profile a100-paper --N 1 --B 1,1 --json").json
    assert plain["handoff_shift_percent"] is None
    assert "exact chain" not in run("simulate --profile slow.json --N 2 --B 1,1 --batches 640").err
