"""Open arrivals: queues with known answers, and the largest rate that meets objectives."""

import numpy as np
import pytest

import trmodel
from trmodel import RoutedSystem
from trmodel.errors import InfeasibleError, InputError, UsageError
from trmodel.search.arrivals import closed_loop_replies_per_s, largest_rate, simulate_load
from trmodel.search.objectives import parse_objectives
from trmodel.search.threshold_file import load_thresholds
from trmodel.simulate import Options
from trmodel.simulate.lengths import geometric_lengths


def single(N, latency_ms=10.0):
    """One model, one request at a time, a token per step."""
    return RoutedSystem(["only"], [latency_ms], [[1.0]], [[1.0]], N, max_batch=1)


def load_of(system, rate, lengths, B=(1,), **options):
    simulated = Options(arrivals_per_s=rate, reply_tokens=lengths, **options)
    rows = [B] * system.N
    return simulate_load(system, rows, (), simulated, seed=2, replies=60_000)


@pytest.mark.parametrize("rho", [0.3, 0.7, 0.85])
def test_mean_wait_of_one_server_with_fixed_service(rho):
    """M/D/1, one token per reply: Pollaczek and Khinchine, W = rho D / (2 (1 - rho))."""
    found = load_of(single(300), rho * 100.0, (1.0,))
    wait = rho * 10.0 / (2.0 * (1.0 - rho))
    assert found.admission_delay_ms.mean.low <= wait <= found.admission_delay_ms.mean.high
    assert found.admission_delay_ms.mean.half_width < 0.12 * wait
    assert found.first_token_ms.mean.value == pytest.approx(wait + 10.0, rel=0.05)
    assert found.busy_fractions[0] == pytest.approx(rho, abs=0.02)


def test_waiting_outside_counts_as_waiting():
    """With one slot all waiting is outside, and the mean time to the token is the same."""
    inside, outside = load_of(single(300), 70.0, (1.0,)), load_of(single(1), 70.0, (1.0,))
    assert outside.first_token_ms.mean.value == pytest.approx(
        inside.first_token_ms.mean.value, rel=1e-6
    )
    assert outside.admission_delay_ms.p99.value == 0.0


def test_littles_law_at_every_rate():
    """Mean number live = rate of replies times mean time, where nobody waits outside."""
    system = trmodel.RoutedSystem(
        ["small", "large"], [6.0, 28.0], [[0.65, 0.35], [1.0, 0.0]], [[1, 0], [1, 0]], 200
    )
    for rate in (1.0, 3.0):
        found = load_of(system, rate, geometric_lengths(20.0), (1, 1))
        assert found.lag_ms == 0.0
        expected = found.replies_per_s.value * found.reply_ms.mean.value / 1000.0
        assert found.mean_live == pytest.approx(expected, rel=0.005)
        assert found.little_gap < 0.01
        assert found.stable


def test_a_queue_that_grows_is_seen():
    system = single(4)
    assert load_of(system, 90.0, (1.0,)).stable
    found = load_of(system, 105.0, (1.0,))
    assert not found.stable
    assert found.lag_ms > 0.0


def test_a_slower_rhythm_than_the_closed_loops_is_seen():
    """All hand over: a closed loop runs in step, but requests that come at random split in two."""
    system = RoutedSystem(["a", "b"], [6.0, 28.0], [[0, 1], [1, 0]], [[1, 1], [1, 1]], 4)
    in_step = 4 * 2 / 34.0 * 1000.0 / 50.0
    alternating = 2 * 2 / 28.0 * 1000.0 / 50.0
    lengths = (50.0,)
    options = Options(reply_tokens=lengths)
    assert closed_loop_replies_per_s(system, (1, 1), options).value == pytest.approx(in_step, 0.01)
    for seed in range(5):
        rate = 0.5 * (alternating + in_step)
        simulated = Options(arrivals_per_s=rate, reply_tokens=lengths)
        found = simulate_load(system, [(1, 1)] * 4, (), simulated, seed=seed, replies=500)
        assert found.replies_per_s.value < 0.95 * rate
        assert not found.stable


def test_capacity_of_one_server():
    found = closed_loop_replies_per_s(single(3), (1,), Options(reply_tokens=(1.0, 3.0)))
    assert found.low <= 50.0 <= found.high
    assert found.half_width < 1.0


def test_without_objectives_the_capacity_ends_the_search():
    found = largest_rate(single(20), (1,), (), Options(reply_tokens=(2.0,)))
    assert found.binding == ("capacity",)
    assert 0.96 * 50.0 < found.largest.rate_per_s < 50.0
    assert found.surely_too_much_per_s == pytest.approx(50.0, rel=0.02)
    rates = [load.rate_per_s for load in found.loads]
    assert rates == sorted(rates)


def test_the_largest_rate_for_a_mean_wait():
    """M/D/1: mean time to the token D + rho D / (2 (1 - rho)) = 20 ms at rho = 2/3."""
    system = single(300)
    objectives = parse_objectives(["mean-ttft-ms=20"], system, True)
    found = largest_rate(
        system, (1,), objectives, Options(reply_tokens=(1.0,)), replies=40_000, seed=4
    )
    low, high = found.largest.rate_per_s, found.surely_too_much_per_s
    assert low <= 200.0 / 3.0 <= high
    assert low > 0.95 * 200.0 / 3.0
    assert found.binding == ("mean-ttft-ms",)
    assert found.bracket_per_s[1] - low <= 1.0 + 1e-9
    assert all(load.meets for load in found.loads if load.rate_per_s <= low)


def test_a_tighter_limit_gives_a_smaller_rate():
    system = single(50)
    rates = []
    for limit in (80, 40, 25):
        objectives = parse_objectives([f"p90-ttft-ms={limit}"], system, True)
        rates.append(
            largest_rate(
                system, (1,), objectives, Options(reply_tokens=(1.0,)), replies=2000
            ).largest.rate_per_s
        )
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < rates[0]


def test_objectives_that_only_more_load_meets_are_told():
    """Two are needed for a step, and whoever is alone is held for 100 ms before each token."""
    system = RoutedSystem(["only"], [10.0], [[1.0]], [[1.0]], 4, max_batch=4)
    objectives = parse_objectives(["min-request-speed=50"], system, True)
    found = largest_rate(
        system, (2,), objectives, Options(reply_tokens=(50.0,), hold_ms=100.0), replies=2000
    )
    lowest = found.loads[0]
    assert not lowest.meets
    assert lowest.request_speed_tok_s.value < 50.0 < found.largest.request_speed_tok_s.value
    (warning,) = [w for w in found.warnings if w.startswith("objectives are not met at lower")]
    assert f"{lowest.rate_per_s:.3g}" in warning


def test_what_no_rate_meets_is_said():
    system = single(4)
    objectives = parse_objectives(["p99-ttft-ms=9", "min-request-speed=1"], system, True)
    with pytest.raises(InfeasibleError, match=r"not met even at .* 1 % of the capacity: p99-ttft"):
        largest_rate(system, (1,), objectives, Options(reply_tokens=(1.0,)), replies=500)


def test_a_fixed_threshold_needs_a_hold_time():
    with pytest.raises(InfeasibleError, match=r"B = 1,2: with 1 live requests .*--hold-ms"):
        trmodel.arrivals("a100", 4, thresholds=(1, 2), reply_tokens=50)
    found = trmodel.arrivals(
        "a100", 4, thresholds=(1, 2), hold_ms=30.0, reply_tokens=50, replies=200
    )
    assert found.thresholds == ((1, 2),) * 4
    slowest = max(load.admission_delay_ms.p99.value for load in found.loads)
    assert slowest < 30.0 + 90.0  # held, then behind one running batch at most


def test_the_tuned_table_is_used_by_the_number_live():
    table = trmodel.tune("a100", N=4)
    found = trmodel.arrivals("a100", 4, reply_tokens=50, replies=200)
    assert found.thresholds == table.thresholds.vectors
    same = trmodel.arrivals("a100", 4, thresholds=table.thresholds, reply_tokens=50, replies=200)
    assert same.to_dict()["rows"] == found.to_dict()["rows"]


def test_default_lengths():
    found = trmodel.arrivals("a100", 2, replies=64)
    assert found.mean_reply_tokens == pytest.approx(1000.0, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"replies": 3}, "replies: at least 64"),
        ({"precision_percent": 0.0}, "precision: must be above 0"),
        ({"reply_tokens": 0.2}, "reply_tokens: the mean"),
        ({"hold_ms": -1.0}, "hold_ms: must be a positive number"),
        ({"slo": ["p99-pttl-ms=3"]}, "is not an objective"),
    ],
)
def test_arguments_that_make_no_sense(arguments, part):
    with pytest.raises(UsageError) as error:
        trmodel.arrivals("a100", 2, **arguments)
    assert part in str(error.value)


def test_thresholds_of_a_file(tmp_path):
    path = tmp_path / "table.json"
    models = ["a", "b"]
    path.write_text('{"models": ["a", "b"], "thresholds": [[1, 1], [1, 2]]}')
    assert load_thresholds(path, models).vectors == ((1, 1), (1, 2))
    for text, part in (
        ('{"models": ["a"], "thresholds": [[1]]}', "models: must be a, b"),
        ('{"models": ["a", "b"]}', "thresholds: must be lists of whole numbers"),
        ('{"models": ["a", "b"], "thresholds": [[1.5, 1]]}', "must be lists of whole numbers"),
        ('{"models": ["a", "b"], "thresholds": []}', "at least one vector is needed"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=r"table\.json") as error:
            load_thresholds(path, models)
        assert part in str(error.value)
    path.write_text('{"models": ["a", "b"], "thresholds": [[1, 2]]}')
    with pytest.raises(InfeasibleError, match="can deadlock at N = 1"):
        load_thresholds(path, models)


def test_the_same_seed_gives_the_same_answer_and_requests_keep_their_lengths():
    system = single(20)
    options = Options(reply_tokens=geometric_lengths(5.0))
    first, second = (
        largest_rate(system, (1,), (), options, replies=300, seed=s).to_dict() for s in (1, 1)
    )
    assert first == second
    tokens = [
        simulate_load(
            system, [(1,)] * 20, (), Options(arrivals_per_s=r, reply_tokens=(1.0, 9.0)), replies=640
        ).throughput_tok_s.value
        / r
        for r in (2.0, 4.0)
    ]
    assert np.ptp(tokens) < 0.02 * np.mean(tokens)
