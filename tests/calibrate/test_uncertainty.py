import json

import numpy as np
import pytest

from trmodel.calibrate import gain_drivers, grid_check, uncertainty
from trmodel.calibrate.drivers import halved_hand_over
from trmodel.calibrate.spreads import Spreads, drawn_systems
from trmodel.errors import InfeasibleError, LimitError, UsageError
from trmodel.markov import Limits, solve_chain
from trmodel.profile import build_system, load_profile
from trmodel.routing import glimprouter
from trmodel.system import RoutedSystem

TWO = dict(
    models=["small", "large"],
    latency_ms=[[5.4, 5.9, 6.4, 6.6], [25.5, 25.5, 25.9, 26.3]],
    transition_probability=[[0.65, 0.35], [1.0, 0.0]],
    committed_tokens=[[1, 0], [1, 0]],
    N=4,
    slow_down={(0, 1): (1.5, 1.25)},
)
NOTHING = dict(p_percent=0.0, latency_percent=0.0, slow_down_percent=0.0)


def two(**changes) -> RoutedSystem:
    return RoutedSystem(**TWO | changes)


def test_without_spread_every_sample_is_the_nominal_system():
    result = uncertainty(two(), samples=3, **NOTHING)
    for c in result.candidates:
        assert c.low_tok_s == pytest.approx(c.nominal_tok_s, rel=1e-12)
        assert c.high_tok_s == pytest.approx(c.nominal_tok_s, rel=1e-12)
    assert result.candidates[0].probability_best == 1.0
    assert result.candidates[0].regret_percent == 0.0


def test_the_same_seed_gives_the_same_answer_and_candidates_share_the_samples():
    first = uncertainty(two(), samples=20, seed=5)
    assert first.to_dict() == uncertainty(two(), samples=20, seed=5).to_dict()
    assert first.to_dict() != uncertainty(two(), samples=20, seed=6).to_dict()
    alone = uncertainty(two(), [(1, 3)], samples=20, seed=5)
    assert alone.of((1, 3)).mean_tok_s == pytest.approx(first.of((1, 3)).mean_tok_s, rel=1e-12)
    assert sum(c.probability_best for c in first.candidates) == pytest.approx(1.0)
    json.dumps(first.to_dict())
    assert "loses least on average" in first.summary()


def test_a_factor_on_all_latencies_spreads_throughput_as_much():
    system = RoutedSystem(["m"], [30.0], [[1.0]], [[1]], 2)
    result = uncertainty(system, samples=400, latency_percent=5.0)
    spread = np.std(np.log(result.throughput_tok_s[:, 0]))
    assert spread == pytest.approx(0.05, rel=0.1)
    assert result.of((1,)).low_tok_s == pytest.approx(2000 / 30 * np.exp(-1.645 * 0.05), rel=0.01)


def test_draws_have_the_stated_spreads():
    systems = drawn_systems(two(), Spreads(), 2000, 1)
    p = np.array([s.transition_probability[0, 1] for s in systems])
    assert np.median(p) == pytest.approx(0.35, rel=0.01)
    assert np.std(p) / np.mean(p) == pytest.approx(0.10, rel=0.08)
    assert all(s.transition_probability[1, 0] == 1.0 for s in systems[:50])
    factor = np.array([s.latency_ms[:, 0] / [5.4, 25.5] for s in systems])
    assert np.std(np.log(factor), axis=0) == pytest.approx([0.03, 0.03], rel=0.08)
    assert abs(np.corrcoef(factor.T)[0, 1]) < 0.1
    slow = np.array([s.slow_down[3] for s in systems])
    assert slow.min() >= 1.0
    assert np.std(np.log(slow[:, 0])) == pytest.approx(0.10, rel=0.08)
    apart = drawn_systems(two(slow_down=None), Spreads(), 5, 1)
    assert all(np.all(s.slow_down == 1.0) for s in apart)


def test_an_interval_of_p_holds_95_percent_of_the_draws():
    systems = drawn_systems(two(), Spreads(p_interval=(0.25, 0.5)), 2000, 1)
    p = np.array([s.transition_probability[0, 1] for s in systems])
    assert np.mean((p > 0.25) & (p < 0.5)) == pytest.approx(0.95, abs=0.015)


def test_rows_of_three_models_stay_distributions_with_the_stated_spread():
    P = [[0.5, 0.3, 0.2], [0.0, 0.6, 0.4], [0.7, 0.3, 0.0]]
    system = RoutedSystem(["a", "b", "c"], [6.0, 12.0, 28.0], P, np.ones((3, 3)), 3)
    systems = drawn_systems(system, Spreads(p_percent=10), 2000, 3)
    drawn = np.array([s.transition_probability for s in systems])
    assert drawn.sum(axis=2) == pytest.approx(1.0)
    assert np.all(drawn[:, [1, 2], [0, 2]] == 0.0)
    assert np.std(drawn[:, 0, 1]) / 0.3 == pytest.approx(0.10, rel=0.2)
    assert np.std(drawn[:, 0, 2]) / 0.2 == pytest.approx(0.10, rel=0.2)


def test_a_larger_doubt_gives_a_wider_interval_and_a_less_certain_choice():
    narrow = uncertainty(two(), samples=60, p_percent=2, latency_percent=1, slow_down_percent=1)
    wide = uncertainty(two(), samples=60, p_percent=20, latency_percent=6, slow_down_percent=20)
    B = narrow.candidates[0].B
    width = [r.of(B).high_tok_s - r.of(B).low_tok_s for r in (narrow, wide)]
    assert width[1] > 3 * width[0]
    assert narrow.candidates[0].probability_best >= wide.candidates[0].probability_best


def test_draws_of_a_fit_take_the_place_of_default_spreads(paper_fit):
    loaded = load_profile(paper_fit.to_profile("fitted"))
    result = uncertainty(build_system(loaded, 4), samples=40, fit=paper_fit, p_percent=0.0)
    assert result.spreads.latency_percent == 0.0
    # The ten points hold the model to about 4 %, far closer than each parameter alone.
    best = result.candidates[0]
    assert 0.02 < (best.high_tok_s - best.low_tok_s) / best.mean_tok_s < 0.2
    with pytest.raises(UsageError, match="the system has small, large"):
        uncertainty(two(), samples=2, fit=paper_fit)


def test_eight_requests_are_quick_and_default_candidates_follow_the_rule(paper_fit):
    system = build_system(load_profile(paper_fit.to_profile("fitted")), 8)
    seen: list[tuple[int, int]] = []
    result = uncertainty(system, samples=30, progress=lambda *at: seen.append(at))
    assert seen[-1] == (30, 30)
    floor = 0.97 * max(c.nominal_tok_s for c in result.candidates)
    assert all(c.nominal_tok_s >= floor for c in result.candidates if c.B != (1, 1))
    assert "within 3 % of the best" in result.rule
    assert result.of((1, 1)).gain_high_percent == 0.0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (dict(samples=1), UsageError),
        (dict(samples=10_001), UsageError),
        (dict(deadline=0.0), LimitError),
        (dict(p_percent=-1), UsageError),
        (dict(latency_percent=101), UsageError),
        (dict(p_interval=(0.5, 0.4)), UsageError),
        (dict(candidates=[(1, 2, 3)]), UsageError),
        (dict(candidates=[(3, 3)]), InfeasibleError),
    ],
)
def test_arguments_are_checked(arguments, error):
    with pytest.raises(error):
        uncertainty(two(), **arguments)


def test_the_grid_check_states_the_shift_to_finer_grids():
    check = grid_check(two(), (1, 1), halvings=3)
    assert [step.grid_ms for step in check.steps] == [0.1, 0.05, 0.025, 0.0125]
    values = [
        solve_chain(two(grid_ms=step.grid_ms), (1, 1)).throughput_tok_s for step in check.steps
    ]
    assert [step.throughput_tok_s for step in check.steps] == values
    assert check.shift_percent == pytest.approx(100 * (values[0] / values[-1] - 1))
    assert abs(check.shift_percent) <= check.error_percent < 1.0
    assert "stated error" in check.summary()
    assert json.dumps(check.to_dict())


def test_on_latencies_that_are_on_the_grid_nothing_shifts_without_contention():
    check = grid_check(two(slow_down=None), (1, 3))
    assert check.error_percent == pytest.approx(0.0, abs=1e-9)


def test_the_grid_check_stops_at_the_limit_and_says_so():
    states = solve_chain(two(), (1, 1)).states
    check = grid_check(two(), (1, 1), limits=Limits(states=int(states * 1.2)))
    assert len(check.steps) == 1
    assert check.shift_percent is None
    assert "outgrows the limit" in check.summary()
    with pytest.raises(LimitError):
        grid_check(two(), (1, 1), limits=Limits(states=5))


def test_drivers_are_the_gains_with_one_property_switched_off():
    drivers = {d.name: d for d in gain_drivers(two(), (1, 3))}
    assert set(drivers) == {"routing", "batch growth", "contention"}

    def gain(system):
        T = [solve_chain(system, B).throughput_tok_s for B in ((1, 3), (1, 1))]
        return 100 * (T[0] / T[1] - 1)

    assert drivers["routing"].gain_percent == pytest.approx(gain(two()))
    assert drivers["routing"].gain_without_percent == pytest.approx(gain(two().with_p(0.175)))
    assert drivers["contention"].gain_without_percent == pytest.approx(gain(two(slow_down=None)))
    constant = two(latency_ms=[5.4, 25.5])
    assert drivers["batch growth"].gain_without_percent == pytest.approx(gain(constant))
    waking = two(wake_ms=[1.0, 3.0])
    drivers = {d.name: d for d in gain_drivers(waking, (1, 3))}
    assert drivers["waking"].gain_percent == pytest.approx(gain(waking))
    assert drivers["waking"].gain_without_percent == pytest.approx(gain(two()))
    listed = gain_drivers(two(), (1, 3))
    assert [abs(d.effect_points) for d in listed] == sorted(
        (abs(d.effect_points) for d in listed), reverse=True
    )


def test_what_is_not_there_hardly_matters_but_contention_is_unknown_and_eager_has_no_gain():
    plain = two(latency_ms=[6.0, 27.9], slow_down=None)
    readings = {d.name: d.reading for d in gain_drivers(plain, (1, 3))}
    assert readings["contention"].startswith("contention: no slow-downs in this profile")
    assert "hardly matters" in readings["batch growth"]
    with pytest.raises(UsageError, match="no gain to explain"):
        gain_drivers(plain, (1, 1))


def test_halving_hand_overs_keeps_rows_distributions():
    P = [[0.0, 0.6, 0.4], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]
    system = RoutedSystem(["a", "b", "c"], [6.0, 12.0, 28.0], P, np.ones((3, 3)), 2)
    assert halved_hand_over(system).tolist() == [[0.5, 0.3, 0.2], P[1], P[2]]


def test_phases_are_drawn_and_their_hand_overs_halved():
    system = build_system(load_profile("a100-paper"), 2, glimprouter(hand_over=0.4, step_tokens=4))
    assert halved_hand_over(system) == pytest.approx(
        np.array([[0.0, 0.8, 0.2], [0.25, 0.75, 0.0], [0.25, 0.0, 0.75]])
    )
    drawn = drawn_systems(system, Spreads(), 20, seed=0)
    for each in drawn:
        assert (each.phases, each.entry) == (system.phases, system.entry)
        assert ((each.transition_probability > 0) == (system.transition_probability > 0)).all()
    assert len({each.transition_probability[1, 0] for each in drawn}) == 20
    with pytest.raises(UsageError, match="of one phase each, this one has 2 models and 3 phases"):
        drawn_systems(system, Spreads(p_interval=(0.1, 0.5)), 2, seed=0)
