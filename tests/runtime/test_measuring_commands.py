"""The commands that measure, on a server that they start: profile, points, comparison, tuning."""

import json

import pytest

from trmodel.cli.main import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r2r.yaml").write_text("profile: a100-paper\np: 0.35\n")
    return tmp_path


def test_from_a_running_server_to_thresholds_and_back(here, capsys):
    line = "profile measure --config r2r.yaml --largest 2 --seconds 1 --warm-up 0.5 -o own.json"
    assert main([*line.split(), "--quiet"]) == 0
    profile = json.loads((here / "own.json").read_text())
    assert profile["models"][1]["decode"]["batch"] == [1, 2]
    assert 27.9 < profile["models"][1]["decode"]["latency_ms"][0] < 31.0
    assert main("tune --profile own.json --N 2 -o table.json --quiet".split()) == 0
    line = "bench --config r2r.yaml --N 2 --thresholds table.json --thresholds eager --B 1,2"
    line += " --seconds 2 --warm-up 0.5 -o results.jsonl --json"
    capsys.readouterr()
    assert main(line.split()) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert sorted(tuple(point["B"]) for point in points) == [(1, 1), (1, 2)]
    assert main("validate results.jsonl --profile own.json --p 0.35 --json".split()) == 0
    found = json.loads(capsys.readouterr().out)
    for point in found["points"]:
        assert point["method"] == "simulation"
        assert abs(point["own_error_percent"]) < 5.0 + point["interval_percent"]
    assert len(found["rankings"]) == 1
