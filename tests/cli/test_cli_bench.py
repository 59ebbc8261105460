"""``bench``, ``validate`` and ``profile measure``, with a server that was measured before."""

import json

import pytest


@pytest.fixture(autouse=True)
def server(measured_server):
    return measured_server


def test_every_setting_is_measured_once_and_kept(run, server, tmp_path):
    line = "bench --config r2r.yaml --N 4,8 --B 1,3 --B 1,8 --thresholds eager -o new.jsonl --json"
    found = run(line)
    assert found.code == 0
    assert server.asked == [(4, (1, 3)), (4, (1, 1)), (8, (1, 3)), (8, (1, 8)), (8, (1, 1))]
    kept = [json.loads(text) for text in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert kept == found.json["points"]
    again = run(line)
    assert len(server.asked) == 5
    assert again.json == found.json
    run(line.replace("--json", "--seed 7"))
    assert len(server.asked) == 10


def test_a_line_that_was_not_finished_is_measured_again(run, server, tmp_path):
    file = tmp_path / "results.jsonl"
    whole = file.read_text()
    file.write_text(whole[:-100])
    assert run("bench --config r2r.yaml --N 4 --B 1,3 -o results.jsonl --quiet").code == 0
    points = [json.loads(line) for line in file.read_text().splitlines()]
    assert [point["B"] for point in points] == [[1, 1], [1, 2], [1, 3]]
    assert server.asked == [(4, (1, 3))]


def test_the_table_has_throughput_delays_and_shares(run, server):
    found = run("bench --config r2r.yaml --N 4 --thresholds thresholds.json --thresholds tune")
    assert found.code == 0
    assert f"{server.points[0]['throughput_tok_s']:.1f}" in found.out
    assert server.asked == [(4, (1, 4)), (4, (1, 3))]
    csv = run("bench --config r2r.yaml --N 4 --B 1,2 --format csv").out.splitlines()
    assert csv[0].startswith("N,B,throughput_tok_s,low_tok_s,high_tok_s,inter_token_mean_ms")
    assert csv[1].startswith('4,"1,2",')


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("bench --N 4", 2, "one of the two"),
        ("bench --N 4 --url http://x --config r2r.yaml", 2, "one of the two"),
        ("bench --N 4 --config r2r.yaml --B 1,9", 2, "can deadlock"),
        ("bench --N 4 --config r2r.yaml --B 1", 2, "2 thresholds"),
        ("bench --N 4 --url http://x --thresholds tune", 2, "needs --config"),
        ("bench --N 4 --config nowhere.yaml", 4, "cannot be read"),
        ("bench --N 4 --config r2r.yaml -o thresholds.json", 4, "no point of"),
        ("validate nowhere.jsonl", 4, "cannot be read"),
        ("validate thresholds.json", 4, "no point of"),
        ("validate results.jsonl --profile a100-ensemble", 4, "a point is of"),
        ("validate results.jsonl -o results.jsonl", 2, "is what is read"),
        ("profile measure --url http://x", 2, "--like"),
    ],
)
def test_what_makes_no_sense_is_one_line(run, line, code, words):
    found = run(line)
    assert found.code == code
    assert words in found.err
    assert found.err.count("error:") == 1


def test_predictions_beside_measurements(run, tmp_path):
    found = run("validate results.jsonl --profile measured.json --plot errors.png --json")
    assert found.code == 0
    assert (tmp_path / "errors.png").stat().st_size > 10_000
    points = found.json["points"]
    assert [point["B"] for point in points] == [[1, 1], [1, 2], [1, 3]]
    for point in points:
        # The paper's steps without the executor's overhead: too fast, but by little.
        assert 0.0 < point["error_percent"] < 12.0
        assert abs(point["own_error_percent"]) < abs(point["error_percent"])
    assert found.json["rankings"][0]["best_predicted"] == [1, 3]
    assert found.json["rankings"][0]["kendall_tau"] == 1.0
    shown = run("validate results.jsonl --profile measured.json").out
    assert "Kendall tau" in shown
    assert "chain: error" in shown


def test_a_measured_profile_is_one_that_tune_takes(run, tmp_path):
    line = "profile measure --config r2r.yaml --largest 4 --name mine -o mine.json --quiet"
    assert run(line).code == 0
    profile = json.loads((tmp_path / "mine.json").read_text())
    assert profile["obtained"] == "measured"
    assert profile["models"][0]["decode"]["batch"][-1] == 4
    assert profile["models"][0]["decode"]["provenance"]["method"] == "measured"
    assert 6.0 < profile["models"][0]["decode"]["latency_ms"][0] < 9.0
    assert 0.0 < profile["handoff"]["latency_ms"] < 20.0
    assert profile["software"]["trmodel"]
    assert run("tune --profile mine.json --N 4").code == 0
    assert "handoff latency" in run("predict --profile mine.json --N 4 --B 1,3").out
