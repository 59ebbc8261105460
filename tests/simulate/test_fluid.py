import numpy as np
import pytest

from trmodel.errors import InfeasibleError, InputError
from trmodel.markov import solve_chain
from trmodel.phases import Phase
from trmodel.simulate import simulate
from trmodel.simulate.fluid import fluid
from trmodel.system import RoutedSystem


def rising(N: int, first: float = 0.8, second: float = 1.6, long: float = 20.0) -> RoutedSystem:
    """A system whose latencies depend on the share of N in a batch."""
    shares = np.arange(1, N + 1) / N
    latency = [5.0 + first * shares, long + second * shares]
    return RoutedSystem(["small", "large"], latency, [[0.65, 0.35], [1, 0]], np.ones((2, 2)), N)


@pytest.mark.parametrize(("latency", "share"), [((0.8, 1.6, 20.0), 0.5), ((10.0, 40.0, 10.0), 0)])
def test_the_simulated_system_approaches_its_fluid_limit(latency, share):
    errors = []
    for N in (16, 64, 256, 1024):
        system, B = rising(N, *latency), (1, 1 + int(share * (N - 1)))
        found = simulate(system, B, batches=60_000, seed=3).throughput_tok_s
        limit = fluid(system, B)
        assert limit.method == "fluid"
        errors.append(abs(limit.throughput_tok_s / found.value - 1.0))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.01
    assert errors[-1] < 0.001


@pytest.mark.parametrize(("B", "N"), [((1, 1), 5), ((2, 1), 6), ((3, 2), 7), ((1, 4), 5)])
@pytest.mark.parametrize("wake_ms", [None, [2.5, 4.0]])
def test_where_routing_is_deterministic_the_limit_is_exact(B, N, wake_ms):
    sizes = np.arange(1, N + 1)
    system = RoutedSystem(
        ["a", "b"], [4.0 + sizes, 9.0 + 2 * sizes], [[0, 1], [1, 0]], np.ones((2, 2)), N,
        wake_ms=wake_ms,
    )  # fmt: skip
    exact = solve_chain(system, B).throughput_tok_s
    # The limit averages over whole completions of a periodic orbit that it need not hit.
    assert fluid(system, B).throughput_tok_s == pytest.approx(exact, rel=2e-3)


def test_one_model_alone_is_its_step():
    system = RoutedSystem(["a"], [[3.0, 4.0, 5.0, 6.0]], [[1.0]], [[1.0]], 4)
    assert fluid(system, (4,)).throughput_tok_s == pytest.approx(4 / 6.0 * 1000)


def test_latency_is_linear_between_whole_batches():
    # Of three requests half of each step of a go to b, which takes 1.5 at a time from a alone.
    half = RoutedSystem(["a", "b"], [1.0, [10.0, 20.0, 90.0]], [[0, 1], [1, 0]], np.ones((2, 2)), 3)
    whole = fluid(half, (1, 3)).throughput_tok_s
    assert whole == pytest.approx(6 / 91.0 * 1000, rel=2e-3)
    # Two steps of a per step of b would leave 1.5 and 1.5: b takes 10 + 0.5 (20 - 10) = 15 ms.
    even = RoutedSystem(
        ["a", "b"], [[10.0, 20.0, 90.0]] * 2, [[0.5, 0.5], [0.5, 0.5]], np.ones((2, 2)), 3
    )
    assert fluid(even, (1, 1)).throughput_tok_s == pytest.approx(3 / 15.0 * 1000, rel=2e-2)


def test_models_that_run_together_slow_each_other():
    def system(factor):
        return RoutedSystem(
            ["a", "b"], [10.0, 10.0], [[0.5, 0.5], [0.5, 0.5]], np.ones((2, 2)), 8,
            slow_down={(0, 1): (factor, factor)},
        )  # fmt: skip

    alone, together = (fluid(system(factor), (1, 1)).throughput_tok_s for factor in (1.0, 1.5))
    assert together == pytest.approx(alone / 1.5, rel=0.02)


def test_two_phases_that_alternate_are_their_mean_step():
    phases = [Phase("odd", 0), Phase("even", 0, added_ms=2.0)]
    system = RoutedSystem(["a"], [[3.0, 3.0]], [[0, 1], [1, 0]], np.ones((2, 2)), 2, phases=phases)
    # Steps of 3 and of 3 + 2 * 2 ms, two tokens each.
    assert fluid(system, (2,)).throughput_tok_s == pytest.approx(4 / 10.0 * 1000, rel=2e-3)


def test_what_can_deadlock_or_commits_nothing_is_refused():
    with pytest.raises(InfeasibleError):
        fluid(rising(4), (3, 3))
    nothing = RoutedSystem(["a"], [1.0], [[1.0]], [[0.0]], 2)
    with pytest.raises(InputError, match="no token"):
        fluid(nothing, (1,))
