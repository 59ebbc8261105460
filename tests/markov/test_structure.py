"""Chains that do not visit all their states for ever: classes, absorption, unreached models."""

from math import comb

import numpy as np
import pytest
from chain_systems import r2r
from scipy.sparse import csr_array

from trmodel.markov import solve_chain
from trmodel.markov.structure import absorption_probabilities, recurrent_classes
from trmodel.system import RoutedSystem

# Two transient states, a closed class of period 2 and an absorbing state.
MIXED = csr_array(
    np.array(
        [
            [0.5, 0.2, 0.2, 0.0, 0.1],
            [0.0, 0.0, 0.0, 0.5, 0.5],
            [0.0, 0.0, 0.0, 1.0, 0.0],
            [0.0, 0.0, 1.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 0.0, 1.0],
        ]
    )
)


def test_classes_and_absorption():
    classes = recurrent_classes(MIXED)
    assert [states.tolist() for states in classes] == [[2, 3], [4]]
    # From state 0 at last to 1, 2 and 4 as 2 : 2 : 1, and from 1 evenly to either class.
    assert absorption_probabilities(MIXED, classes) == pytest.approx([0.6, 0.4], rel=1e-14)


def test_a_start_inside_a_class_stays_there():
    T = csr_array(np.eye(1))
    assert absorption_probabilities(T, recurrent_classes(T)).tolist() == [1.0]


def test_classes_are_in_breadth_first_order():
    T = np.zeros((5, 5))
    for source, target in [(0, 1), (1, 4), (4, 2), (2, 3), (3, 1)]:
        T[source, target] = 1.0
    (states,) = recurrent_classes(csr_array(T))
    assert states.tolist() == [1, 4, 2, 3]


ENDINGS = {
    "P": [[0.4, 0.3, 0.3], [0, 1, 0], [0, 0, 1]],
    "latency_ms": [[1.0] * 4, [2.0, 2.5, 3.0, 4.0], [5.0, 5.5, 7.0, 7.5]],
}


def absorbing(N, **changes):
    return RoutedSystem(
        ["first", "left", "right"],
        [row[:N] for row in ENDINGS["latency_ms"]],
        ENDINGS["P"],
        [[1, 1, 1], [0, 1, 0], [0, 0, 2]],
        N,
        grid_ms=0.5,
        **changes,
    )


@pytest.mark.parametrize("N", [1, 2, 3, 4])
def test_throughput_is_the_mean_over_the_endings(N):
    """Each request ends at the left or right for good, one or the other with probability 1/2.

    Once all have ended, each side runs all its requests as one batch.
    """
    _, left, right = ENDINGS["latency_ms"]
    expected = 0.0
    for n in range(N + 1):
        speed = n / left[n - 1] if n else 0.0
        speed += 2 * (N - n) / right[N - n - 1] if n < N else 0.0
        expected += comb(N, n) / 2**N * 1000 * speed
    chain = solve_chain(absorbing(N), (1, 1, 1))
    assert chain.throughput_tok_s == pytest.approx(expected, rel=1e-12)
    assert chain.recurrent_classes >= N + 1


def test_a_threshold_can_starve_some_endings():
    """With N = 3, B = (1, 2, 1), one request alone on the left waits for ever: N - 1 commit."""
    _, left, right = ENDINGS["latency_ms"]
    speeds = [2 * 3 / right[2], 2 * 2 / right[1], 2 / left[1] + 2 / right[0], 3 / left[2]]
    expected = 1000 * np.dot([1 / 8, 3 / 8, 3 / 8, 1 / 8], speeds)
    chain = solve_chain(absorbing(3), (1, 2, 1))
    assert chain.throughput_tok_s == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("solver", ["auto", "gauss-seidel", "arnoldi", "direct", "gth"])
def test_every_solver_takes_classes_of_any_size(solver):
    chain = solve_chain(absorbing(2), (1, 1, 1), solver=solver)
    reference = solve_chain(absorbing(2), (1, 1, 1))
    assert chain.pi == pytest.approx(reference.pi, abs=1e-12)


def test_an_absorbing_second_model_takes_everything():
    system = r2r(4, transition_probability=[[0.9, 0.1], [0, 1]], committed_tokens=[[5, 5], [1, 3]])
    chain = solve_chain(system, (1, 2))
    assert chain.recurrent_classes == 1
    assert chain.throughput_tok_s == pytest.approx(1000 * 4 * 3 / 27.9, rel=1e-12)
    assert chain.pi[0] == 0.0


def test_a_deterministic_routing_gives_a_periodic_chain():
    system = r2r(3, transition_probability=[[0, 1], [1, 0]], committed_tokens=[[1, 1], [1, 1]])
    chain = solve_chain(system, (1, 1))
    assert chain.states == 2
    assert chain.pi == pytest.approx([0.5, 0.5], rel=1e-14)
    assert chain.throughput_tok_s == pytest.approx(1000 * 6 / 33.9, rel=1e-12)


def test_unreached_models_are_left_out_and_named():
    chain = solve_chain(r2r(4, p=0.0), (1, 4))
    assert chain.system.models == ("small",)
    assert chain.B == (1,)
    assert chain.throughput_tok_s == pytest.approx(1000 * 4 / 6.0, rel=1e-12)
    (warning,) = chain.system.warnings
    assert "never reaches large from small" in warning
    assert solve_chain(r2r(4), (1, 3)).system.warnings == ()
