"""Measuring the executor: five points against the model, step times, figures from counts."""

import os
from dataclasses import replace

import numpy as np
import pytest
from calm import as_predicted, held_up, measure_calmly

from trmodel.errors import InfeasibleError, InputError, TrmodelError
from trmodel.launch import is_live
from trmodel.profile import Wake, build_system, load_profile
from trmodel.routing import load_routing
from trmodel.runtime.bench.loop import PROMPT
from trmodel.runtime.bench.point import difference, measure_point, vectors_up_to
from trmodel.runtime.bench.results import append_point, read_points
from trmodel.runtime.bench.running import running
from trmodel.runtime.bench.steps import measure_steps, settings, sizes_up_to
from trmodel.runtime.bench.validate import (
    _ranking,
    realised,
    run_context,
    validate,
    with_own_latencies,
)
from trmodel.runtime.bench.validation import ValidatedPoint
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.counters import Counters, quantile_s, summary
from trmodel.runtime.messages import Sampling
from trmodel.runtime.request import Batch, Request

FIVE = [(4, (1, 1)), (4, (1, 3)), (8, (1, 1)), (8, (1, 5)), (8, (1, 8))]
SECONDS = 4.0


@pytest.fixture(scope="module")
def measured():
    """The executor's own latencies, and five points, from one server."""
    config = ServerConfig(profile="a100-paper", max_live=8)
    with running(config) as target:
        steps = measure_steps(target, 8, sizes=[1, 8], seconds=1.0, warm_up=0.5)
        points = [
            measure_calmly(target, N, B, seconds=SECONDS, warm_up=1.0, record=True) for N, B in FIVE
        ]
    return steps, points


def test_five_points_are_as_predicted(measured):
    """From the latencies of each run, so that a loaded machine is not the model's fault."""
    steps, points = measured
    loaded = load_profile(steps.profile(load_profile("a100-paper").profile, "own", "test", None))
    found = validate(points, loaded)
    assert {point.method for point in found.points} == {"simulation"}
    in_order = sorted(points, key=lambda point: (point["N"], point["B"]))
    for point, each in zip(in_order, found.points, strict=True):
        assert as_predicted(point, each, within=0.03 + each.interval_percent / 100.0), each
    most = 3.0 + 100.0 * max(map(held_up, points))
    assert np.mean([abs(each.own_error_percent) for each in found.points]) < most
    # The control: a large model that is a quarter slower would be noticed.
    slow = [
        {
            **point,
            "per_model": [point["per_model"][0], _slower(point["per_model"][1])],
        }
        for point in points
    ]
    errors = [each.own_error_percent for each in validate(slow, loaded).points]
    assert np.mean(errors) < np.mean([each.own_error_percent for each in found.points]) - 6.0


def test_a_run_has_its_waking_in_its_own_steps():
    system = replace(build_system(load_profile("a100-paper"), 2), wake_ms=[1.0, 2.0])
    silent = {"steps": {"1": {"count": 5, "mean_ms": 7.5}}, "route_ms": 0.1, "arrivals": []}
    own = with_own_latencies(system, {"per_model": [silent, silent]})
    assert own.latency_ms.tolist() == [[7.5, 7.5]] * 2
    assert not own.wake_ms.any()


@pytest.mark.parametrize(
    ("p", "best", "also", "regret"),
    [(0.35, (1, 5), (), 0.0), (0.0, (1, 1), ((1, 3), (1, 5)), 10.0)],
)
def test_of_thresholds_that_a_prediction_cannot_tell_apart_the_smallest_are_its_best(
    p, best, also, regret
):
    """Without handovers the large model never runs, and its threshold does not matter."""
    system = build_system(load_profile("a100-paper"), 8, p=p)
    points = [
        ValidatedPoint(8, B, tok_s, 1.0, 200.0, 0.0, 0.0, "chain", None)
        for B, tok_s in [((1, 5), 100.0), ((1, 3), 90.0), ((1, 1), 90.0)]
    ]
    found = _ranking(system, points)
    assert (found.best_predicted, found.also_predicted) == (best, also)
    assert found.best_measured == (1, 5)
    assert found.regret_percent == pytest.approx(regret)


def _slower(model):
    """The same steps, a quarter longer."""
    steps = {
        size: held | {"mean_ms": 1.25 * held["mean_ms"]} for size, held in model["steps"].items()
    }
    return model | {"steps": steps}


def test_figures_of_a_point_agree_with_each_other(measured):
    for point in measured[1]:
        N, B = point["N"], point["B"]
        assert point["throughput_tok_s"] == pytest.approx(point["committed_tok_s"], rel=0.1)
        low, high = point["throughput_interval_tok_s"]
        assert low < point["throughput_tok_s"] < high
        # Per request a token comes every N / T.
        assert point["inter_token_ms"]["mean"] == pytest.approx(
            1000.0 * N / point["throughput_tok_s"], rel=0.1
        )
        ledger = point["ledger"]
        parts = sum(value for part, value in ledger.items() if part != "total_ms")
        assert parts == pytest.approx(ledger["total_ms"])
        assert ledger["forward_ms"] > 0.5 * ledger["total_ms"]
        # The large model reads what the small one wrote; the small one decodes at most times.
        assert 0.1 < point["extend_ms"] / ledger["forward_ms"] < 0.9
        # What is left for handoffs is what the receivers' clocks say.
        lag_ms = sum(
            came["count"] * came["mean_ms"]
            for model in point["per_model"]
            for came in model["arrivals"]
            if came["count"]
        )
        handed = lag_ms / (point["committed_tok_s"] * point["per_model"][0]["counted_s"])
        most = 1.0 + held_up(point) * ledger["total_ms"]
        assert ledger["handoff_ms"] + ledger["route_ms"] == pytest.approx(handed, abs=most)
        for i, model in enumerate(point["per_model"]):
            assert min(map(int, model["batches"])) >= B[i]
            assert sum(model["transitions"]) == sum(
                int(size) * count for size, count in model["batches"].items()
            )
        times = [t for reply in point["replies"] for t, _ in reply["came_s"]]
        came = [t for t in times if 0.0 <= t < point["seconds"]]
        assert len(came) == pytest.approx(point["tokens"], abs=2)


def test_the_measured_profile_tunes(measured):
    steps, _ = measured
    like = load_profile("a100-paper").profile
    wake = Wake(value_ms=5.0, provenance=like.models[0].decode.provenance)
    waking = [model.model_copy(update={"wake": wake}) for model in like.models]
    like = like.model_copy(update={"models": tuple(waking)})
    profile = steps.profile(like, "own", "test", None)
    assert [model.wake for model in profile.models] == [None, None], "it is in the whole steps"
    small, large = (model.decode for model in profile.models)
    # The engine waits for 6.0 and 27.9 ms; the rest is the executor's, or a busy machine's.
    assert 6.0 < small.latency_ms[0] < 8.0
    assert 27.9 < large.latency_ms[0] < 31.0
    assert large.batch[-1] == 8
    assert "standard deviation" in large.provenance.note
    assert 0.05 < profile.handoff.latency_ms < 5.0
    system = build_system(load_profile(profile), 8)
    assert system.handoffs_ms.max() > 0.0
    with pytest.raises(InputError, match="not in the profile"):
        steps.profile(load_profile("a100-ensemble").profile, "own", "test", None)


def test_points_say_their_context_and_are_predicted_at_it(measured):
    point = measured[1][0]
    tokens = run_context(point)
    made = point["committed_tok_s"] * (point["warm_up_s"] + point["seconds"]) / point["N"]
    assert len(PROMPT) < tokens < len(PROMPT) + 1.2 * made
    a100 = load_profile("a100")
    found, same, longer = (
        validate([point], a100, p=0.35, method="chain", context=context).points[0].predicted_tok_s
        for context in ("run", tokens, 8192)
    )
    assert found == same > longer
    silent = point | {
        "per_model": [
            {key: value for key, value in model.items() if key != "mean_context_tokens"}
            for model in point["per_model"]
        ]
    }
    with pytest.raises(InputError, match="which context"):
        validate([silent], a100, context="run")


def test_frequencies_of_a_run_are_those_of_a_routing_without_phases(measured):
    point = measured[1][0]
    routing = realised(load_routing("r2r"), point)
    went = np.array(point["per_model"][0]["transitions"])
    assert routing.transition_probability[0] == pytest.approx(went / went.sum())
    assert routing.committed_tokens == ((1.0, 0.0), (1.0, 0.0))
    phased = load_routing("glimprouter")
    assert realised(phased, point) is phased


def test_every_size_is_run_for_every_model():
    assert sizes_up_to(12) == [1, 2, 4, 8, 12]
    assert settings([1, 4], 2) == [(1, (1, 1)), (4, (1, 1)), (4, (4, 1)), (4, (1, 4))]


@pytest.mark.parametrize(("B", "N"), [((1, 8), 8), ((3, 4), 8), ((2, 2, 3), 6)])
def test_the_table_of_a_point_is_live_below(B, N):
    table = vectors_up_to(B, N)
    assert table[-1] == B
    assert all(is_live(row, n) for n, row in enumerate(table, start=1))


def test_thresholds_that_can_deadlock_are_refused():
    with pytest.raises(InfeasibleError, match="deadlock"):
        vectors_up_to((4, 5), 7)


def test_differences_of_totals():
    before = {"a": [1, {"x": 2}], "b": 1.5}
    after = {"a": [4, {"x": 2, "y": 7}], "b": 2.0, "c": [1]}
    assert difference(before, after) == {"a": [3, {"x": 0, "y": 7}], "b": 0.5, "c": [1]}


def test_quantiles_and_means_leave_stalls_out():
    counters = Counters(2)
    batch = Batch(0, [], 0.0, [])
    for k in range(100):
        counters.stepped(replace(batch), 0.0, 0.006 + 1e-5 * k)
    counters.stepped(replace(batch), 0.0, 0.5)
    bins = counters.step_bins[0]
    assert quantile_s(bins, 0.5) == pytest.approx(0.0065, rel=0.003)
    found = summary(bins, 2.0)
    assert (found["count"], found["left_out"]) == (100, 1)
    assert found["mean_ms"] == pytest.approx(6.495, rel=0.001)
    assert found["median_ms"] == pytest.approx(6.495, rel=0.003)
    assert found["deviation_ms"] == pytest.approx(0.289, rel=0.02)
    assert summary({}, 2.0)["count"] == 0
    assert np.isnan(quantile_s({}, 0.5))


def test_extends_are_a_part_of_forward():
    counters = Counters(1)
    for unseen, took_s in ((1, 1.0), (3, 2.0), (1, 4.0)):
        read = 5 - unseen
        requests = [
            Request(n, [65] * 5, 5, Sampling(), 0, 0, [0], anchor=anchor)
            for n, anchor in enumerate((read, 4))
        ]
        batch = Batch(0, requests, 10.0, [0.0, 0.0])
        counters.started(batch)
        counters.stepped(batch, 10.0 + took_s, 20.0)
    assert counters.forward_s == pytest.approx(14.0)
    assert counters.extend_s == pytest.approx(4.0)
    assert counters.extended == 2


def test_results_survive_a_killed_run(tmp_path):
    file = tmp_path / "results.jsonl"
    point = {
        "schema": "trmodel/measured-point",
        **dict.fromkeys(("N", "B", "models", "per_model"), 1),
        "throughput_tok_s": 1.0,
        "throughput_interval_tok_s": [1.0, 1.0],
    }
    append_point(file, point)
    with file.open("a") as unfinished:
        unfinished.write('{"schema": "trmodel/measu')
    assert read_points(file) == [point]
    append_point(file, point)
    assert read_points(file) == [point, point]
    file.write_text('{"broken"\n' + file.read_text())
    with pytest.raises(InputError, match="line 1"):
        read_points(file)
    with pytest.raises(InputError, match="cannot be written"):
        append_point(tmp_path / "none" / "file", point)


ASTRAY = """
from trmodel.runtime.policies import Policy


class Astray(Policy):
    def route(self, batch, result):
        return [7] * len(batch)
"""


def test_a_server_that_fails_ends_the_measurement(tmp_path, monkeypatch):
    (tmp_path / "astray_policy.py").write_text(ASTRAY)
    monkeypatch.syspath_prepend(tmp_path)
    path = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), path])))
    config = ServerConfig(profile="a100-paper", max_live=2, policy="astray_policy:Astray")
    with (
        running(config) as target,
        pytest.raises(TrmodelError, match=r"a reply failed: .* no model 7"),
    ):
        measure_point(target, 1, (1, 1), seconds=30.0)
