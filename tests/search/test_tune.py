from itertools import product

import numpy as np
import pytest

import trmodel
from trmodel.errors import InfeasibleError, InputError, LimitError, UsageError
from trmodel.launch import is_live
from trmodel.markov import Limits, solve_chain
from trmodel.markov.metrics import class_warnings
from trmodel.search import tune_system
from trmodel.system import RoutedSystem

R2R = dict(
    models=["small", "large"],
    latency_ms=[6.0, 27.9],
    transition_probability=[[0.65, 0.35], [1.0, 0.0]],
    committed_tokens=[[1, 0], [1, 0]],
)


def r2r(N: int, **changes) -> RoutedSystem:
    return RoutedSystem(**(R2R | changes), N=N)


def test_the_paper_s_optima_are_found():
    table = tune_system(r2r(4), [2, 3, 4])
    assert [row.B for row in table] == [(1, 2), (1, 2), (1, 3)]
    assert table.row(4).throughput_tok_s == pytest.approx(207.954, abs=1e-3)
    assert table.row(4).gain_percent == pytest.approx(100 * (207.954 / 187.19 - 1), abs=0.01)


@pytest.mark.parametrize("changes", [{}, {"max_batch": 2}, {"latency_ms": [[3, 4, 5, 6, 7], 27.9]}])
def test_every_row_is_the_best_of_all_vectors_solved_one_by_one(changes):
    system = r2r(5, **changes)
    table = tune_system(system, [5])
    assert [row.N for row in table.rows] == [1, 2, 3, 4, 5]
    for row in table.rows:
        at_n = system.with_N(row.N)
        alone = {
            B: solve_chain(at_n, B, solver="direct").throughput_tok_s
            for B in product(range(1, row.N + 1), repeat=2)
            if is_live(B, row.N)
        }
        assert {c.B for c in row.candidates} == set(alone)
        for c in row.candidates:
            assert c.throughput_tok_s == pytest.approx(alone[c.B], rel=1e-9)
        tied = [B for B, T in alone.items() if T >= max(alone.values()) * (1 - 1e-3)]
        assert sum(row.B) == min(sum(B) for B in tied)


def test_only_the_rows_asked_for_are_shown_but_all_are_there():
    table = tune_system(r2r(6), [4, 6])
    assert [row.N for row in table] == [4, 6]
    assert len(table) == 2
    assert [row["N"] for row in table.to_dict()["rows"]] == [4, 6]
    assert [row["N"] for row in table.to_dict(every_row=True)["rows"]] == [1, 2, 3, 4, 5, 6]
    assert table.thresholds.max_n == 6
    assert all(is_live(table.thresholds.at(n), n) for n in range(1, 100))


def test_a_fixed_threshold_is_kept_where_it_is_live_and_lowered_below():
    table = tune_system(r2r(5), [4, 5], fixed={1: 3})
    assert [row.B[1] for row in table.rows] == [1, 2, 3, 3, 3]
    assert table.rows[0].notes == ["large: 3 lowered to 1 to stay live"]
    assert table.row(4).notes == []
    eager = solve_chain(r2r(4), (1, 1)).throughput_tok_s
    assert table.row(4).choice.eager.throughput_tok_s == pytest.approx(eager, rel=1e-12)


def test_a_fixed_threshold_that_is_not_live_where_asked_is_infeasible():
    with pytest.raises(InfeasibleError):
        tune_system(r2r(5), [2, 5], fixed={1: 3})


@pytest.mark.parametrize("fixed", [{2: 1}, {-1: 1}, {0: 0}])
def test_fixed_thresholds_are_checked(fixed):
    with pytest.raises(UsageError, match=r"threshold of at least 1 of models 0\.\.1"):
        tune_system(r2r(3), [3], fixed=fixed)


def test_a_model_never_reached_has_threshold_one_and_a_warning():
    table = tune_system(r2r(4).with_p(0.0), [4])
    assert table.row(4).B == (1, 1)
    assert table.warnings == ("routing never reaches large from small: left out, threshold 1",)
    assert table.row(4).throughput_tok_s == pytest.approx(4 / 0.006)


def test_rows_finished_before_a_limit_are_kept():
    table = tune_system(r2r(6), [3, 6], limits=Limits(states=800))
    assert [row.N for row in table] == [3]
    assert table.stopped is not None
    assert "rows up to N = 4 are complete" in table.stopped
    assert table.thresholds.at(6) == table.row(4).B


def test_a_limit_before_any_row_that_was_asked_for_raises():
    with pytest.raises(LimitError, match="outgrows the limit of 100 states"):
        tune_system(r2r(6), [6], limits=Limits(states=100))
    with pytest.raises(LimitError, match="time limit of 0 s"):
        tune_system(r2r(6), [6], time_limit_s=0.0)


def test_a_routing_that_commits_nothing_is_refused():
    with pytest.raises(InputError, match="no token is committed"):
        tune_system(r2r(3, committed_tokens=[[0, 0], [0, 0]]), [3])


@pytest.mark.parametrize("wanted", [[], [0], [-3, 2]])
def test_concurrencies_are_checked(wanted):
    with pytest.raises(UsageError):
        tune_system(r2r(3), wanted)


def test_progress_counts_every_chain():
    seen: list[tuple[int, int]] = []
    tune_system(r2r(4), [4], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 20) for i in range(1, 21)]


def test_the_table_goes_to_pandas_in_one_call():
    frame = trmodel.tune("a100-paper", N=range(2, 5)).to_pandas()
    assert frame["N"].tolist() == [2, 3, 4]
    assert frame["B_Qwen3-32B"].tolist() == [2, 2, 3]
    assert frame["throughput_tok_s"].to_numpy() == pytest.approx([110.3, 158.1, 207.954], abs=0.1)
    assert np.isfinite(frame["residual"]).all()
    assert set(frame["method"]) == {"exact"}


def test_three_models_are_tuned_over_the_whole_simplex():
    P = [[0.5, 0.3, 0.2]] * 3
    system = RoutedSystem(["a", "b", "c"], [6.0, 12.0, 46.0], P, np.ones((3, 3)), 3)
    row = tune_system(system, [3]).row(3)
    assert len(row.candidates) == 10
    known = {c.B: c.throughput_tok_s for c in row.candidates}
    assert known[1, 1, 1] == pytest.approx(152.76, abs=0.1)
    assert known[1, 1, 2] == pytest.approx(155.42, abs=0.1)


def test_several_recurrent_classes_are_one_warning():
    assert class_warnings([1, 1]) == []
    (one,) = class_warnings([1, 3, 3])
    assert "in one of 3 recurrent classes" in one
    (several,) = class_warnings([2, 1, 4])
    assert "in one of 2 to 4 recurrent classes" in several
