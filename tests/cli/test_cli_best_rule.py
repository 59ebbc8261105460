"""``trmodel best-rule`` and ``trmodel tune --bound``."""

import csv
import io

import pytest

import trmodel


def test_the_table_says_what_the_rule_is_worth(run):
    result = run("best-rule --profile a100-paper --N 8")
    assert result.code == 0
    assert "403.7 tok/s: no rule that launches all that wait or none gives more" in result.out
    assert "399.0 tok/s with thresholds B = 1,5; the best rule gains 1.17 %" in result.out
    assert "3,453 decision states, of which the rule visits 45" in result.out
    part = run("best-rule --profile a100-paper --N 8 --actions part")
    assert "no rule that launches any part of what waits gives more" in part.out


def test_json_and_csv_agree_with_the_function(run):
    rule = trmodel.best_rule("a100", N=6, B=(1, 4), context=1024)
    line = "best-rule --N 6 --B 1,4 --context 1024"
    document = run(f"{line} --json").json
    (record,) = csv.DictReader(io.StringIO(run(f"{line} --format csv").out))
    assert document["schema"] == "trmodel/best-rule"
    assert document["profile"]["name"] == "a100"
    assert document["B"] == [1, 4]
    assert document["bound_tok_s"] == rule.bound_tok_s == float(record["bound_tok_s"])
    assert document["gap_percent"] == pytest.approx(float(record["gap_percent"]))
    assert record["B_Qwen3-32B"] == "4"
    assert document["throughput_tok_s"] == pytest.approx(
        trmodel.predict("a100", N=6, B=(1, 4), context=1024).throughput_tok_s
    )
    assert {point["model"] for point in document["launch_points"]} == set(document["models"])


def test_the_rule_is_written_and_read_back(run, tmp_path):
    result = run("best-rule --profile a100-paper --N 4 -o rule.json")
    assert result.code == 0
    assert "208.6 tok/s" in result.out
    assert "wrote rule.json" in result.err
    table = trmodel.load_launch_table(tmp_path / "rule.json")
    assert len(table) == 715
    assert table.launches_at((1, 3), (0, 0), (0, 0)) == (1, 3)


def test_tune_with_bound(run):
    result = run("tune --profile a100-paper --N 4,8 --bound")
    assert result.code == 0
    assert "gain %   gap %" in result.out
    assert " 1.17 " in result.out
    assert "gap %" in run("tune --profile a100-paper --N 4").out
    assert "gap %" not in run("tune --profile a100-paper --N 4 --no-bound").out
    swept = run("tune --profile a100-paper --N 4 --bound --sweep p=0.2..0.3:0.1 --json").json
    assert all(row["gap_percent"] >= 0.0 for row in swept["rows"])
    records = list(csv.DictReader(io.StringIO(
        run("tune --profile a100-paper --N 4 --bound --format csv").out
    )))  # fmt: skip
    assert float(records[0]["bound_tok_s"]) == pytest.approx(208.564, abs=1e-3)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("best-rule --N 4 --B 4,4", 3, "can deadlock"),
        ("best-rule --N 4 --B 1", 2, "--B: 2 thresholds are needed"),
        ("best-rule --N 4 --format r2r", 2, "holds thresholds, not a launch rule"),
        ("best-rule --N 4 --actions some", 2, "--actions"),
        ("best-rule --N 0", 2, "--N"),
        ("best-rule --profile a100-ensemble --N 12 --B 1,1,1", 5, "the limit of"),
    ],
)
def test_what_is_refused(run, line, code, message):
    result = run(line)
    assert result.code == code
    assert message in result.err
    assert result.out == ""
    assert len(result.err.strip().splitlines()) <= 2
