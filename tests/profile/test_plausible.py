"""Mistakes in valid profiles are noticed and named; sound profiles are left in peace."""

import pytest
from profile_making import PROVENANCE, model, profile, routing

from trmodel.errors import InputError
from trmodel.profile import build_system, load_profile, plausibility_warnings, profile_names


def decode(batch, latency_ms, **fields):
    return {"batch": batch, "latency_ms": latency_ms, "provenance": PROVENANCE, **fields}


def warnings_of(hardware=None, handoff=None, **fields):
    loaded = profile([model("m0", **fields)], hardware, handoff=handoff, routing=routing([[1.0]]))
    found = plausibility_warnings(loaded.profile)
    system = build_system(loaded, 1, context=1000, grid_ms=0.01)
    assert list(system.warnings)[: len(found)] == found
    return found


@pytest.mark.parametrize("name", profile_names())
def test_built_in_profiles_warn_of_what_is_known_about_them_only(name):
    loaded = load_profile(name)
    dips = plausibility_warnings(loaded.profile)
    if name == "h200":  # its measurements of the smallest model are what they are
        assert all(dip.startswith("Qwen3-0.6B") and dip.endswith("noise; kept") for dip in dips)
    else:
        assert dips == []
    imported = any(model.extend for model in loaded.profile.models)
    for warning in build_system(loaded, 4).warnings[len(dips) :]:
        if not warning.startswith(("contention is unknown", "overhead is unknown")):
            assert imported
            assert warning.endswith("rest on entries that the table marks as extrapolated")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"decode": decode([1, 2], [2400.0, 2900.0])},
            "models[0].decode.latency_ms: 2900 ms is long for a step of m0; microseconds given as "
            "milliseconds?",
        ),
        (
            {"decode": decode([1, 2], [0.049, 0.6])},
            "models[0].decode.latency_ms: 0.049 ms is short for a step of m0; seconds given as "
            "milliseconds?",
        ),
        (
            {"overhead": {"value_ms": 360.0, "provenance": PROVENANCE}},
            "models[0].overhead.value_ms: 360 ms is long for the overhead of m0; microseconds "
            "given as milliseconds?",
        ),
        (
            {"wake": {"value_ms": 1500.0, "provenance": PROVENANCE}},
            "models[0].wake.value_ms: 1500 ms is long for waking m0; microseconds given as "
            "milliseconds?",
        ),
        (
            {"extend": {**decode([1], [[2500.0], [9e4]]), "new_tokens": [1, 4]}},
            "models[0].extend.latency_ms: 2500 ms is long for the shortest step of m0, extend; "
            "microseconds given as milliseconds?",
        ),
        (
            {"handoff": {"latency_ms": 300, "provenance": PROVENANCE}},
            "handoff.latency_ms: 300 ms is long for a handoff; microseconds given as milliseconds?",
        ),
        (
            {"hardware": {"gpu_memory_bytes": 80}},
            "hardware.gpu_memory_bytes: 80 bytes is little for a GPU; gigabytes given as bytes?",
        ),
        (
            {"decode": decode([1, 2, 4], [10.0, 12.0, 9.0])},
            "m0: dip of 25.0 % at batch 4 is too large for measurement noise; kept",
        ),
        (
            {"decode": decode([1, 4, 17], [10.0, 12.0, 19.0])},
            "m0: batches: none listed between 4 and 17; latency is taken as linear there",
        ),
        (
            {"decode": decode([1], [[10.0], [12.0]], context_tokens=[1000, 8000])},
            "m0: contexts: none listed between 1000 and 8000; latency is taken as linear there",
        ),
        (
            {"decode": decode([1, 2], [[10.0, 11.0], [10.0, 9.9]], context_tokens=[1000, 3000])},
            "m0: latency falls by 9.5 % from context 1000 to 3000 at batch 2",
        ),
        (
            {"extend": {**decode([1], [[10.0], [12.0]]), "new_tokens": [1, 64]}},
            "m0, extend: new tokens: none listed between 1 and 64; latency is taken as linear "
            "there",
        ),
    ],
)
def test_one_mistake_is_named(fields, expected):
    assert warnings_of(**fields)[0] == expected


def memory(weight_bytes):
    return {"weight_bytes": weight_bytes, "kv_bytes_per_token": 1, "provenance": PROVENANCE}


def units_of(*models):
    loaded = profile([model(name, **fields) for name, fields in models])
    return [w for w in plausibility_warnings(loaded.profile) if "latency_ms: " in w]


@pytest.mark.parametrize(
    ("name", "latency_ms", "fields", "words"),
    [
        ("small", 1300.0, {"memory": memory(10**9)}, "reads 1 GB of weights on each GPU; micro"),
        ("Qwen3-0.6B", 1300.0, {}, "is long for a step of Qwen3-0.6B that reads 1.2 GB"),
        ("Llama-3.1-70B-Instruct", 0.07, {}, "is short for a step of Llama-3.1-70B-Instruct that"),
        ("large", 0.06, {"memory": memory(10**11), "tensor_parallel": 4}, "reads 25 GB of weigh"),
        ("large", 6.0, {"memory": memory(10**11), "tensor_parallel": 4}, None),
        ("Qwen3-0.6B", 60.0, {}, None),
        ("x8Bit", 1300.0, {}, None),
        ("gpt-oss-0B", 1300.0, {}, None),
        ("DeepSeek-671B", 1.2, {"tensor_parallel": 4}, None),  # a mixture of experts
        ("Qwen3-32B", 700.0, {}, None),  # on the processors of a server
    ],
)
def test_a_step_takes_about_as_long_as_reading_the_weights(name, latency_ms, fields, words):
    found = units_of((name, {"decode": decode([1], [latency_ms]), **fields}))
    assert len(found) == (words is not None)
    assert words is None or words in found[0]


def test_models_of_a_profile_are_compared_by_their_weights():
    def pair(small_ms, large_ms):
        return units_of(
            ("A-0.5B", {"decode": decode([1], [small_ms])}),
            ("A-70B", {"decode": decode([1], [large_ms])}),
        )

    assert pair(2.0, 60.0) == []
    (warning,) = pair(90.0, 1.0)
    assert warning.startswith(
        "models[0].decode.latency_ms: for its weights a step of A-0.5B takes 12600 times as long "
        "as one of A-70B (models[1]);"
    )
    (alone,) = pair(2000.0, 60.0)  # named by its own weights already
    assert "microseconds given as milliseconds?" in alone


def test_the_unit_asked_about_is_that_which_was_read():
    slow = profile([model("m0", decode=decode([1], [5000.0]))]).profile
    (warning,) = plausibility_warnings(slow, read_in="seconds")
    assert warning.endswith("milliseconds given as seconds?")


def test_what_is_no_mistake():
    assert warnings_of(decode=decode([1, 4, 16], [10.0, 12.0, 19.0])) == []
    assert warnings_of(decode=decode([1, 1024], [10.0, 10.0])) == []
    assert warnings_of(decode=decode([1, 2], [10.0, 9.8])) == []  # noise: smoothed, told there
    assert warnings_of(extend={**decode([1], [[10.0], [9e4]]), "new_tokens": [1, 4]}) == []
    assert warnings_of(decode=decode([1], [[10.0], [9.9]], context_tokens=[500, 1000])) == []
    assert warnings_of(hardware={"gpu_memory_bytes": 80 * 10**9}) == []


def test_a_system_is_warned_about_its_own_models_only():
    slow = model("m1", decode=decode([1], [5000.0]))
    loaded = profile([model("m0"), slow], routing=routing([[1.0]]))
    assert len(plausibility_warnings(loaded.profile)) == 1
    assert plausibility_warnings(loaded.profile, ["m0"]) == []
    assert build_system(loaded, 1).warnings == ()


def test_a_refusal_comes_with_the_doubts_that_explain_it():
    seconds = profile([model("m0", decode=decode([1], [0.025]))], routing=routing([[1.0]]))
    with pytest.raises(InputError) as caught:
        build_system(seconds, 1)
    assert "vanishes on a grid" in caught.value.problems[0]
    assert "seconds given as milliseconds?" in caught.value.problems[1]
