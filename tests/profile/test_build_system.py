"""From a profile to a system: interpolation, overheads, routings, bounds and refusals."""

import json

import numpy as np
import profile_making as making
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trmodel.errors import InputError, UsageError
from trmodel.profile import Profile, build_system, decode_latency, load_profile
from trmodel.routing import Routing

A100_SMALL = {1: 2.4, 2: 2.9, 4: 3.4, 8: 5.0, 16: 7.3, 32: 9.7}
A100_LARGE = {1: 25.25, 2: 25.25, 4: 25.7, 8: 27.5, 16: 31.5, 32: 38.1}


def edited(name: str, edit) -> Profile:
    data = load_profile(name).profile.model_dump(mode="json", by_alias=True)
    edit(data)
    return Profile.model_validate(data)


tables = st.lists(st.tuples(st.integers(1, 20), st.floats(0.1, 100.0)), min_size=1, max_size=6).map(
    lambda pairs: (
        [1, *np.cumsum([gap for gap, _ in pairs[1:]], dtype=int) + 1],
        [latency for _, latency in pairs],
    )
)


@given(tables)
def test_interpolation_meets_the_table_and_stays_between_its_entries(table):
    batches, latency_ms = table
    assert decode_latency(batches, latency_ms, batches) == pytest.approx(latency_ms, rel=1e-12)
    for a, b, low, high in zip(batches, batches[1:], latency_ms, latency_ms[1:], strict=False):
        middle = decode_latency(batches, latency_ms, (a + b) / 2)
        assert middle == pytest.approx((low + high) / 2, rel=1e-9)


def test_interpolation_keeps_the_shape_and_takes_no_sizes():
    assert decode_latency([1, 3], [1.0, 3.0], [[1, 2], [3, 1]]).tolist() == [[1, 2], [3, 1]]
    assert decode_latency([1, 3], [1.0, 3.0], []).shape == (0,)


def test_no_extrapolation():
    with pytest.raises(InputError, match=r"f: m has latencies for batches up to 3, but batches "
                       r"of 4 can form; add larger batches, lower N, .*--max-batch 3"):  # fmt: skip
        decode_latency([1, 3], [1.0, 3.0], [2, 4], where="f", model="m")
    with pytest.raises(InputError, match="no latency for a batch of 0"):
        decode_latency([1, 3], [1.0, 3.0], 0)


def test_a100_is_the_imported_forward_pass_with_fitted_overheads_and_slow_downs():
    fitted, imported = load_profile("a100").profile, load_profile("a100-imported").profile
    system = build_system(load_profile("a100"), 32, context=2048)
    assert system.models == ("Qwen3-0.6B", "Qwen3-32B")
    forward = {model.name: model.decode for model in imported.models}
    for i, model in enumerate(fitted.models):
        assert model.decode == forward[model.name]
        at_2048 = forward[model.name].latency_ms[2]
        for b, latency in zip(model.decode.batch[:6], at_2048, strict=False):
            expected = latency + model.overhead.value_ms
            assert system.latency_ms[i, b - 1] == pytest.approx(expected)
    (slow_down,) = fitted.slow_downs
    assert system.slow_down[3].tolist() == list(slow_down.factors)
    assert slow_down.provenance.method == "fitted"
    assert (system.slow_down[:3] == 1.0).all()
    assert system.transition_probability.tolist() == [[0.65, 0.35], [1, 0]]
    assert system.committed_tokens.tolist() == [[1, 0], [1, 0]]
    assert (system.entry, system.max_batch, system.grid_ms) == (0, (32, 32), 0.1)
    assert system.warnings == ()


def test_forward_passes_at_2048_tokens_are_those_expected_of_the_source():
    """Figures given for A100 and SGLang 0.5.10; interpolating one matrix moves 0.8 ms."""
    models = {model.name: model.decode for model in load_profile("a100").profile.models}
    for name, expected, within in (
        ("Qwen3-0.6B", A100_SMALL, 0.15),
        ("Qwen3-32B", A100_LARGE, 0.8),
    ):
        row = dict(zip(models[name].batch, models[name].latency_ms[2], strict=True))
        for b, latency in expected.items():
            assert row[b] == pytest.approx(latency, abs=within)


def test_constant_profiles_do_not_depend_on_the_batch():
    paper = build_system(load_profile("a100-paper"), 1000)
    assert (paper.latency_ms == [[6.0], [27.9]]).all()
    three = build_system(load_profile("a100-ensemble"), 3)
    assert (three.latency_ms == [[6.0], [12.0], [27.9]]).all()
    assert three.transition_probability.tolist() == [[0.5, 0.3, 0.2]] * 3


def test_larger_batches_than_the_tables_list_every_model():
    with pytest.raises(InputError) as caught:
        build_system(load_profile("a100"), 512)
    first, second = caught.value.problems
    assert first.startswith("built-in a100: models[0].decode.batch: Qwen3-0.6B has latencies")
    assert second.startswith("built-in a100: models[1].decode.batch: Qwen3-32B has latencies")
    system = build_system(load_profile("a100"), 512, max_batch=32)
    assert system.max_batch == (32, 32)
    assert system.N == 512


def test_the_smaller_bound_on_the_batch_counts():
    def bound(data):
        data["models"][1]["max_batch"] = 6

    loaded = load_profile(edited("a100", bound))
    assert build_system(loaded, 8).max_batch == (8, 6)
    assert build_system(loaded, 4).max_batch == (4, 4)
    assert build_system(loaded, 8, max_batch=3).max_batch == (3, 3)
    assert build_system(loaded, 8, max_batch=7).max_batch == (7, 6)


def test_a_routing_chooses_and_orders_the_models_of_a_larger_profile(tmp_path):
    loaded = load_profile("a100-ensemble")
    path = tmp_path / "mine.json"
    data = {
        "schema": "trmodel/routing",
        "schema_version": 1,
        "name": "mine",
        "models": ["Qwen3-32B", "Qwen3-8B"],
        "transition_probability": [[0, 1], [0.1, 0.9]],
        "committed_tokens": [[0, 1], [0, 1]],
        "entry": "Qwen3-8B",
        "source": "test",
    }
    path.write_text(json.dumps(data))
    by_path = build_system(loaded, 2, path)
    by_object = build_system(loaded, 2, Routing.model_validate(data))
    for system in (by_path, build_system(loaded, 2, str(path)), by_object):
        assert system.models == ("Qwen3-32B", "Qwen3-8B")
        assert system.latency_ms[:, 0].tolist() == [27.9, 12.0]
        assert system.entry == 1
    assert build_system(loaded, 2, "citer").models == ("Qwen3-0.6B", "Qwen3-32B")


def test_a_preset_for_other_models_is_applied_with_a_warning():
    system = build_system(load_profile("a100"), 2, "r2r-r1")
    assert system.models == ("Qwen3-0.6B", "Qwen3-32B")
    assert system.transition_probability[0].tolist() == [0.87, 0.13]
    (warning,) = system.warnings
    assert warning.startswith("routing r2r-r1 was published for R1-Distill-Qwen-1.5B")


def test_routings_that_cannot_be_applied():
    loaded = load_profile("a100")
    with pytest.raises(InputError, match="Qwen3-8B not in the profile"):
        build_system(loaded, 2, "ensemble")
    with pytest.raises(InputError, match="no built-in routing; did you mean citer"):
        build_system(loaded, 2, "cite")
    bare = load_profile(edited("a100", lambda data: data.update(routing=None)))
    with pytest.raises(InputError, match=r"routing: the profile has no default; choose one"):
        build_system(bare, 2)
    assert build_system(bare, 2, "r2r").M == 2


def test_the_default_routing_is_the_preset_whatever_lies_around(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r2r").write_text("not a routing")
    assert build_system(load_profile("a100"), 2).M == 2


def test_p_and_grid_override():
    loaded = load_profile("a100")
    system = build_system(loaded, 4, p=0.2, grid_ms=0.5)
    assert system.transition_probability.tolist() == [[0.8, 0.2], [1, 0]]
    assert system.grid_ms == 0.5
    assert build_system(loaded, 4, "r2r-r1", p=0.2).warnings
    with pytest.raises(UsageError, match="two models"):
        build_system(load_profile("a100-ensemble"), 4, p=0.2)
    with pytest.raises(UsageError, match="between 0 and 1"):
        build_system(loaded, 4, p=1.5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"N": 0}, "N: must be a whole number"),
        ({"N": 10**6}, "N: must be a whole number"),
        ({"N": 2, "max_batch": 0}, "max_batch: "),
        ({"N": 2, "grid_ms": 0.0}, "grid_ms: "),
        ({"N": 2, "grid_ms": float("nan")}, "grid_ms: "),
    ],
)
def test_arguments_that_make_no_sense(arguments, words):
    with pytest.raises(UsageError, match=words):
        build_system(load_profile("a100"), **arguments)


def test_a_latency_that_vanishes_on_the_grid_is_refused():
    with pytest.raises(InputError) as caught:
        build_system(load_profile("a100"), 2, grid_ms=100)
    first, second = caught.value.problems  # once for each model
    assert first.startswith("Qwen3-0.6B: a step of 5.3857 ms vanishes on a grid of 100 ms; use a ")
    assert second.startswith("Qwen3-32B: ")


def test_waking_follows_the_model_by_name(tmp_path):
    """A profile with it is written and read again; the routing has another order of models."""
    woken = {"value_ms": 1.25, "provenance": making.PROVENANCE}
    swapped = making.routing([[0, 1], [1, 0]])
    swapped["models"] = swapped["models"][::-1]
    models = [making.model("m0", wake=woken), making.model("m1")]
    loaded = making.profile(models, routing=swapped)
    path = tmp_path / "woken.json"
    path.write_text(loaded.profile.model_dump_json(by_alias=True))
    again = load_profile(path)
    assert again.profile == loaded.profile
    assert build_system(again, 2).models == ("m1", "m0")
    assert build_system(again, 2).wake_ms.tolist() == [0.0, 1.25]
