"""RoutedSystem: what it holds, what is derived from it, and everything it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from trmodel.errors import InputError, UsageError
from trmodel.phases import Phase
from trmodel.system import MAX_CONCURRENCY, RoutedSystem
from trmodel.system_checks import latency_problem

VALID = {
    "models": ["small", "large"],
    "latency_ms": [6.0, [20.0, 25.0, 27.9, 30.0]],
    "transition_probability": [[0.65, 0.35], [1.0, 0.0]],
    "committed_tokens": [[1, 0], [2, 0]],
    "N": 3,
}


def system(**changes):
    return RoutedSystem(**(VALID | changes))


def problems(**changes):
    with pytest.raises(InputError) as caught:
        system(**changes)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


class TestHeld:
    def test_one_latency_or_one_for_each_batch(self):
        assert system().latency_ms.tolist() == [[6.0] * 3, [20.0, 25.0, 27.9]]

    def test_sizes_above_the_largest_batch_repeat_the_last_usable_one(self):
        bounded = system(max_batch=[5, 2], latency_ms=[6.0, [20.0, 25.0]])
        assert bounded.max_batch == (3, 2)
        assert bounded.latency_ms[1].tolist() == [20.0, 25.0, 25.0]

    def test_one_largest_batch_for_all(self):
        assert system(max_batch=2).max_batch == (2, 2)
        assert system().max_batch == (3, 3)

    def test_entry_by_name_or_index(self):
        assert system(entry="large").entry == system(entry=1).entry == 1

    def test_arrays_are_its_own_and_read_only(self):
        P = np.array(VALID["transition_probability"])
        held = system(transition_probability=P)
        P[0] = [0.5, 0.5]
        assert held.transition_probability[0, 1] == 0.35
        for array in (held.transition_probability, held.committed_tokens, held.latency_ms):
            with pytest.raises(ValueError, match="read-only"):
                array[0, 0] = 1.0
        with pytest.raises(ValueError, match="read-only"):
            held.wake_ms[0] = 1.0


class TestDerived:
    def test_grid_units(self):
        assert system().latency_units.tolist() == [[60] * 3, [200, 250, 279]]
        coarse = system(grid_ms=4.0)
        assert coarse.latency_units.tolist() == [[2] * 3, [5, 6, 7]]
        # The worst is 6 ms rounded to 8.
        assert coarse.grid_error_percent == pytest.approx(100 / 3)
        assert system().grid_error_percent == pytest.approx(0.0, abs=1e-9)

    def test_waking(self):
        assert system().wake_units.tolist() == [0, 0]
        woken = system(wake_ms=[1.24, 0.0])
        assert woken.wake_units.tolist() == [12, 0]
        # The woken step of 7.24 ms is one of 7.2.
        assert woken.grid_error_percent == pytest.approx(100 * 0.04 / 7.24)

    def test_tokens_per_step(self):
        assert system().tokens_per_step.tolist() == [0.65, 2.0]

    def test_reached_models(self):
        chain = [[0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
        values = dict(models=list("abcd"), latency_ms=[1] * 4, committed_tokens=np.ones((4, 4)))
        of = system(**values, transition_probability=chain)
        assert of.reached == (0, 1, 2)
        assert of.unreached_names == ["d"]
        assert system(**values, transition_probability=chain, entry=1).reached == (1, 2)
        assert system().unreached_names == []


class TestChanged:
    def test_restricted(self):
        whole = RoutedSystem(
            ["a", "b", "c"],
            [1.0, 2.0, [3.0, 4.0]],
            [[1, 0, 0], [0, 0, 1], [0, 0.25, 0.75]],
            [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
            2,
            entry="c",
            max_batch=[1, 2, 2],
            wake_ms=[7.0, 8.0, 9.0],
            warnings=["said before"],
        )
        part = whole.restricted()
        assert part.models == ("b", "c")
        assert part.entry == 1
        assert part.max_batch == (2, 2)
        assert part.wake_ms.tolist() == [8.0, 9.0]
        assert part.latency_ms.tolist() == [[2.0, 2.0], [3.0, 4.0]]
        assert part.transition_probability.tolist() == [[0, 1], [0.25, 0.75]]
        assert part.committed_tokens.tolist() == [[5, 6], [8, 9]]
        assert part.warnings == (
            "said before",
            "routing never reaches a from c: left out, threshold 1",
        )

    def test_restricted_changes_nothing_when_all_are_reached(self):
        whole = system()
        assert whole.restricted() is whole

    def test_with_N(self):
        smaller = system().with_N(2)
        assert smaller.N == 2
        assert smaller.max_batch == (2, 2)
        assert system(wake_ms=[1.0, 2.0]).with_N(2).wake_ms.tolist() == [1.0, 2.0]
        assert smaller.latency_ms.tolist() == [[6.0] * 2, [20.0, 25.0]]
        same = system()
        assert same.with_N(3) is same

    def test_with_N_does_not_invent_what_larger_batches_take(self):
        with pytest.raises(UsageError, match="N: must be at most the system's own, 3, got 4"):
            system().with_N(4)

    def test_with_N_keeps_a_largest_batch_that_binds(self):
        assert system(max_batch=2).with_N(2).max_batch == (2, 2)

    @pytest.mark.parametrize("p", [0.0, 0.2, 1.0])
    def test_with_p(self, p):
        assert system().with_p(p).transition_probability.tolist() == [[1 - p, p], [1, 0]]

    @pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
    def test_with_p_refuses_what_is_no_probability(self, p):
        with pytest.raises(UsageError, match="p: must be between 0 and 1"):
            system().with_p(p)

    def test_with_p_is_for_two_models(self):
        with pytest.raises(UsageError, match="this one has 1"):
            RoutedSystem(["a"], [1.0], [[1]], [[1]], 1).with_p(0.5)


class TestThresholds:
    def test_whole_numbers_pass(self):
        assert system().check_thresholds([1, np.int64(3)]) == (1, 3)

    @pytest.mark.parametrize(
        ("B", "words"),
        [
            ([1], r"B: 2 thresholds are needed \(small, large\), got 1"),
            ([1, 2, 3], "got 3"),
            ([1, 0], r"B\[1\]: must be a whole number of at least 1, got 0"),
            ([1.5, 1], r"B\[0\]: .* got 1.5"),
            ([True, 1], r"B\[0\]"),
        ],
    )
    def test_anything_else_is_refused(self, B, words):
        with pytest.raises(UsageError, match=words):
            system().check_thresholds(B)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"models": ["a", "a"]}, "models: names must be distinct, got a, a"),
        ({"models": []}, "models: at least one model is needed"),
        ({"N": 0}, f"N: must be a whole number from 1 to {MAX_CONCURRENCY}, got 0"),
        ({"N": 2.0}, f"N: must be a whole number from 1 to {MAX_CONCURRENCY}, got 2.0"),
        ({"N": True}, f"N: must be a whole number from 1 to {MAX_CONCURRENCY}, got True"),
        (
            {"N": MAX_CONCURRENCY + 1},
            f"N: must be a whole number from 1 to {MAX_CONCURRENCY}, got 65537",
        ),
        (
            {"transition_probability": [[0.65, 0.36], [1, 0]]},
            "transition_probability[0]: must sum to 1, sums to 1.01",
        ),
        (
            {"transition_probability": [[0.65, 0.35], [1.5, -0.5]]},
            "transition_probability[1][0]: must be between 0 and 1, got 1.5",
        ),
        (
            {"transition_probability": [[NAN, 1], [1, 0]]},
            "transition_probability[0][0]: must be between 0 and 1, got nan",
        ),
        (
            {"transition_probability": [[1]]},
            "transition_probability: must be 2 x 2 for 2 models, is 1 x 1",
        ),
        (
            {"transition_probability": 1},
            "transition_probability: must be 2 x 2 for 2 models, is one number",
        ),
        (
            {"transition_probability": [[1, 0], [1]]},
            "transition_probability: must be 2 rows of 2 numbers",
        ),
        (
            {"committed_tokens": [[1, 0], [1, -1]]},
            "committed_tokens[1][1]: must be from 0 to 1e+06, got -1",
        ),
        (
            {"committed_tokens": [[INF, 0], [1, 1]]},
            "committed_tokens[0][0]: must be from 0 to 1e+06, got inf",
        ),
        (
            {"committed_tokens": [["one", 0], [1, 1]]},
            "committed_tokens: must be 2 rows of 2 numbers",
        ),
        ({"latency_ms": [6.0]}, "latency_ms: one entry for each of 2 models is needed, got 1"),
        (
            {"latency_ms": [6.0, [20.0, 25.0]]},
            "latency_ms[1]: batches up to 3 can form, latencies end at 2; add the missing batch "
            "sizes or set max_batch",
        ),
        (
            {"latency_ms": [6.0, [20.0, -1.0, 25.0]]},
            "latency_ms[1][1]: must be a latency above 0 and at most 600000 ms, got -1",
        ),
        (
            {"latency_ms": [6.0, 0.01]},
            "latency_ms[1][0]: 0.01 ms vanishes on a grid of 0.1 ms; use a finer grid_ms",
        ),
        ({"max_batch": 0}, "max_batch[0]: must be a whole number of at least 1, got 0"),
        ({"max_batch": [2, 2.5]}, "max_batch[1]: must be a whole number of at least 1, got 2.5"),
        ({"max_batch": [2]}, "max_batch: one number or 2 are needed, got 1"),
        ({"grid_ms": 0.0}, "grid_ms: must be a positive number of milliseconds, got 0.0"),
        ({"grid_ms": NAN}, "grid_ms: must be a positive number of milliseconds, got nan"),
        ({"wake_ms": [1.0]}, "wake_ms: must be 2 numbers, one for each model"),
        ({"wake_ms": 1.0}, "wake_ms: must be 2 numbers, one for each model"),
        ({"wake_ms": ["a", 1.0]}, "wake_ms: must be 2 numbers, one for each model"),
        ({"wake_ms": [0.0, -1.0]}, "wake_ms[1]: must be from 0 to 600000 ms, got -1"),
        ({"wake_ms": [NAN, 1.0]}, "wake_ms[0]: must be from 0 to 600000 ms, got nan"),
        ({"entry": "huge"}, "entry: huge is not one of small, large"),
        ({"entry": 2}, "entry: must be a name or an index below 2, got 2"),
        ({"entry": -1}, "entry: must be a name or an index below 2, got -1"),
    ],
)
def test_each_problem_has_its_path(changes, expected):
    assert expected in problems(**changes)


def test_all_problems_are_listed_at_once():
    found = problems(
        models=["a", "a"],
        transition_probability=[[0.5, 0.4], [1, 0]],
        committed_tokens=[[1, -1], [1, NAN]],
        latency_ms=[0.0, [1.0]],
        max_batch=[3, 2],
        entry="b",
    )
    assert [line.split(":")[0] for line in found] == [
        "models",
        "transition_probability[0]",
        "committed_tokens[0][1]",
        "committed_tokens[1][1]",
        "latency_ms[0][0]",
        "latency_ms[0][1]",
        "latency_ms[0][2]",
        "latency_ms[1]",
        "entry",
    ]


def test_a_row_may_miss_one_by_rounding():
    assert system(transition_probability=[[1 / 3, 2 / 3], [1 - 1e-12, 0.0]]).M == 2


@pytest.mark.parametrize("value", [NAN, INF, -1.0, 0.0, 600_001.0])
def test_latencies_that_cannot_be(value):
    assert "must be a latency" in (latency_problem(value) or "")


@pytest.mark.parametrize("value", [1e-3, 27.9, 600_000.0])
def test_latencies_that_can_be(value):
    assert latency_problem(value) is None


def a_phased(**changes):
    """The small model probes, then writes; the large model writes; a probe opens a new reply."""
    values = {
        "models": ("small", "large"),
        "latency_ms": (6.0, 27.9),
        "transition_probability": [[0, 0.7, 0.3], [0.1, 0.9, 0], [0.1, 0, 0.9]],
        "committed_tokens": np.array([[0, 0, 0], [1, 1, 1], [1, 1, 1]]),
        "N": 4,
        "phases": (Phase("probe", 0, 1.5), Phase("write", 0), Phase("help", 1)),
        "entry": "probe",
        "restart": "probe",
    }
    return RoutedSystem(**(values | changes))


def test_phases_belong_to_models():
    system = a_phased()
    assert (system.M, system.U, system.plain) == (2, 3, False)
    assert system.phase_model.tolist() == [0, 0, 1]
    assert system.added_ms.tolist() == [1.5, 0.0, 0.0]
    assert (system.entry, system.restart, system.entry_model) == (0, 0, 0)
    assert system.tokens_per_step.tolist() == pytest.approx([0, 1, 1])
    assert replace(system, N=2).phases == system.phases


def test_restricting_drops_unreached_phases_and_models():
    P = [[0, 1, 0], [0.1, 0.9, 0], [0.1, 0, 0.9]]
    system = a_phased(transition_probability=P).restricted()
    assert system.models == ("small",)
    assert [phase.name for phase in system.phases] == ["probe", "write"]
    assert system.handoff_ms.shape == (1, 1)
    assert "large" in system.warnings[-1]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"phases": (Phase("a", 0), Phase("a", 0), Phase("b", 1))},
            "phases: names must be distinct, got a, a, b",
        ),
        (
            {"phases": (Phase("probe", 0), Phase("b", 0), Phase("c", 2))},
            "phases[2].model: must be an index below 2, got 2",
        ),
        (
            {"phases": (Phase("probe", 0), Phase("b", 0), Phase("c", 0))},
            "phases: large has none",
        ),
        (
            {"phases": (Phase("probe", 0, -1.0), Phase("b", 0), Phase("c", 1))},
            "phases[0].added_ms: must be from 0 to 600000 ms, got -1.0",
        ),
        ({"restart": "end"}, "restart: end is not one of probe, write, help"),
        (
            {"transition_probability": np.eye(2)},
            "transition_probability: must be 3 x 3 for 3 phases, is 2 x 2",
        ),
        ({"handoff_ms": [[0, -1], [1, 0]]}, "handoff_ms: delays must be from 0 to 600000 ms"),
        (
            {"handoff_ms": [[1, 1], [1, 0]]},
            "handoff_ms: a request that stays at its model is not handed over",
        ),
    ],
)
def test_wrong_phases_and_delays_are_named(changes, problem):
    with pytest.raises(InputError) as error:
        a_phased(**changes)
    assert problem in error.value.problems
