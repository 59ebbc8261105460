import numpy as np
import pytest

from trmodel.errors import InfeasibleError, InputError
from trmodel.markov import solve_chain
from trmodel.phases import Phase
from trmodel.simulate import simulate
from trmodel.simulate.fluid import fluid
from trmodel.system import RoutedSystem


def rising(N: int) -> RoutedSystem:
    sizes = np.arange(1, N + 1)
    latency = [5.0 + 0.05 * sizes * 16 / N, 20.0 + 0.1 * sizes * 16 / N]
    return RoutedSystem(["small", "large"], latency, [[0.65, 0.35], [1, 0]], np.ones((2, 2)), N)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_simulated_system_approaches_its_fluid_limit(share):
    errors = []
    for N in (16, 64, 256, 1024):
        system, B = rising(N), (1, 1 + int(share * (N - 1)))
        found = simulate(system, B, batches=60_000, seed=3).throughput_tok_s
        limit = fluid(system, B)
        assert limit.method == "fluid"
        errors.append(abs(limit.throughput_tok_s / found.value - 1.0))
    first, *_, before, last = errors
    assert last < 0.002
    assert last < 0.5 * first
    assert last <= before + 0.001


@pytest.mark.parametrize(("B", "N"), [((1, 1), 5), ((2, 1), 6), ((3, 2), 7), ((1, 4), 5)])
def test_where_routing_is_deterministic_the_limit_is_exact(B, N):
    sizes = np.arange(1, N + 1)
    system = RoutedSystem(
        ["a", "b"], [4.0 + sizes, 9.0 + 2 * sizes], [[0, 1], [1, 0]], np.ones((2, 2)), N
    )
    exact = solve_chain(system, B).throughput_tok_s
    # The limit averages over whole completions of a periodic orbit that it need not hit.
    assert fluid(system, B).throughput_tok_s == pytest.approx(exact, rel=2e-3)


def test_one_model_alone_is_its_step():
    system = RoutedSystem(["a"], [[3.0, 4.0, 5.0, 6.0]], [[1.0]], [[1.0]], 4)
    assert fluid(system, (4,)).throughput_tok_s == pytest.approx(4 / 6.0 * 1000)


def test_latency_is_linear_between_whole_batches_and_contention_counts():
    # Half a request goes to b each time: 0.5 of it is below one, 1.5 between one and two.
    def system(**more):
        return RoutedSystem(
            ["a", "b"], [[2.0, 2.0, 2.0], [10.0, 20.0, 30.0]], [[0, 1], [1, 0]],
            np.ones((2, 2)), 3, **more,
        )  # fmt: skip

    plain = fluid(system(), (3, 3 - 2)).throughput_tok_s
    slowed = fluid(system(slow_down={(0, 1): (1.5, 1.5)}), (1, 1)).throughput_tok_s
    assert plain > 0
    assert slowed <= fluid(system(), (1, 1)).throughput_tok_s


def test_two_phases_that_alternate_are_their_mean_step():
    phases = [Phase("odd", 0), Phase("even", 0, added_ms=2.0)]
    system = RoutedSystem(
        ["a"], [[3.0, 3.0]], [[0, 1], [1, 0]], np.ones((2, 2)), 2, phases=phases
    )
    # Steps of 3 and of 3 + 2 * 2 ms, two tokens each.
    assert fluid(system, (2,)).throughput_tok_s == pytest.approx(4 / 10.0 * 1000, rel=2e-3)


def test_what_can_deadlock_or_commits_nothing_is_refused():
    with pytest.raises(InfeasibleError):
        fluid(rising(4), (3, 3))
    nothing = RoutedSystem(["a"], [1.0], [[1.0]], [[0.0]], 2)
    with pytest.raises(InputError, match="no token"):
        fluid(nothing, (1,))
