"""Engines measured into a profile: what is timed, what it becomes, nothing counted twice."""

import json
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest

import trmodel
from trmodel.cli.main import main
from trmodel.errors import TrmodelError, UsageError
from trmodel.profile import Profile, build_system, load_profile
from trmodel.routing import load_routing
from trmodel.runtime.bench.engine_document import decode_table, extend_table
from trmodel.runtime.bench.engine_overhead import beyond
from trmodel.runtime.bench.engine_profile import EngineMeasurements, measure_engines
from trmodel.runtime.bench.engine_tables import (
    PAIR_TRIES,
    PASSES,
    Tables,
    Timing,
    batches_up_to,
    choose_grid,
    contexts_up_to,
    time_slow_downs,
    time_tables,
)
from trmodel.runtime.bench.engine_times import GROWTH, Times
from trmodel.runtime.bench.steps import StepMeasurements
from trmodel.runtime.bench.validate import realised
from trmodel.runtime.config import ServerConfig


def test_contexts_reach_the_largest_and_no_two_are_far_apart():
    assert contexts_up_to(2015) == (128, 512, 2015)
    assert contexts_up_to(100) == (100,)
    for most in (64, 130, 1000, 4063, 32_735):
        found = contexts_up_to(most)
        assert found[-1] == most
        assert all(1 < b / a <= 4.0 for a, b in pairwise(found))


def test_a_grid_fits_into_the_room_there_is():
    grid = choose_grid([1, 2, 4], 300)
    assert grid.new_tokens == grid.grown == (2, 4, 8, 32)
    assert grid.contexts[-1] + 2 * max(grid.new_tokens) + GROWTH <= 300
    given = choose_grid([1], 300, [10, 50, 30], [1, 5, 3])
    assert (given.new_tokens, given.middle, given.above) == ((3, 5), 30, 50)
    two = choose_grid([1], 300, [10, 250])
    assert (two.middle, two.above) == (10, 250)
    assert (two.new_tokens, two.grown) == ((2, 4, 8, 32), (2, 4, 8))
    one = choose_grid([1], 300, [10])
    assert (one.middle, one.above, one.grown) == (10, 10, ())
    assert choose_grid([1], 2048, new_tokens=[512]).new_tokens == (512,)
    with pytest.raises(UsageError, match="there is room for 300"):
        choose_grid([1], 300, contexts=[280])
    with pytest.raises(UsageError, match="there is room for 300"):
        choose_grid([1], 300, contexts=[100], new_tokens=[200])
    with pytest.raises(UsageError, match="no room"):
        choose_grid([1], GROWTH)
    assert batches_up_to(1) == (1,)
    assert batches_up_to(8) == (1, 2, 3, 4, 6, 8)
    assert batches_up_to(20) == (1, 2, 3, 4, 6, 8, 12, 16, 20)


def test_stalls_are_left_out_of_a_timing_and_counted():
    steps = [1.0, 2.0, 3.0, 2.0, 50.0]
    timing = Timing.of([Times(steps, [0.5] * 5, [0.9, 1.8, 2.7, 1.8, 49.0])])
    assert (timing.count, timing.left_out) == (4, 1)
    assert timing.mean_ms == timing.median_ms == 2.0
    assert timing.deviation_ms == pytest.approx(np.std(steps[:4]))
    assert timing.device_ms == pytest.approx(1.8)
    assert Timing.of([Times(steps, [0.5] * 5)]).device_ms is None


def test_a_pass_that_was_disturbed_altogether_does_not_count():
    passes = [Times([ms, 1.1 * ms], [0.1] * 2) for ms in (2.0, 40.0, 2.2)]
    timing = Timing.of(passes)
    assert timing.mean_ms == pytest.approx(2.2 * 1.05)
    assert timing.count == 6


class Law:
    """An engine whose steps follow a law, and that slows another one down."""

    busy: "Law | None" = None

    def __init__(self, slowed=1.0):
        self.slowed = slowed

    @staticmethod
    def step_ms(batch, context, new):
        return 5.0 + batch + 0.01 * context * new**0.5 + (2.0 + batch * new if new > 1 else 0.0)

    def time(self, batch, context, new, seconds):
        slow = self.slowed if Law.busy not in (None, self) else 1.0
        return Times([slow * self.step_ms(batch, context, new)] * 5, [0.01] * 5)

    @contextmanager
    def running(self, batch, context, new=1):
        Law.busy = self
        yield
        Law.busy = None


def tables_of(engine, grid, done=lambda: None):
    passes = {}
    time_tables(engine, grid, 0.1, done, passes)
    return Tables.of(grid, passes)


def test_tables_hold_each_step_under_its_batch_context_and_new_tokens():
    grid = choose_grid([1, 2, 4], 2048, contexts=[100, 200, 700], new_tokens=[3, 9])
    done = []
    tables = tables_of(Law(), grid, lambda: done.append(None))
    assert len(set(grid.cells)) == len(grid.cells) == 3 * (3 + 2) + 2
    assert len(done) == PASSES * len(grid.cells)
    decode = decode_table(tables, "here")
    assert decode.contexts == (100, 200, 700)
    expected = [[Law.step_ms(b, c, 1) for b in (1, 2, 4)] for c in (100, 200, 700)]
    assert np.array(decode.rows) == pytest.approx(np.array(expected))
    extend = extend_table(tables, "here")
    assert extend.context_tokens == 200
    assert extend.new_tokens == (1, 3, 9), "a step that reads one token is a decode"
    expected = [[Law.step_ms(b, 200, k) for b in (1, 2, 4)] for k in (1, 3, 9)]
    assert np.array(extend.latency_ms) == pytest.approx(np.array(expected))
    assert extend.context_growth == (1.0, *(pytest.approx(k**0.5, abs=1e-3) for k in (3, 9)))
    one = tables_of(Law(), choose_grid([1], 500, [100], []))
    assert decode_table(one, "here").context_tokens == 100
    assert extend_table(one, "here") is None


def test_growth_with_context_is_between_none_and_that_of_every_token_by_itself():
    grid = choose_grid([1], 500, [50, 100, 200], [2, 4])

    def growth(decode_ms, extend_ms):
        def passes(longer_ms):
            return [Times([7.0 + ms] * 4, [0.1] * 4) for ms in np.broadcast_to(longer_ms, 3)]

        found = {cell: passes(0.0) for cell in grid.cells}
        found[1, 200, 1] = passes(decode_ms)
        found[1, 200, 4] = passes(extend_ms)
        return Tables.of(grid, found).growth

    assert growth(1.0, 2.5)[1] == pytest.approx(2.5)
    assert growth(1.0, 9.0)[1] == 4.0
    assert growth(1.0, -1.0)[1] == 0.0
    assert growth(-0.1, 2.0) == (), "nothing to compare with"
    assert growth([1.0, -0.8, 0.2], 2.0) == (), "no more than chance"
    alone = choose_grid([1], 500, [100], [2, 4])
    assert extend_table(tables_of(Law(), alone), "here").context_growth is None
    some = choose_grid([1], 500, [100, 420], [2, 16, 32])
    assert some.grown == (2, 16)
    extend = extend_table(tables_of(Law(), some), "here")
    assert extend.context_growth == (1.0, *(pytest.approx(k**0.5, abs=1e-3) for k in (2, 16, 16)))
    assert "2, 16 new tokens from context 100 to 420" in extend.provenance.note


def test_slow_downs_are_of_each_model_beside_each_other():
    grid = choose_grid([1, 2], 500, contexts=[100])
    found = {}
    for _ in range(2):
        time_slow_downs([Law(1.25), Law(2.0)], grid, 0.1, lambda: None, found)
    assert {pair: pytest.approx(tries) for pair, tries in found.items()} == {
        (0, 1): [1.25] * 2 * PAIR_TRIES,
        (1, 0): [2.0] * 2 * PAIR_TRIES,
    }


FOR_A_STEP, FOR_A_REQUEST, WHEN_IDLE = (0.5, 2.0), (0.1, 0.03), (1.5, 3.0)
SLOW = (1.2, 1.5)


@pytest.fixture
def bare():
    """A profile of two models with known tables and slow-downs, without overheads."""
    data = load_profile("h100").profile.model_dump(by_alias=True)
    chosen = ("Qwen3-0.6B", "Qwen3-32B")
    data["models"] = [
        model | {"overhead": None} for model in data["models"] if model["name"] in chosen
    ]
    data["slow_downs"] = [
        {
            "models": chosen,
            "factors": SLOW,
            "provenance": {"method": "assumed", "source": "test"},
        }
    ]
    return load_profile(Profile.model_validate(data))


RUNS = [
    (4, [1, 1], (0.3, 0.9), 2048, [[65, 35], [35, 0]]),
    (4, [1, 4], (0.2, 0.7), 1024, [[80, 20], [20, 0]]),
    (1, [1, 1], (0.4, 0.6), 4000, [[60, 40], [40, 0]]),
]
"""N, B, busy shares, context, transitions."""


def planted(loaded, routing, N, B, busy, context, transitions):
    """What a run would tell whose steps take tables, slow-downs and these overheads."""
    point = {
        "N": N,
        "B": B,
        "per_model": [
            {
                "transitions": row,
                "committed": [row[0] * c for c in (1, 0)] if i == 0 else [row[0], 0],
                "mean_context_tokens": context,
                "busy_fraction": busy[i],
                "route_ms": 0.1,
                "arrivals": [{"count": 0}, {"count": 0}],
                "steps": {},
            }
            for i, row in enumerate(transitions)
        ],
    }
    system = build_system(loaded, N, realised(routing, point), context=context)

    def more(i, b):
        idle = idle_starts[b] / 50
        return FOR_A_STEP[i] + b * FOR_A_REQUEST[i] + idle * WHEN_IDLE[i]

    idle_starts = {b: (17 * b * b) % 50 for b in range(1, N + 1)}
    for i, model in enumerate(point["per_model"]):
        model["batches"] = {str(b): 50 for b in range(1, N + 1)}
        model["idle_starts"] = {str(b): count for b, count in idle_starts.items()}
        other = busy[1 - i] if N not in B else 0.0
        slower = 1.0 / (1.0 - other * (1.0 - 1.0 / SLOW[i]))
        model["steps"] = {
            str(b): {
                "count": 50,
                "mean_ms": slower * (system.latency_ms[i, b - 1] + more(i, b)),
            }
            for b in range(1, N + 1)
        }
    return point


def test_what_the_executor_adds_is_found_in_its_whole_steps(bare):
    routing = load_routing("r2r").under_names_of(bare.profile.model_names)
    found = StepMeasurements(bare.profile.model_names)
    for run in RUNS:
        found.add(planted(bare, routing, *run))
    for i, more in enumerate(beyond(found, bare, routing, np.ones((2, 2)))):
        assert more.step_ms == pytest.approx(FOR_A_STEP[i])
        assert more.request_ms == pytest.approx(FOR_A_REQUEST[i])
        assert more.wake_ms == pytest.approx(WHEN_IDLE[i])
        assert more.slow_down[1 - i] == pytest.approx(SLOW[i])
        assert more.slow_down[i] == 1.0
        assert more.left_ms == pytest.approx(0.0, abs=1e-6)
        assert more.settings == 4 + 4 + 1


def test_slow_downs_are_no_less_than_those_of_the_engines_and_nothing_is_negative(bare):
    routing = load_routing("r2r").under_names_of(bare.profile.model_names)
    found = StepMeasurements(bare.profile.model_names)
    found.add(planted(bare, routing, *RUNS[0]))
    engines = np.array([[1.0, 3.0], [1.1, 1.0]])
    small, large = beyond(found, bare, routing, engines)
    assert small.slow_down[1] >= 3.0 - 1e-6
    assert large.slow_down[0] == pytest.approx(SLOW[1], rel=0.2)
    for model in found.points[0]["per_model"]:
        for steps in model["steps"].values():
            steps["mean_ms"] *= 0.3
    for more in beyond(found, bare, routing, np.ones((2, 2))):
        assert min(more.step_ms, more.request_ms, more.wake_ms) >= 0.0
        assert more.mean_ms < 0.0
    found.points[0]["per_model"][1]["steps"] = {}
    with pytest.raises(TrmodelError, match=r"Qwen3-32B: made no step in the executor; measure"):
        beyond(found, bare, routing, np.ones((2, 2)))


def test_the_replay_engine_measured_directly_is_what_it_replays():
    """Its steps are known: 6.0 and 27.9 ms, whatever the context; the rest is the executor's."""
    config = ServerConfig(profile="a100-paper", p=0.3)
    told = []
    profile = measure_engines(
        config,
        2,
        contexts=[64],
        new_tokens=[2],
        seconds=0.75,
        warm_up=0.5,
        rounds=2,
        progress=lambda done, of: told.append((done, of)),
    )
    assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))
    with pytest.raises(UsageError, match="rounds: must be at least 1"):
        measure_engines(config, 2, rounds=0)
    with pytest.raises(UsageError, match="the engines come first"):
        EngineMeasurements(config, 2).profile("too early")
    for model, latency in zip(profile.models, (6.0, 27.9), strict=True):
        # Longer on a machine that is busy with something else, never shorter.
        assert latency <= min(model.decode.latency_ms) < 1.5 * latency
        assert model.extend.new_tokens == (1, 2)
        assert 0.0 <= model.overhead.value_ms < 0.5 * latency
        assert 0.0 <= model.wake.value_ms < 0.5 * latency
        assert "steps" in model.overhead.provenance.note
    assert profile.obtained == "measured"
    assert profile.context_tokens == 64
    assert len(profile.slow_downs) == 1
    assert profile.handoff.latency_ms > 0.0
    assert profile.routing.transition_probability[0] == pytest.approx((0.7, 0.3))
    assert trmodel.tune(profile, N=[2]).row(2).B


def test_what_the_replay_engine_takes_longer_after_being_idle_is_the_wake(tmp_path):
    data = load_profile("a100-paper").profile.model_dump(by_alias=True, mode="json")
    source = {"method": "assumed", "source": "test"}
    for model in data["models"]:
        model["wake"] = {"value_ms": 8.0, "provenance": source}
    (tmp_path / "waking.json").write_text(json.dumps(data))
    config = ServerConfig(profile=str(tmp_path / "waking.json"), p=0.35)
    profile = measure_engines(config, 4, contexts=[64], new_tokens=[2], seconds=1.0, warm_up=0.5)
    for model, latency in zip(profile.models, (6.0, 27.9), strict=True):
        assert min(model.decode.latency_ms) < latency + 4.0, "the engine alone is never idle"
        assert 5.0 < model.wake.value_ms < 11.0


def test_measuring_directly_is_refused_where_it_makes_no_sense(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "replay.yaml").write_text("profile: a100-paper\n")
    (tmp_path / "real.yaml").write_text(
        json.dumps({"engine": "sglang", "models": {"small": {"path": "nowhere"}}})
    )
    for line, why, code in [
        ("--url http://127.0.0.1:9 --engine sglang", "--engine: needs --config", 2),
        ("--config replay.yaml --contexts 64", "only sglang engines are timed directly", 2),
        ("--config replay.yaml --rounds 2", "only sglang engines are timed directly", 2),
        ("--config real.yaml --new-tokens 4 --like a100", "--like: with sglang", 2),
        ("--config replay.yaml --engine sglang", "models: the sglang engine needs them", 4),
        ("--config real.yaml", "nowhere", 4),
    ]:
        assert main(["profile", "measure", *line.split(), "--quiet"]) == code, line
        told = capsys.readouterr().err
        assert why in told, line
        assert "Traceback" not in told
