import copy
import json
from pathlib import Path

import jsonschema
import pytest

from trmodel.calibrate import (
    Measurements,
    load_measurements,
    measurement_names,
    measurements_schema,
)
from trmodel.errors import InputError

GOOD = {
    "schema": "trmodel/measurements",
    "schema_version": 1,
    "name": "mine",
    "source": "test",
    "models": ["small", "large"],
    "noise_percent": 2.5,
    "measurements": [
        {"N": 1, "B": [1, 1], "throughput_tok_s": 70.0},
        {"N": 2, "B": [1, 2], "throughput_tok_s": 120, "placement": "separate", "note": "second"},
    ],
}


def written(tmp_path: Path, change) -> Path:
    data = copy.deepcopy(GOOD)
    change(data)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(data))
    return path


def test_the_ten_published_points_ship_and_are_the_published_ones():
    document = load_measurements("paper-figure10").document
    found = {(m.N, m.B): m.throughput_tok_s for m in document.measurements}
    assert found == {
        (1, (1, 1)): 73.02,
        (2, (1, 1)): 94.4,
        (2, (1, 2)): 122.3,
        (3, (1, 1)): 125.9,
        (3, (1, 2)): 169.0,
        (3, (1, 3)): 158.3,
        (4, (1, 1)): 161.2,
        (4, (1, 2)): 179.1,
        (4, (1, 3)): 197.4,
        (4, (1, 4)): 193.7,
    }
    assert {m.placement for m in document.measurements} == {"shared"}
    assert measurement_names() == ["paper-figure10"]


def test_a_file_wins_over_a_built_in_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_measurements("paper-figure10").origin == "built-in paper-figure10"
    written(tmp_path, lambda data: None).rename("paper-figure10.json")
    loaded = load_measurements("paper-figure10.json")
    assert (loaded.document.name, loaded.origin) == ("mine", "paper-figure10.json")
    assert loaded.document.measurements[1].placement == "separate"


def test_measurements_made_in_python_are_taken_as_they_are():
    document = Measurements.model_validate(GOOD)
    loaded = load_measurements(document)
    assert loaded.document is document
    assert load_measurements(loaded) is loaded
    with pytest.raises(InputError, match="no such file and no built-in measurement file"):
        load_measurements("paper-figure11")


def test_every_problem_is_told_at_once_with_its_path(tmp_path):
    def spoil(data):
        points = data["measurements"]
        points[0]["throughput_tok_s"] = -1
        points[0]["N"] = 0
        points[1]["placement"] = "elsewhere"
        points[1]["B"] = [1, "2"]
        data["noise_percent"] = 0
        data["surce"] = "misspelt"

    path = written(tmp_path, spoil)
    with pytest.raises(InputError) as caught:
        load_measurements(path)
    assert caught.value.problems == [
        f"{path}: noise_percent: must be above 0, got 0",
        f"{path}: measurements[0].N: must be at least 1, got 0",
        f"{path}: measurements[0].throughput_tok_s: must be above 0, got -1",
        f'{path}: measurements[1].B[1]: must be a whole number, got "2"',
        f"{path}: measurements[1].placement: must be 'shared' or 'separate', got \"elsewhere\"",
        f"{path}: surce: unknown field; check the spelling or remove it",
    ]


def test_thresholds_that_cannot_have_been_measured_are_named(tmp_path):
    def spoil(data):
        data["measurements"] += [
            {"N": 2, "B": [1], "throughput_tok_s": 1},
            {"N": 2, "B": [2, 2], "throughput_tok_s": 1},
        ]

    with pytest.raises(InputError) as caught:
        load_measurements(written(tmp_path, spoil))
    first, second = caught.value.problems
    assert first.endswith("measurements[2].B: must be 2 thresholds for 2 models, has 1")
    assert "measurements[3].B: B = 2,2 can deadlock at N = 2" in second


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(models=["a", "a"]), "models: names must be distinct, got a, a"),
        (lambda d: d.update(measurements=[]), "measurements: must not be empty"),
        (lambda d: d.update(schema_version=2), "newer than 1"),
        (lambda d: d.update(schema="trmodel/profile"), 'has "schema": "trmodel/measurements"'),
        (lambda d: d.pop("source"), "source: is missing"),
    ],
)
def test_malformed_files(tmp_path, change, words):
    with pytest.raises(InputError, match=words):
        load_measurements(written(tmp_path, change))


def test_the_json_schema_documents_every_field_and_accepts_what_is_read():
    schema = measurements_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(GOOD, schema)
    docs = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text(encoding="utf-8")
    for part in (schema, schema["$defs"]["Measured"]):
        for field, described in part["properties"].items():
            assert described["description"]
            assert f"`{field}`" in docs
