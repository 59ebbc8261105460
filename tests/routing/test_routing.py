"""Routings: presets, files, what is refused, and how a routing finds its models."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trmodel.errors import InputError
from trmodel.routing import Routing, load_preset, load_routing, routing_names

QWEN = ("Qwen3-0.6B", "Qwen3-32B")
REPLACED = ((1, 0), (1, 0))
PUBLISHED = {
    "r2r": (QWEN, ((0.65, 0.35), (1, 0)), REPLACED),
    "r2r-r1": (
        ("R1-Distill-Qwen-1.5B", "R1-Distill-Qwen-32B"),
        ((0.87, 0.13), (1, 0)),
        REPLACED,
    ),
    "citer": (QWEN, ((0.82, 0.18), (1, 0)), REPLACED),
    "co-llm": (QWEN, ((0.35, 0.65), (1, 0)), REPLACED),
    "r-stitch": (QWEN, ((0.43, 0.57), (0.5, 0.5)), ((1, 0), (1, 1))),
    "ensemble": (
        ("Qwen3-0.6B", "Qwen3-8B", "Qwen3-32B"),
        ((0.5, 0.3, 0.2),) * 3,
        ((1, 1, 1),) * 3,
    ),
}


def document(**changes):
    data = {
        "schema": "trmodel/routing",
        "schema_version": 1,
        "name": "mine",
        "models": ["small", "large"],
        "transition_probability": [[0.8, 0.2], [1, 0]],
        "committed_tokens": [[1, 0], [1, 0]],
        "source": "test",
    }
    return {key: value for key, value in {**data, **changes}.items() if value is not ...}


def write(path: Path, data) -> Path:
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def problems_of(path) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_routing(path)
    assert all(problem.isprintable() for problem in caught.value.problems)
    return caught.value.problems


def test_presets_are_the_published_ones():
    assert routing_names() == sorted([*PUBLISHED, "fixed-length", "glimprouter"])
    for name, (models, P, C) in PUBLISHED.items():
        routing = load_routing(name)
        assert routing == load_routing(f"{name}.json") == load_preset(name)
        assert routing.name == name
        assert routing.models == models
        assert routing.transition_probability == P
        assert routing.committed_tokens == C
        assert routing.entry_index == 0
        assert routing.paper is not None
        assert routing.paper.startswith("arXiv:")


def test_a_file_wins_over_a_preset_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "r2r", document(entry="large"))
    routing = load_routing("r2r")
    assert (routing.name, routing.entry_index) == ("mine", 1)
    assert load_routing("r2r.json").name == "r2r"
    assert load_preset("r2r").name == "r2r"


def test_unknown_names_list_the_presets_and_suggest_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert problems_of("r2r-r2") == [
        "r2r-r2: no such file and no built-in routing; did you mean r2r-r1? built in: "
        "citer, co-llm, ensemble, fixed-length, glimprouter, r-stitch, r2r, r2r-r1"
    ]
    assert "did you mean citer?" in problems_of("Citer.json")[0]
    with pytest.raises(InputError, match="r2: no such routing preset; there are citer"):
        load_preset("r2")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"transition_probability": [[0.8, 0.3], [-1, 2]]},
            [
                "transition_probability[0]: must sum to 1, sums to 1.1",
                "transition_probability[1][0]: must be between 0 and 1, got -1",
                "transition_probability[1][1]: must be between 0 and 1, got 2",
            ],
        ),
        (
            {"committed_tokens": [[1, -2], [1, 0]], "entry": "medium", "source": ...},
            [
                "committed_tokens[0][1]: must be from 0 to 1e+06, got -2",
                "entry: medium is not one of the models small, large",
                "source: is missing; it is required",
            ],
        ),
        (
            {"transition_probability": [[1]], "committed_tokens": [[1, 0], [1]]},
            [
                "transition_probability: must have 2 rows for 2 models, has 1",
                "committed_tokens[1]: must have 2 numbers, has 1",
            ],
        ),
        ({"models": ["a", "a"]}, ["models: names must be distinct, got a, a"]),
        (
            {"models": [], "transition_probability": [], "committed_tokens": []},
            ["models: must not be empty"],
        ),
        (
            {"transition_probability": [["0.8", 0.2], [True, 0]]},
            [
                'transition_probability[0][0]: must be a number, got "0.8"',
                "transition_probability[1][0]: must be a number, got true",
            ],
        ),
        (
            {"phases": [], "schema_version": 2},
            ["schema_version: 2 is newer than 1, the newest that this trmodel reads; install a "
             "newer trmodel"],
        ),
        (
            {"schema": "trmodel/profile"},
            ['schema: is "trmodel/profile"; a file of this kind has "schema": "trmodel/routing"'],
        ),
    ],
)  # fmt: skip
def test_bad_files_name_every_field(tmp_path, changes, expected):
    path = write(tmp_path / "bad.json", document(**changes))
    assert problems_of(path) == [f"{path}: {line}" for line in expected]


def test_a_file_must_state_its_schema(tmp_path):
    path = write(tmp_path / "bare.json", document(schema=...))
    assert "schema: is missing" in problems_of(path)[0]


def test_bind_by_name_in_the_order_of_the_routing():
    routing = Routing(**document())
    assert routing.bind(["large", "medium", "small"]).order == (2, 0)
    assert routing.bind(["small", "large"]).warning is None


def test_a_missing_model_is_an_error_with_both_lists():
    with pytest.raises(InputError) as caught:
        Routing(**document()).bind(["small", "huge"])
    line = caught.value.problems[0]
    assert "large not in the profile" in line
    assert "the routing is for small, large, the profile has small, huge" in line


def test_a_preset_is_applied_to_as_many_other_models_with_a_warning():
    binding = load_routing("r2r-r1").bind(["X", "Y"])
    assert binding.order == (0, 1)
    assert binding.warning == (
        "routing r2r-r1 was published for R1-Distill-Qwen-1.5B, R1-Distill-Qwen-32B; "
        "applied in that order to X, Y"
    )


def test_a_preset_never_puts_a_model_it_names_in_anothers_place():
    binding = load_routing("r2r").bind(["Qwen3-32B", "Qwen3-1.7B"])
    assert binding.order == (1, 0)
    assert binding.warning is not None
    assert binding.warning.endswith("applied in that order to Qwen3-1.7B, Qwen3-32B")


def test_a_preset_of_another_size_is_not_applied():
    with pytest.raises(InputError, match="Qwen3-8B not in the profile"):
        load_routing("ensemble").bind(QWEN)
    with pytest.raises(InputError, match=r"R1-Distill-Qwen-1\.5B, R1-Distill-Qwen-32B not in"):
        load_routing("r2r-r1").bind(["X", "Y", "Z"])


@given(st.permutations(["a", "b", "c", "d"]), st.permutations(["a", "b", "c", "d", "e"]))
def test_binding_finds_each_model(models, profile_models):
    M = len(models)
    routing = Routing(
        name="any",
        models=tuple(models),
        transition_probability=((1.0 / M,) * M,) * M,
        committed_tokens=((1.0,) * M,) * M,
        source="test",
    )
    assert [profile_models[i] for i in routing.bind(profile_models).order] == models


def test_a_routing_takes_on_the_names_of_a_profiles_models():
    named = load_routing("r2r").under_names_of(["small", "large"])
    assert named.models == ("small", "large")
    assert named.transition_probability == load_routing("r2r").transition_probability
    phased = load_routing("glimprouter").under_names_of(["small", "large"])
    assert {phase.model for phase in phased.phases} == {"small", "large"}
    assert phased.entry == load_routing("glimprouter").entry
    with pytest.raises(InputError, match="not in the profile"):
        load_routing("r2r").under_names_of(["one", "two", "three"])
