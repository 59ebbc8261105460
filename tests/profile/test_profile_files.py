"""Profile files: the built-in ones, names, and every way in which a file can be wrong."""

import copy
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trmodel.documents import check_header, parse_document
from trmodel.errors import InputError
from trmodel.profile import Profile, load_profile, profile_names
from trmodel.profile.load import BUILTIN
from trmodel.routing import Routing

PROVENANCE = {"method": "assumed", "source": "test"}
GOOD = {
    "schema": "trmodel/profile",
    "schema_version": 1,
    "name": "mine",
    "description": "for a test",
    "hardware": {"gpu": "none", "gpus": 1},
    "obtained": "assumed",
    "models": [
        {
            "name": name,
            "tensor_parallel": 1,
            "decode": {
                "batch": [1, 2, 4],
                "latency_ms": [latency, latency + 1, latency + 2],
                "context_tokens": 1024,
                "provenance": PROVENANCE,
            },
            "overhead": {"value_ms": 0.5, "provenance": PROVENANCE},
        }
        for name, latency in (("Qwen3-0.6B", 6.0), ("Qwen3-32B", 28.0))
    ],
    "routing": "r2r",
}


def changed(*changes):
    """GOOD with ("models.0.name", value) changes; the value ... removes the field."""
    data = copy.deepcopy(GOOD)
    for path, value in changes:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        inner = data
        for part in parents:
            inner = inner[part]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value
    return data


def problems_of(path) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_profile(path)
    assert all(problem.isprintable() for problem in caught.value.problems)
    return caught.value.problems


def test_builtin_profiles_say_what_they_are():
    assert profile_names() == [
        "a100", "a100-ensemble", "a100-imported", "a100-paper", "h100", "h200"
    ]  # fmt: skip
    for name in profile_names():
        loaded = load_profile(name)
        assert loaded == load_profile(f"{name}.json")
        assert loaded.profile.name == name
        assert loaded.origin == f"built-in {name}"
        content = (BUILTIN / f"{name}.json").read_bytes()
        assert loaded.sha256 == hashlib.sha256(content).hexdigest()


def test_builtin_provenance():
    by_name = {name: load_profile(name).profile for name in profile_names()}
    methods = {
        name: [model.decode.provenance.method for model in profile.models]
        for name, profile in by_name.items()
    }
    assert methods == {
        "a100": ["derived", "derived"],
        "a100-paper": ["published", "published"],
        "a100-ensemble": ["published", "assumed", "published"],
        "a100-imported": ["derived"] * 5,
        "h100": ["derived"] * 5,
        "h200": ["derived"] * 5,
    }
    a100 = by_name["a100"]
    assert [model.tensor_parallel for model in a100.models] == [1, 2]
    for model in a100.models:
        assert 2048 in model.decode.context_tokens
        assert "aiconfigurator" in model.decode.provenance.source
        assert model.overhead is not None
        assert model.overhead.provenance.method == "fitted"


def test_a_file_wins_over_a_built_in_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a100.json").write_text(json.dumps(GOOD))
    loaded = load_profile("a100.json")
    assert (loaded.profile.name, loaded.origin) == ("mine", "a100.json")
    assert load_profile("a100").origin == "built-in a100"
    assert load_profile(Path("a100.json")).profile.name == "mine"


def test_a_profile_from_python_is_taken_as_it_is():
    loaded = load_profile(Profile.model_validate(GOOD))
    assert loaded.origin == "profile mine"
    assert load_profile(loaded) is loaded
    assert loaded.sha256 == load_profile(Profile.model_validate(GOOD)).sha256
    other = Profile.model_validate(changed(("models.0.decode.latency_ms.0", 6.5)))
    assert load_profile(other).sha256 != loaded.sha256


def test_unknown_names_list_the_built_in_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert problems_of("a100-papr") == [
        "a100-papr: no such file and no built-in profile; did you mean a100-paper? built in: "
        "a100, a100-ensemble, a100-imported, a100-paper, h100, h200"
    ]
    assert "built in: a100, " in problems_of("b300.json")[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (json.dumps(GOOD).encode()[:400], "not valid JSON at line 1"),
        (json.dumps(GOOD).encode("utf-16"), "not a UTF-8 text file"),
        (json.dumps(changed(("grid_ms", float("nan")))).encode(), "NaN is not a JSON number"),
        (b"[]", "top level"),
        (b"{}", "schema: is missing"),
    ],
)
def test_files_that_are_no_documents(tmp_path, content, words):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    (line,) = problems_of(path)
    assert line.startswith(f"{path}: ")
    assert words in line


def test_a_file_of_100_megabytes(tmp_path):
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    assert "larger than 16 MiB" in problems_of(path)[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            [("models.0.decode.latency_ms", [-1, 0, 1e9])],
            [
                "models[0].decode.latency_ms[0]: must be above 0, got -1",
                "models[0].decode.latency_ms[1]: must be above 0, got 0",
                "models[0].decode.latency_ms[2]: must be at most 600000, got 1000000000.0",
            ],
        ),
        (
            [("models.0.decode.batch", [2, 4, 4]), ("models.1.decode.latency_ms", [28.0])],
            [
                "models[0].decode.batch[0]: the first batch size must be 1, got 2",
                "models[0].decode.batch[2]: must be above the one before, 4, got 4",
                "models[1].decode.latency_ms: 3 batch sizes are listed, got 1 latencies",
            ],
        ),
        (
            [("models.0.decode.batch", [1, 2.5, "4"]), ("models.1.tensor_parallel", 0)],
            [
                "models[0].decode.batch[1]: must be a whole number, got 2.5",
                'models[0].decode.batch[2]: must be a whole number, got "4"',
                "models[1].tensor_parallel: must be at least 1, got 0",
            ],
        ),
        ([("models.0.decode.batch", []), ("models.0.decode.latency_ms", [])],
         ["models[0].decode.batch: must not be empty"]),
        ([("models.0.decode.batch", ...)],
         ["models[0].decode.batch: is missing; it is required"]),
        ([("models.1.name", "Qwen3-0.6B")],
         ["models: names must be distinct, got Qwen3-0.6B, Qwen3-0.6B"]),
        ([("models", [])], ["models: must not be empty"]),
        ([("models.0.latency", 3)],
         ["models[0].latency: unknown field; check the spelling or remove it"]),
        ([("models.0.overhead.value_ms", -0.1)],
         ["models[0].overhead.value_ms: must be at least 0, got -0.1"]),
        ([("models.1.wake", {"value_ms": -2, "provenance": PROVENANCE})],
         ["models[1].wake.value_ms: must be at least 0, got -2"]),
        ([("models.1.wake", {"value_ms": 2})],
         ["models[1].wake.provenance: is missing; it is required"]),
        ([("models.1.wake", 2)], ["models[1].wake: must be an object, got 2"]),
        ([("models.0.max_batch", 0), ("grid_ms", 0)],
         ["grid_ms: must be above 0, got 0", "models[0].max_batch: must be at least 1, got 0"]),
        ([("obtained", "found")],
         ["obtained: must be 'measured', 'imported', 'published', 'derived', 'fitted' or "
          "'assumed', got \"found\""]),
        ([("routing", "r3r")],
         ["routing: r3r: no such routing preset; there are citer, co-llm, ensemble, "
          "fixed-length, glimprouter, r-stitch, r2r, r2r-r1"]),
        ([("routing", 7)], ["routing: must be the name of a preset or a routing object, got 7"]),
        ([("schema_version", 2), ("contention", {})],
         ["schema_version: 2 is newer than 1, the newest that this trmodel reads; install a "
          "newer trmodel"]),
        ([("schema", "trmodel/routing")],
         ['schema: is "trmodel/routing"; a file of this kind has "schema": "trmodel/profile"']),
    ],
)  # fmt: skip
def test_bad_fields(tmp_path, changes, expected):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(changed(*changes)))
    assert problems_of(path) == [f"{path}: {line}" for line in expected]


def nodes(value, path=()):
    """Paths of all fields and items below a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, (dict, list)):
            yield from nodes(inner, (*path, key))


@given(
    st.sampled_from(sorted({".".join(map(str, path)) for path in nodes(GOOD)})),
    st.sampled_from([..., None, True, -1, 0, 2.5, 10**20, "", "x\n", [], [[]], {}, {"x": 1}]),
)
def test_any_field_replaced_by_anything_is_read_or_refused_in_words(path, value):
    data = changed((path, value))
    where = "f.json"
    try:
        check_header(data, "trmodel/profile", 1, where)
        parse_document(Profile, data, where)
        problems = []
    except InputError as error:
        problems = error.problems
    for problem in problems:
        assert problem.startswith(f"{where}: ")
        assert problem.isprintable()
        assert "Input should" not in problem
        assert "<" not in problem


INLINE = {
    "name": "inline",
    "models": ["Qwen3-32B", "Qwen3-0.6B"],
    "transition_probability": [[0, 1], [0.4, 0.6]],
    "committed_tokens": [[0, 1], [0, 1]],
    "entry": "Qwen3-0.6B",
    "source": "test",
}


def test_a_default_routing_can_be_inline_or_left_out():
    inline = Profile.model_validate(changed(("routing", INLINE)))
    assert isinstance(inline.routing, Routing)
    assert Profile.model_validate(changed(("routing", ...))).routing is None
    text = inline.model_dump_json(by_alias=True)
    assert Profile.model_validate_json(text) == inline


def test_problems_of_an_inline_routing_have_their_path(tmp_path):
    path = tmp_path / "bad.json"
    inline = {**INLINE, "transition_probability": [[0, 1], [0.4, 0.7]], "odd": 1}
    path.write_text(json.dumps(changed(("routing", inline))))
    assert problems_of(path) == [
        f"{path}: routing.transition_probability[1]: must sum to 1, sums to 1.1",
        f"{path}: routing.odd: unknown field; check the spelling or remove it",
    ]
    inline = {**INLINE, "models": ["Qwen3-32B", "other"], "entry": "other"}
    path.write_text(json.dumps(changed(("routing", inline))))
    (line,) = problems_of(path)
    assert line.startswith(f"{path}: routing: routing inline: other not in the profile")
    assert "the profile has Qwen3-0.6B, Qwen3-32B" in line


def test_importing_profiles_is_light():
    code = "import sys, trmodel.profile; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"numba", "pandas", "matplotlib", "sympy", "scipy", "networkx"}.isdisjoint(modules)


def test_numbers_of_bytes_may_have_an_exponent(tmp_path):
    data = load_profile("h100").profile.model_dump(mode="json", by_alias=True)
    data["hardware"] |= {"gpu_memory_bytes": 8.5e10, "reserved_bytes": 9e9}
    data["models"][0]["memory"]["weight_bytes"] = 1.2e9
    path = tmp_path / "bytes.json"
    path.write_text(json.dumps(data))
    found = load_profile(path).profile
    sizes = (found.hardware.gpu_memory_bytes, found.hardware.reserved_bytes)
    assert (*sizes, found.models[0].memory.weight_bytes) == (85 * 10**9, 9 * 10**9, 12 * 10**8)
    assert all(type(size) is int for size in sizes)
