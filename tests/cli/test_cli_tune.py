import csv
import io
import itertools
import json
import time
from pathlib import Path

import pytest

import trmodel
from trmodel.launch import is_live

PAPER = "tune --profile a100-paper"


def records(text):
    return list(csv.DictReader(io.StringIO(text)))


def tick_by_call(monkeypatch, clock):
    """Let every look at the clock be a second later."""
    for place in ("trmodel.search.tune.monotonic", "trmodel.api.tuning.monotonic"):
        monkeypatch.setattr(place, lambda: float(next(clock)))


def test_the_table_shows_the_rows_asked_for(run):
    code, out, err = run(f"{PAPER} --N 4,8")
    assert code == 0
    said, warning = err.splitlines()
    assert said == "profile: built-in a100-paper"
    assert warning.startswith("trmodel: warning: contention is unknown: ")
    rows = [line.split() for line in out.splitlines() if line.strip()[:1].isdigit()]
    assert [row[:3] for row in rows] == [["4", "1,3", "208.0"], ["8", "1,5", "399.0"]]
    assert "exact: 120 chains" in out
    assert "largest residual" in out
    assert max(map(len, out.splitlines())) <= 80
    assert all(line == line.rstrip() for line in out.splitlines())


def test_json_says_what_the_python_function_says(run):
    result = run(f"{PAPER} --N 4..6 --json --seed 7")
    assert result.code == 0
    expected = trmodel.tune("a100-paper", N=range(4, 7), seed=7).to_dict()
    assert result.json == json.loads(json.dumps(expected)) | {"seed": 7}
    document = result.json
    assert document["profile"]["sha256"]
    assert [row["N"] for row in document["rows"]] == [4, 5, 6]
    needed = "N B throughput_tok_s eager_tok_s gain_percent runner_up states method residual"
    assert set(needed.split()) <= set(document["rows"][0])
    assert document["thresholds"][3] == [1, 3]
    assert run(f"{PAPER} --N 4..6 --format json --seed 7").json == document


def test_csv_has_full_precision_and_the_names_of_the_json(run):
    rows = records(run(f"{PAPER} --N 4..6 --format csv").out)
    table = trmodel.tune("a100-paper", N=range(4, 7))
    assert [float(row["throughput_tok_s"]) for row in rows] == [
        row.throughput_tok_s for row in table
    ]
    assert list(rows[0]) == list(table.to_pandas().columns)


def test_markdown_is_a_table(run):
    lines = run(f"{PAPER} --N 4 --format md").out.splitlines()
    grid = [line for line in lines if line.startswith("|")]
    assert len(grid) == 3
    assert len({line.count("|") for line in grid}) == 1
    assert grid[2].startswith("| 4 | 1,3 | 208.0 |")


def test_r2r_lists_cover_every_concurrency_and_are_live(run):
    result = run(f"{PAPER} --N 4,8 --format r2r")
    words = [line.split(" ") for line in result.out.splitlines()]
    assert [option for option, _ in words] == ["--slm-min-batch-size", "--llm-min-batch-size"]
    lists = [[int(b) for b in values.split(",")] for _, values in words]
    assert lists == [[1] * 8, [1, 2, 2, 3, 4, 4, 5, 5]]
    assert all(is_live(B, n) for n, B in enumerate(zip(*lists, strict=True), start=1))


def test_r2r_needs_two_models_and_says_so_before_computing(run):
    began = time.monotonic()
    code, out, err = run("tune --profile a100-ensemble --N 16 --format r2r -o x.json")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == (
        "trmodel: error: --format r2r: R2R has two models, this system has 3"
    )
    assert time.monotonic() - began < 5.0
    assert not Path("x.json").exists()


def test_a_file_holds_every_row_in_the_format_of_its_suffix(run):
    result = run(f"{PAPER} --N 4 --json -o table.csv")
    assert [row["N"] for row in result.json["rows"]] == [4]
    assert result.err.splitlines()[-1] == "wrote table.csv"
    assert [row["N"] for row in records(Path("table.csv").read_text())] == ["1", "2", "3", "4"]
    quiet = run(f"{PAPER} --N 4 --quiet -o table.json")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert [row["N"] for row in json.loads(Path("table.json").read_text())["rows"]] == [1, 2, 3, 4]
    run(f"{PAPER} --N 4 --format r2r -o lists")
    assert Path("lists").read_text().startswith("--slm-min-batch-size 1,1,1,1\n")
    for suffix, start in (("txt", "a100-paper"), ("md", "a100-paper")):
        run(f"{PAPER} --N 4 --json -o table.{suffix}")
        assert Path(f"table.{suffix}").read_text().startswith(start)


def test_quiet_without_a_file_still_prints_data(run):
    result = run(f"{PAPER} --N 2 --quiet --format csv")
    assert (result.code, result.err) == (0, "")
    assert len(records(result.out)) == 1


@pytest.mark.parametrize("place", ["no/such/directory/t.json", ".", ""])
def test_a_file_that_cannot_be_written_is_refused_before_computing(run, place):
    began = time.monotonic()
    code, out, err = run("tune --N 40 -o", place)
    assert code == (4 if place else 2)
    assert out == ""
    assert len(err.splitlines()) == 1
    assert time.monotonic() - began < 5.0


def test_what_is_read_is_never_overwritten(run):
    run("profile show a100-paper --json -o mine.json")
    before = Path("mine.json").read_bytes()
    for line in ("tune --N 2", "predict --N 2 --B 1,1"):
        result = run(f"{line} --profile mine.json -o ./mine.json")
        assert (result.code, result.out) == (2, "")
        assert "choose another file" in result.err
    assert Path("mine.json").read_bytes() == before


def test_thresholds_can_be_fixed(run):
    document = run(f"{PAPER} --N 4..6 --json --B0 2").json
    assert [row["B"][0] for row in document["rows"]] == [2, 2, 2]
    result = run(f"{PAPER} --N 4..6 --B0 2 --B1 9")
    assert result.code == 3
    assert "Qwen3-32B = 9" in result.err


def test_explain_says_why(run):
    result = run(f"{PAPER} --N 4,7 --json --explain -o all.json")
    row = result.json["rows"][0]
    why = row["explanation"]
    assert why["evaluated"] == 10
    assert why["can_deadlock"] == 6
    assert why["ledger"]["total_ms"] == pytest.approx(4000.0 / row["throughput_tok_s"])
    assert why["eager_ledger"]["total_ms"] == pytest.approx(4000.0 / row["eager_tok_s"])
    whole = json.loads(Path("all.json").read_text())["rows"]
    assert [row["explanation"] is None for row in whole] == [N not in (4, 7) for N in range(1, 8)]
    text = run(f"{PAPER} --N 4,15 --explain").out
    assert "rejected: 6 of 16 vectors can deadlock" in text
    assert "why: best of 10 live vectors; the runner-up 2,3 loses 4.77 %" in text
    assert "the smallest is taken; also 2,10 (+0.079 %)" in text
    assert "explanation" in records(run(f"{PAPER} --N 4 --explain --format csv").out)[0]


def test_explain_counts_only_what_is_free(run):
    why = run(f"{PAPER} --N 4 --json --explain --B0 2").json["rows"][0]["explanation"]
    assert (why["evaluated"], why["can_deadlock"]) == (3, 1)
    alone = run(f"{PAPER} --N 1 --explain").out
    assert "why: it is the only live vector" in alone


def test_a_sweep_has_a_row_for_each_p(run):
    result = run(f"{PAPER} --N 3,4 --sweep p=0.05..0.15:0.05 --format csv -o sweep.json")
    rows = records(result.out)
    assert [(row["p"], row["N"]) for row in rows] == list(
        itertools.product(["0.05", "0.1", "0.15"], ["3", "4"])
    )
    alone = run(f"{PAPER} --N 4 --p 0.15 --json").json["rows"][0]
    assert float(rows[-1]["throughput_tok_s"]) == alone["throughput_tok_s"]
    document = json.loads(Path("sweep.json").read_text())
    assert document["schema"] == "trmodel/sweep"
    assert len(document["rows"]) == 12
    assert "0.15" in run(f"{PAPER} --N 4 --sweep p=0.15").out


@pytest.mark.parametrize(
    ("line", "suffix"), [("--N 3,4", "png"), ("--N 3 --sweep p=0.1,0.2", "svg"), ("--N 3", "pdf")]
)
def test_plots_are_written(run, line, suffix):
    result = run(f"{PAPER} {line} --plot figure.{suffix}")
    assert result.code == 0
    assert result.err.splitlines()[-1] == f"wrote figure.{suffix}"
    assert Path(f"figure.{suffix}").stat().st_size > 1000


def test_a_plot_that_cannot_be_written_is_refused_before_computing(run):
    for place in ("figure.gif", "no/such/figure.png"):
        result = run(f"tune --N 40 --plot {place}")
        assert (result.code, result.out, len(result.err.splitlines())) == (4, "", 1)


def test_no_time_gives_no_row(run):
    code, out, err = run(f"{PAPER} --time-limit 0 -o none.json")
    assert (code, out) == (5, "")
    assert "the time limit of 0 s was reached" in err
    assert not Path("none.json").exists()


def test_a_search_that_is_stopped_gives_the_rows_it_has(run, monkeypatch):
    clock = itertools.count()
    tick_by_call(monkeypatch, clock)
    # One tick a chain: n = 1..4 take 1 + 3 + 6 + 10 of them.
    code, out, err = run(f"{PAPER} --N 3..8 --time-limit 15 --json --quiet")
    document = json.loads(out)
    assert code == 5
    assert [row["N"] for row in document["rows"]] == [3]
    assert document["stopped"]
    assert err == f"trmodel: error: {document['stopped']}\n"
    tick_by_call(monkeypatch, clock)
    result = run(f"{PAPER} --N 3..8 --time-limit 15 --format r2r")
    assert result.code == 5
    assert "warning: thresholds above n = 3 repeat those of its row" in result.err
    assert [line.count(",") for line in result.out.splitlines()] == [7, 7]


def test_a_routing_that_is_left_out_is_a_warning(run):
    result = run(f"{PAPER} --N 2 --p 0")
    assert result.code == 0
    assert "trmodel: warning: routing never reaches Qwen3-32B" in result.err
    assert run(f"{PAPER} --N 2 --p 0 --json").json["warnings"]


def test_a_sweep_that_is_stopped_names_the_limit_that_was_given(run, monkeypatch):
    clock = itertools.count()
    tick_by_call(monkeypatch, clock)
    # n = 1, 2 take 4 ticks, so that the second p stops.
    result = run(f"{PAPER} --N 2 --time-limit 6 --sweep p=0.1,0.2,0.3 --json")
    assert result.code == 5
    assert {row["p"] for row in result.json["rows"]} == {0.1}
    assert "the time limit of 6 s was reached" in result.err
    assert result.err.endswith("none that was asked for (p = 0.2)\n")


def test_thresholds_worse_than_eager_are_called_so(run):
    (row,) = run(f"{PAPER} --N 4 --B0 4 --json").json["rows"]
    assert row["gain_percent"] < -1.0
    assert row["notes"] == [f"worse than eager by {-row['gain_percent']:.1f} %"]


def test_the_method_can_be_chosen_and_intervals_are_shown(run):
    result = run("tune --profile a100-ensemble --N 3,6 --method simulated --grid-ms 0.1 -o all.csv")
    assert result.code == 0
    assert " ± " in result.out
    assert "racing: 66 vectors simulated for 2 rows" in result.out
    assert "± is a 95 % interval" in result.out
    assert max(map(len, result.out.splitlines())) <= 100
    rows = records(Path("all.csv").read_text())
    assert [row["search"] for row in rows] == [
        "exhaustive", "interpolated", "racing", "interpolated", "interpolated", "racing",
    ]  # fmt: skip
    assert rows[3]["throughput_tok_s"] == ""
    last = rows[5]
    low, middle, high = (float(last[f"throughput_{which}tok_s"]) for which in ("low_", "", "high_"))
    assert low < middle < high
    explained = run("tune --profile a100-ensemble --N 6 --method simulated --explain --json")
    why = explained.json["rows"][0]["explanation"]
    assert why["can_deadlock"] == 6**3 - 56
    assert why["drivers"] == []


def test_a_search_goes_on_from_the_rows_of_its_file(run):
    first = run(f"{PAPER} --N 4 -o table.json --quiet")
    assert first.code == 0
    longer = run(f"{PAPER} --N 4..6 -o table.json --resume --json")
    assert longer.code == 0
    assert longer.json == run(f"{PAPER} --N 4..6 --json").json
    assert len(json.loads(Path("table.json").read_text())["rows"]) == 6
    other = run(f"{PAPER} --N 4..6 --p 0.2 -o table.json --resume")
    assert (other.code, other.out) == (4, "")
    assert other.err.splitlines()[1:] == [
        "trmodel: error: table.json: --resume: it was made with another "
        "system.transition_probability; leave out --resume or name another file"
    ]


@pytest.mark.parametrize(
    "more", ["", "-o table.csv", "-o t.json --plot x.png", "-o t.json --uncertainty"]
)
def test_resuming_needs_a_json_file_and_no_candidates(run, more):
    result = run(f"{PAPER} --N 4 --resume {more}")
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
