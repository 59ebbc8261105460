"""How `tune` chooses between the exact search and racing, and what tables of both look like."""

import numpy as np
import pytest

import trmodel
from trmodel.errors import InfeasibleError, LimitError, UsageError
from trmodel.launch import is_live
from trmodel.phases import Phase
from trmodel.search import Effort, tune_system
from trmodel.search.exact import TABLE_COST, count_vectors, row_costs
from trmodel.search.feasible import feasible_thresholds
from trmodel.system import RoutedSystem

QUICK = Effort(work=1e6, precision_percent=1.0)


def r2r(N: int) -> RoutedSystem:
    return RoutedSystem(
        ["small", "large"], [6.0, 27.9], [[0.65, 0.35], [1.0, 0.0]], np.ones((2, 2)), N
    )


def three(N: int) -> RoutedSystem:
    return RoutedSystem(
        ["a", "b", "c"], [6.0, 12.0, 27.9], [[0.5, 0.3, 0.2]] * 3, np.ones((3, 3)), N
    )


@pytest.mark.parametrize("fixed", [{}, {0: 1}, {1: 3}])
def test_vectors_are_counted_without_listing_them(fixed):
    for n in (3, 5, 8):
        assert count_vectors(r2r(8), n, fixed) == len(feasible_thresholds(r2r(n), fixed))


def test_costs_grow_with_n_and_two_models_to_32_are_exact():
    costs = row_costs(r2r(48), range(1, 49), {})
    assert sorted(costs.values()) == list(costs.values())
    assert sum(costs[n] for n in range(1, 33)) < TABLE_COST < sum(costs.values())
    assert sum(row_costs(three(16), range(1, 17), {}).values()) > TABLE_COST


def test_auto_is_exact_for_small_systems_and_says_so():
    table = tune_system(r2r(6), [4, 6])
    assert [row.N for row in table.rows] == [1, 2, 3, 4, 5, 6]
    assert {row.search for row in table.rows} == {"exhaustive"}
    assert table.search["method"] == "auto"


def test_auto_mixes_cheap_exact_rows_with_races_of_the_others():
    table = tune_system(three(12), [3, 12], effort=QUICK)
    assert [(row.N, row.search) for row in table.rows] == [
        (1, "exhaustive"),
        (3, "exhaustive"),
        (12, "racing"),
    ]
    assert table.row(3).choice.best.method == "exact"
    assert table.row(12).choice.best.method == "simulated"
    plain = table.row(12).to_dict()
    assert plain["throughput_low_tok_s"] < plain["throughput_tok_s"]
    assert plain["throughput_high_tok_s"] > plain["throughput_tok_s"]
    assert plain["states"] is None
    assert plain["candidates"] == 364


def test_systems_that_the_chain_does_not_hold_are_raced():
    system = RoutedSystem(
        ["small", "large"],
        [6.0, 27.9],
        [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]],
        np.ones((3, 3)),
        4,
        max_batch=2,
        phases=[Phase("probe", 0), Phase("small", 0), Phase("large", 1)],
    )
    assert [np.isfinite(c) for c in row_costs(system, range(1, 5), {}).values()] == [1, 1, 0, 0]
    for method in ("auto", "simulated"):
        table = tune_system(system, [4], method=method, effort=QUICK, bound=None)
        assert table.row(4).search == "racing"
        assert table.row(4).choice.best.method == "simulated"
    with pytest.raises(UsageError, match="--method simulated"):
        tune_system(system, [4], method="exact")


def test_no_gap_between_a_throughput_with_handoffs_and_a_bound_without():
    system = RoutedSystem(
        ["small", "large"],
        [6.0, 27.9],
        [[0.65, 0.35], [1.0, 0.0]],
        np.ones((2, 2)),
        4,
        handoff_ms=[[0, 30], [30, 0]],
    )
    raced = tune_system(system, [4], method="simulated", effort=QUICK, bound=True).row(4).to_dict()
    assert raced["bound_tok_s"] is None
    assert raced["gap_percent"] is None
    assert "no bound: it would leave out handoff delays" in raced["notes"]
    exact = tune_system(system, [4], method="exact", bound=True).row(4).to_dict()
    assert exact["bound_tok_s"] >= exact["throughput_tok_s"]


def test_rows_between_are_live_thresholds_without_a_figure():
    table = tune_system(r2r(40), [10, 40], method="simulated", effort=QUICK)
    assert [row.N for row in table.rows] == [1, 10, 40]
    assert [row.N for row in table] == [10, 40]
    assert table.thresholds.max_n == 40
    assert all(is_live(table.thresholds.at(n), n) for n in range(1, 100))
    assert table.thresholds.at(10) == table.row(10).B
    rows = table.to_dict(every_row=True)["rows"]
    assert [row["N"] for row in rows] == list(range(1, 41))
    between = rows[20]
    assert between["B"] == list(table.thresholds.at(21))
    assert between["search"] == "interpolated"
    assert between["notes"] == ["interpolated: this n was not searched"]
    assert between["throughput_tok_s"] is between["gain_percent"] is between["method"] is None
    assert set(between) == set(rows[9])
    frame = table.to_pandas(every_row=True)
    assert frame["throughput_tok_s"].count() == 3
    with pytest.raises(UsageError, match="rows for 1, 10, 40, got 11"):
        table.row(11)


def test_fixed_thresholds_hold_in_every_method():
    table = tune_system(r2r(9), [9], method="simulated", fixed={1: 4}, effort=QUICK)
    assert [table.thresholds.at(n)[1] for n in (1, 2, 3, 4, 9)] == [1, 2, 3, 4, 4]
    assert table.row(9).choice.eager.B == (1, 1)
    with pytest.raises(InfeasibleError):
        tune_system(r2r(9), [3, 9], method="simulated", fixed={1: 4})


def test_a_race_is_stopped_by_the_time_limit():
    with pytest.raises(LimitError, match="none that was asked for"):
        tune_system(r2r(9), [9], method="simulated", time_limit_s=0.0)


def test_too_many_chains_are_refused_where_the_exact_search_is_asked_for():
    with pytest.raises(LimitError, match="--method simulated"):
        tune_system(r2r(1000), [1000], method="exact")
    with pytest.raises(UsageError, match="method: must be one of"):
        tune_system(r2r(3), [3], method="guess")


def test_progress_ends_at_its_total():
    seen: list[tuple[int, int]] = []
    tune_system(
        r2r(6), [4, 6], method="simulated", effort=QUICK, progress=lambda *a: seen.append(a)
    )
    assert seen[-1] == (201, 201)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_python_and_profiles_take_the_method_and_the_seed():
    options = {"method": "simulated", "effort": QUICK}
    first, again = (trmodel.tune("a100-paper", 5, seed=1, **options) for _ in range(2))
    other = trmodel.tune("a100-paper", 5, seed=2, **options)
    assert first.to_dict() == again.to_dict()
    assert first.to_dict()["search"]["seed"] == 1
    assert first.row(5).B == other.row(5).B
