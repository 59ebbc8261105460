"""What a profile does not list is told, and nothing is told that it does list."""

import pytest
from profile_making import PROVENANCE, model, profile, routing

from trmodel.profile import build_system, load_profile, unknown_costs

R2R = routing([[0.5, 0.5], [1.0, 0.0]])
FORWARD = {
    "batch": [1, 64],
    "latency_ms": [10.0, 10.0],
    "provenance": {"method": "imported", "source": "test"},
}


def slow_down(a, b, factors=(1.0, 1.0)):
    return {"models": [a, b], "factors": factors, "provenance": PROVENANCE}


def warnings_of(first, second, **fields):
    loaded = profile([model("m0", **first), model("m1", **second)], routing=R2R, **fields)
    found = unknown_costs(loaded.profile, ["m0", "m1"])
    assert list(build_system(loaded, 2).warnings) == found
    return found


CONTENTION = (
    "contention is unknown: no slow-down is listed of m0 and m1, which {} GPUs; taken as none"
)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"gpus": [0]}, {"gpus": [0]}, "share"),
        ({"gpus": [0]}, {"gpus": [0, 1], "tensor_parallel": 2}, "share"),
        ({"gpus": [0]}, {}, "may share"),
        ({}, {}, "may share"),
    ],
)
def test_contention_of_models_that_share_a_gpu_or_may(first, second, words):
    assert warnings_of(first, second) == [CONTENTION.format(words)]
    for factors in ((1.0, 1.0), (1.5, 1.2)):
        assert warnings_of(first, second, slow_downs=[slow_down("m1", "m0", factors)]) == []


def test_models_apart_have_no_contention():
    assert warnings_of({"gpus": [0]}, {"gpus": [1]}) == []


def test_every_pair_without_a_slow_down_is_named_once():
    three = profile([model(f"m{i}") for i in range(3)], slow_downs=[slow_down("m0", "m2")])
    (warning,) = unknown_costs(three.profile, ["m2", "m1", "m0"])
    assert "of m2 and m1; m1 and m0, which" in warning
    assert unknown_costs(three.profile, ["m0", "m2"]) == []


def test_a_model_that_is_never_reached_shares_nothing():
    stays = routing([[1.0, 0.0], [1.0, 0.0]])
    assert build_system(profile([model("m0"), model("m1")], routing=stays), 2).warnings == ()


def test_forward_passes_lack_an_overhead():
    apart = {"gpus": [0]}, {"gpus": [1]}
    (warning,) = warnings_of({"decode": FORWARD, **apart[0]}, apart[1])
    assert warning.startswith("overhead is unknown: none is listed of m0, whose tables are")
    listed = {"decode": FORWARD, "overhead": {"value_ms": 0.0, "provenance": PROVENANCE}}
    assert warnings_of(listed | apart[0], apart[1]) == []


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("a100", []),
        ("a100-paper", ["contention is unknown"]),
        ("a100-ensemble", ["contention is unknown"]),
        ("a100-imported", ["contention is unknown", "overhead is unknown"]),
        ("h100", ["contention is unknown", "overhead is unknown"]),
        ("h200", ["contention is unknown", "overhead is unknown"]),
    ],
)
def test_built_in_profiles_say_what_they_lack(name, starts):
    found = [w for w in build_system(load_profile(name), 4).warnings if "is unknown: " in w]
    assert [warning.partition(":")[0] for warning in found] == starts
