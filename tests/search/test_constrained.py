"""The best thresholds under objectives."""

from itertools import pairwise

import pytest

import trmodel
from trmodel.errors import InfeasibleError
from trmodel.profile import build_system, load_profile
from trmodel.search.constrained import constrain_row, examine
from trmodel.search.objectives import Verdict, parse_objectives
from trmodel.search.tune import tune_system
from trmodel.simulate import simulate


@pytest.fixture(scope="module")
def system():
    return build_system(load_profile("a100"), 6)


@pytest.fixture(scope="module")
def row(system):
    return tune_system(system, [6]).row(6)


def outcome(system, row, *slo):
    return constrain_row(system, row, parse_objectives(slo, system, False))


def test_a_limit_above_all_changes_nothing(system, row):
    found = outcome(system, row, "p99-itl-ms=1000", "min-request-speed=40")
    assert found.chosen is found.unconstrained
    assert found.chosen.candidate is row.choice.best
    assert found.cost_percent == 0.0
    assert found.binding == ()
    assert found.tightest.objective.name == "min-request-speed"
    assert len(found.examined) == 1


def test_the_best_that_meets_a_limit_is_chosen(system, row):
    """Against simulating every candidate on its own, with other random numbers."""
    found = outcome(system, row, "p99-itl-ms=70")
    assert found.binding == ("p99-itl-ms",)
    assert found.chosen.measured[0].verdict is Verdict.met
    by_hand = [
        c
        for c in row.candidates
        if simulate(system, c.B, seed=9, batches=200_000).inter_token_ms.p99.value <= 70.0
    ]
    best = max(c.throughput_tok_s for c in by_hand)
    assert found.chosen.candidate.throughput_tok_s >= best * (1.0 - 1e-3)
    expected = 100.0 * (1.0 - found.chosen.candidate.throughput_tok_s / row.throughput_tok_s)
    assert found.cost_percent == pytest.approx(expected)
    assert found.cost_percent > 1.0
    assert "binds: p99-itl-ms; without objectives B = 2,5" in "\n".join(found.lines)


def test_a_tighter_limit_leaves_less(system, row):
    """Fewer candidates meet it, and the chosen throughput falls."""
    meeting, chosen = [], []
    for limit in (90, 75, 70, 65):
        objectives = parse_objectives([f"p99-itl-ms={limit}"], system, False)
        meeting.append(
            {c.B for c in row.candidates if examine(system, c, objectives).meets},
        )
        chosen.append(
            constrain_row(system, row, objectives).chosen.candidate.throughput_tok_s,
        )
    assert all(tight <= loose for loose, tight in pairwise(meeting))
    assert len(meeting[-1]) < len(meeting[0])
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[-1] < chosen[0]


def test_what_excludes_the_best_binds(system, row):
    """Of two objectives the one that matters, whichever comes first."""
    for slo in (
        ("p99-itl-ms=70", "p99-admission-ms=500"),
        ("p99-admission-ms=500", "p99-itl-ms=70"),
    ):
        assert outcome(system, row, *slo).binding == ("p99-itl-ms",)
    found = outcome(system, row, "p99-itl-ms=500", "p99-admission-ms:Qwen3-32B=30")
    assert found.binding == ("p99-admission-ms:Qwen3-32B",)


def test_the_price_of_an_objective_is_what_dropping_it_adds(system, row):
    slo = ("p99-itl-ms=72", "p99-admission-ms=40")
    both = outcome(system, row, *slo)
    T = both.chosen.candidate.throughput_tok_s
    for dropped, kept in (slo, slo[::-1]):
        alone = outcome(system, row, kept).chosen.candidate.throughput_tok_s
        label = dropped.partition("=")[0]
        assert both.prices_percent[label] == pytest.approx(100.0 * (alone / T - 1.0), abs=0.1)
        assert (label in both.binding) is (both.prices_percent[label] > 0.1)
    assert max(both.prices_percent.values()) > 0.5


def test_where_nothing_meets_the_nearest_is_found(system, row):
    found = outcome(system, row, "p99-itl-ms=30", "min-request-speed=20")
    assert found.chosen is None
    assert len(found.examined) == found.candidates == len(row.candidates)
    assert found.nearest.excess_percent == min(e.excess_percent for e in found.examined)
    least = min(
        simulate(system, c.B, seed=9, batches=100_000).inter_token_ms.p99.value
        for c in row.candidates
    )
    assert found.at_best[0][0].value.value == pytest.approx(least, rel=0.03)
    text = "\n".join(found.lines)
    assert "none of 21 live vectors meets p99-itl-ms <= 30, min-request-speed >= 20" in text
    assert "nearest: B = " in text


def test_an_exact_speed_needs_no_simulation(system, row):
    too_fast = row.throughput_tok_s / 6 * 1.001
    objectives = parse_objectives([f"min-request-speed={too_fast}"], system, False)
    found = examine(system, row.choice.best, objectives)
    assert found.batches == 0
    assert not found.meets
    enough = parse_objectives([f"min-request-speed={too_fast * 0.998}"], system, False)
    assert examine(system, row.choice.best, enough).meets


def test_a_limit_at_the_estimate_is_simulated_longer_and_not_trusted(system, row):
    value = simulate(system, row.B, batches=1_000_000, seed=4).inter_token_ms.mean.value
    objectives = parse_objectives([f"mean-itl-ms={value}"], system, False)
    found = examine(system, row.choice.best, objectives)
    assert found.unclear
    assert found.batches >= 800_000
    assert not found.meets
    result = constrain_row(system, row, objectives)
    assert row.B in [e.candidate.B for e in result.unclear]
    assert "not sure after" in "\n".join(result.lines)


def test_rows_of_a_table():
    found = trmodel.tune_with_objectives(["p99-itl-ms=65"], "a100", [4, 6])
    assert not found.unmet
    free = trmodel.tune("a100", N=[4, 6])
    for N in (4, 6):
        row, outcome = found.table.row(N), found.outcomes[N]
        assert row.B == outcome.chosen.candidate.B
        assert row.throughput_tok_s < free.row(N).throughput_tok_s
        assert f"for p99-itl-ms: -{outcome.cost_percent:.1f} %" in row.notes
    assert found.table.thresholds.at(6) == found.table.row(6).B
    assert sorted(found.outcomes) == [1, 2, 3, 4, 5, 6]


def test_rows_where_nothing_meets_hold_the_nearest_miss_and_say_so():
    found = trmodel.tune_with_objectives(["p99-itl-ms=58"], "a100", [2, 6])
    assert [outcome.N for outcome in found.unmet] == [6]
    assert found.table.row(6).B == found.outcomes[6].nearest.candidate.B
    assert "misses p99-itl-ms" in found.table.row(6).notes
    assert found.outcomes[2].chosen is not None


def test_nothing_at_all_is_an_error_with_the_nearest_miss():
    with pytest.raises(InfeasibleError, match=r"N = 3: none of 6 live vectors meets") as error:
        trmodel.tune_with_objectives(["p99-itl-ms=20"], "a100", [3])
    assert "nearest: B = " in str(error.value)


def test_the_same_seed_gives_the_same_answer(system, row):
    objectives = parse_objectives(["p99-itl-ms=70"], system, False)
    first, second = (constrain_row(system, row, objectives, seed=5).to_dict() for _ in range(2))
    assert first == second


def test_replies_that_the_routing_ends_have_delays_too():
    """Requests that open a reply at the large model: two steps of it alone come first."""
    from trmodel.phases import Phase
    from trmodel.search.choose import Candidate

    system = trmodel.RoutedSystem(
        ["small", "large"],
        [5.0, 20.0],
        # A reply opens at the large model, goes on at the small one and ends one time in ten.
        [[0.9, 0.1], [1.0, 0.0]],
        [[1.0, 0.0], [1.0, 0.0]],
        1,
        entry=1,
        phases=(Phase("go on", 0), Phase("open", 1)),
        restart=1,
    )
    candidate = Candidate((1, 1), 100.0, 0, "simulated", "", 0.0)
    slo = ["p99-ttft-ms=20.5", "mean-reply-ms=75", "min-request-speed=130"]
    found = examine(system, candidate, parse_objectives(slo, system, True))
    first, reply, speed = found.measured
    # 20 ms, then on average ten steps of 5 ms, of which nine commit: 10 tokens in 70 ms.
    assert (first.value.value, first.verdict) == (pytest.approx(20.0), Verdict.met)
    assert reply.value.low <= 70.0 <= reply.value.high
    assert reply.verdict is Verdict.met
    assert speed.value.low <= 10.0 / 0.07 <= speed.value.high
    assert found.meets
    assert found.batches > 0
