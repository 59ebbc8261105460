from hypothesis import given
from hypothesis import strategies as st

from trmodel.search.choose import Candidate, choose, notes


def candidate(B: tuple[int, ...], throughput: float) -> Candidate:
    return Candidate(B, throughput, 10, "exact", "gth", 0.0)


EAGER = candidate((1, 1), 100.0)


def test_the_best_is_chosen_and_the_runner_up_says_what_it_loses():
    choice = choose([EAGER, candidate((1, 2), 120.0), candidate((1, 3), 110.0)], EAGER)
    assert choice.best.B == (1, 2)
    assert choice.runner_up is not None
    assert choice.runner_up.B == (1, 3)
    assert abs(choice.runner_up.loss_percent - 100 * (1 - 110 / 120)) < 1e-12
    assert abs(choice.gain_percent - 20.0) < 1e-12
    assert notes(choice) == []


def test_of_what_cannot_be_told_apart_the_smallest_is_chosen():
    better_by_a_hair = candidate((2, 5), 120.0 * 1.0009)
    choice = choose([EAGER, better_by_a_hair, candidate((1, 4), 120.0)], EAGER)
    assert choice.best.B == (1, 4)
    assert choice.runner_up is not None
    assert choice.runner_up.B == (2, 5)
    assert -0.1 < choice.runner_up.loss_percent < 0
    assert notes(choice) == ["flat: within 0.1 % also 2,5"]


def test_just_above_a_tenth_of_a_percent_the_better_one_wins():
    choice = choose([candidate((1, 4), 120.0), candidate((2, 5), 120.0 * 1.0012)], EAGER)
    assert choice.best.B == (2, 5)


def test_equal_sums_go_to_the_higher_throughput():
    choice = choose([candidate((2, 1), 100.0), candidate((1, 2), 100.05)], EAGER)
    assert choice.best.B == (1, 2)


def test_a_gain_below_one_percent_is_not_worth_it():
    choice = choose([EAGER, candidate((1, 2), 100.9)], EAGER)
    assert choice.best.B == (1, 2)
    assert notes(choice) == ["not worth it: gain over eager 0.9 %"]
    worth = choose([EAGER, candidate((1, 2), 101.1)], EAGER)
    assert notes(worth) == []


def test_a_single_candidate_has_no_runner_up_and_no_verdict():
    choice = choose([EAGER], EAGER)
    assert choice.runner_up is None
    assert notes(choice) == []


def test_eager_need_not_be_a_candidate():
    choice = choose([candidate((3, 1), 90.0)], EAGER)
    assert notes(choice) == ["worse than eager by 10.0 %"]
    assert choice.best.B == (3, 1)
    assert abs(choice.gain_percent + 10.0) < 1e-12


@given(
    st.lists(
        st.tuples(
            st.tuples(st.integers(1, 9), st.integers(1, 9)),
            st.floats(1.0, 1000.0, allow_nan=False),
        ),
        min_size=1,
        unique_by=lambda item: item[0],
    )
)
def test_nothing_chosen_is_more_than_a_tenth_of_a_percent_below_the_best(items):
    choice = choose([candidate(B, T) for B, T in items], EAGER)
    best = max(T for _, T in items)
    assert choice.best.throughput_tok_s >= best * 0.999
    smaller = [c for c in choice.tied if sum(c.B) < sum(choice.best.B)]
    assert smaller == []
    assert len(choice.ranked) == len(items)
