"""Threshold tables that say how far they are from the best possible rule."""

import time

import pytest

import trmodel
from trmodel.errors import LimitError, NotConvergedError, UsageError
from trmodel.markov import Limits
from trmodel.search import tune_system
from trmodel.search.bound import bounds
from trmodel.system import RoutedSystem


@pytest.fixture(scope="module")
def table():
    return trmodel.tune("a100-paper", N=[4, 8], bound=True)


def test_every_row_has_its_gap(table, published):
    gains = published["computed"]["best_possible_launch_rule"]["gain_percent"]
    for row in table.rows:
        assert row.bound.missing is None
        assert row.bound.bound_tok_s >= row.throughput_tok_s * (1 - 1e-9)
        shown = row.to_dict()["gap_percent"]
        assert shown == pytest.approx(100 * (row.bound.bound_tok_s / row.throughput_tok_s - 1))
    for N in (2, 4, 8):
        assert table.row(N).to_dict()["gap_percent"] == pytest.approx(gains[str(N)], abs=0.02)


def test_documents_and_records_have_the_columns(table):
    for row in (table.to_dict()["rows"][1], table.to_records()[1]):
        assert row["bound_tok_s"] == pytest.approx(403.717, abs=1e-3)
        assert row["gap_percent"] == pytest.approx(1.17, abs=0.02)
    assert list(table.to_pandas(every_row=True)["gap_percent"].isna()) == [False] * 8
    without = trmodel.tune("a100-paper", N=2, bound=False)
    assert "bound_tok_s" not in without.to_dict()["rows"][0]
    assert "gap_percent" not in without.to_records()[0]


def test_out_of_reach_is_an_empty_cell_with_one_note(monkeypatch):
    calls = []

    def refuse(system, B, **_):
        calls.append(system.N)
        raise LimitError(f"N = {system.N}: outgrows the limit")

    monkeypatch.setattr("trmodel.search.bound.best_launch_rule", refuse)
    table = trmodel.tune("a100-paper", N=[2, 3], bound=True)
    assert calls == [1]
    assert all(row.notes[-1] == "no bound: N = 1: outgrows the limit" for row in table.rows)
    assert table.to_records()[0]["bound_tok_s"] is None
    assert table.to_dict()["rows"][0]["gap_percent"] is None


def test_a_bound_that_does_not_converge_is_missing_in_its_row_only(monkeypatch):
    from trmodel.markov import best_launch_rule

    def fails_at_two(system, B, **_):
        if system.N == 2:
            raise NotConvergedError("known to 1e-3 only")
        return best_launch_rule(system, B)

    monkeypatch.setattr("trmodel.search.bound.best_launch_rule", fails_at_two)
    table = trmodel.tune("a100-paper", N=3, bound=True)
    missing = [row.bound.missing for row in table.rows]
    assert missing == [None, "no bound: known to 1e-3 only", None]


def test_the_time_limit_holds_for_bounds_too():
    system = RoutedSystem(["m"], [1.0], [[1.0]], [[1.0]], 1)
    (late,) = bounds([(system, (1,))], deadline=time.monotonic() - 1)
    assert late.missing == "no bound: the time limit was reached"
    (found,) = bounds([(system, (1,))], deadline=time.monotonic() + 60)
    assert found.to_dict(1000.0)["gap_percent"] == pytest.approx(0.0, abs=1e-6)


def test_bounds_come_by_themselves_where_they_are_cheap(monkeypatch):
    monkeypatch.setattr("trmodel.search.bound.CHEAP", Limits(states=100, transitions=1_000_000))
    table = trmodel.tune("a100-paper", N=range(1, 7))
    bounded = [row.bound.bound_tok_s is not None for row in table.rows]
    assert bounded == sorted(bounded, reverse=True)
    assert True in bounded
    assert False in bounded
    assert table.row(6).notes[-1] == "no bound: it would take a while (--bound)"
    assert (
        "bound_tok_s" not in trmodel.tune("a100-paper", N=3, routing="glimprouter").to_records()[0]
    )


def test_what_has_no_single_best_rule_is_refused_before_the_search():
    absorbing = [[0.5, 0.25, 0.25], [0, 1, 0], [0, 0, 1]]
    ones = [[1.0] * 3] * 3
    system = RoutedSystem(list("abc"), [1.0, 2.0, 3.0], absorbing, ones, 2)
    calls = []
    with pytest.raises(UsageError, match="chance decides between several"):
        tune_system(system, [2], bound=True, progress=lambda *done: calls.append(done))
    assert calls == []
