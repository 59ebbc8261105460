import pytest
from hypothesis import given
from hypothesis import strategies as st

from trmodel.errors import InfeasibleError, InputError, UsageError
from trmodel.launch import is_live
from trmodel.search import Thresholds

MODELS = ("small", "large")


def test_rows_are_looked_up_by_n_and_the_last_holds_above():
    table = Thresholds(MODELS, ((1, 1), (1, 2), (1, 3)))
    assert [table.at(n) for n in (1, 2, 3, 4, 1000)] == [(1, 1), (1, 2), (1, 3), (1, 3), (1, 3)]
    assert table.max_n == 3
    assert list(table.of_model(1)) == [1, 2, 3]


@pytest.mark.parametrize("n", [0, -1])
def test_no_row_below_one(n):
    with pytest.raises(UsageError):
        Thresholds(MODELS, ((1, 1),)).at(n)


def test_a_row_that_can_deadlock_is_refused_with_a_witness():
    with pytest.raises(InfeasibleError, match=r"B = 2,2 can deadlock at N = 2.*1,1 requests"):
        Thresholds(MODELS, ((1, 1), (2, 2)))


@pytest.mark.parametrize("vectors", [(), ((1,),), ((1, 0),), ((1, 1, 1),)])
def test_malformed_tables_are_refused(vectors):
    with pytest.raises(InputError, match="thresholds"):
        Thresholds(MODELS, vectors)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=6))
def test_every_table_that_can_be_made_is_live_at_every_n(vectors):
    live = all(is_live(B, n) for n, B in enumerate(vectors, start=1))
    try:
        table = Thresholds(MODELS, tuple(vectors))
    except InfeasibleError:
        assert not live
    else:
        assert live
        assert all(is_live(table.at(n), n) for n in range(1, 20))
