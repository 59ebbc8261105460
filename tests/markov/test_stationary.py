"""Every solver on the same chains: against known answers, against each other, and made to fail."""

import sys
from typing import get_args

import numpy as np
import pytest
from chain_systems import cases, r2r
from hypothesis import given, settings
from scipy.sparse import csr_array

from trmodel.errors import LimitError, NotConvergedError, UsageError
from trmodel.markov.chain import solve_chain
from trmodel.markov.enumeration import Limits, enumerate_states
from trmodel.markov.stationary import Solver, stationary
from trmodel.markov.structure import recurrent_classes
from trmodel.markov.transitions import split_table

SOLVERS = get_args(Solver)
MODULE = sys.modules[stationary.__module__]
NAMED = [solver for solver in SOLVERS if solver != "auto"]


@pytest.fixture(params=SOLVERS)
def solver(request):
    return request.param


def chain_of(system, B):
    return enumerate_states(system, B, split_table(system), Limits()).transition


def birth_and_death(up, down):
    """A walk on a line; its law follows from balance across each cut, without subtractions."""
    size = len(up) + 1
    T = np.zeros((size, size))
    for s in range(size - 1):
        T[s, s + 1], T[s + 1, s] = up[s], down[s]
    T += np.diag(1.0 - T.sum(axis=1))
    pi = np.cumprod([1.0, *np.array(up) / np.array(down)])
    return T, pi / pi.sum()


def nearly_decomposable(epsilon):
    """Blocks of three states joined by links of order epsilon, in the manner of KMR chains."""
    up = [0.3, 0.2, epsilon, 0.5, 0.1, 2 * epsilon, 0.3, 0.4]
    down = [0.1, 0.4, 3 * epsilon, 0.2, 0.3, epsilon, 0.6, 0.2]
    return birth_and_death(up, down)


def periodic(size):
    """A deterministic cycle, whose law is uniform."""
    return np.roll(np.eye(size), 1, axis=1), np.full(size, 1.0 / size)


def lopsided(size):
    """A cycle that waits in state s for s + 1 steps on average, so that pi_s grows with s."""
    stay = 1.0 - 1.0 / np.arange(1, size + 1)
    T = np.diag(stay) + np.diag(1.0 - stay) @ np.roll(np.eye(size), 1, axis=1)
    return T, np.arange(1, size + 1) / (size * (size + 1) / 2)


KNOWN = {
    "one state": (np.eye(1), np.ones(1)),
    "two states": (np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0.75, 0.25])),
    "period 2": periodic(2),
    "period 3": periodic(3),
    "period 60": periodic(60),
    "rarely moving": lopsided(60),
    "weakly linked": nearly_decomposable(0.03),
    "uneven": birth_and_death([0.5] * 30, [0.25] * 30),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_answers(solver, name):
    T, expected = KNOWN[name]
    solution = stationary(csr_array(T), solver)
    assert solution.pi == pytest.approx(expected, rel=1e-8, abs=1e-10)
    assert solution.pi.min() >= 0.0
    assert solution.pi.sum() == pytest.approx(1.0, abs=1e-14)
    # The larger one of two solutions.
    assert np.abs(solution.pi @ T - solution.pi).sum() - 1e-15 <= solution.residual <= 1e-11
    assert solution.method in NAMED
    assert solver in ("auto", solution.method)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-8, 1e-15])
@pytest.mark.parametrize("solver", ["auto", "gth"])
def test_elimination_keeps_every_digit_on_nearly_decomposable_chains(solver, epsilon):
    T, expected = nearly_decomposable(epsilon)
    solution = stationary(csr_array(T), solver)
    assert solution.method == "gth"
    assert solution.pi == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("method", ["gauss-seidel", "arnoldi", "direct"])
def test_a_small_residual_is_not_taken_for_accuracy(method):
    """Laws far off meet the residual here: that two starts disagree tells them."""
    T, expected = nearly_decomposable(1e-15)
    (swept, *_) = MODULE._solutions(csr_array(T), "gauss-seidel", MODULE.MAX_SWEEPS)
    assert np.abs(swept @ T - swept).sum() < 1e-11
    assert np.abs(swept - expected).max() > 0.01
    try:
        solution = stationary(csr_array(T), method)
    except NotConvergedError as error:
        assert method in str(error)  # noqa: PT017
    else:
        assert solution.pi == pytest.approx(expected, abs=1e-9)


def test_two_starts_that_disagree_raise():
    T, _ = nearly_decomposable(1e-15)
    with pytest.raises(NotConvergedError, match="two starts lead to distributions"):
        stationary(csr_array(T), "gauss-seidel")


@pytest.mark.parametrize(
    ("N", "B"), [(2, (1, 1)), (4, (1, 1)), (4, (1, 3)), (4, (2, 2)), (6, (1, 4)), (6, (3, 3))]
)
@pytest.mark.parametrize("p", [0.05, 0.35, 0.6])
def test_solvers_agree_on_chains_of_the_model(N, B, p):
    results = {s: solve_chain(r2r(N, p), B, solver=s) for s in SOLVERS}
    exact = results.pop("gth")
    for chain in results.values():
        assert chain.pi == pytest.approx(exact.pi, rel=0, abs=1e-10)
        assert chain.throughput_tok_s == pytest.approx(exact.throughput_tok_s, rel=1e-10)


@settings(max_examples=50)
@given(cases())
def test_solvers_agree_on_random_systems(case):
    results = [solve_chain(case.system, case.B, solver=s) for s in SOLVERS]
    for chain in results:
        assert chain.pi == pytest.approx(results[-1].pi, rel=0, abs=1e-10)
        assert chain.throughput_tok_s == pytest.approx(results[-1].throughput_tok_s, rel=1e-10)


def test_gauss_seidel_converges_on_a_periodic_chain_with_transient_states():
    T = csr_array(np.array([[0.0, 1.0, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0, 1.0], [0, 0, 1.0, 0]]))
    (states,) = recurrent_classes(T)
    assert states.tolist() == [2, 3]
    solution = stationary(T[states][:, states], "gauss-seidel")
    assert solution.pi == pytest.approx([0.5, 0.5], rel=1e-12)


def test_auto_goes_on_by_arnoldi_where_sweeps_are_slow():
    """At p = 0.9 requests move nearly in step: the sweeps' second eigenvalue is -0.9998."""
    system = r2r(4, p=0.9)
    with pytest.raises(NotConvergedError):
        solve_chain(system, (1, 1), solver="gauss-seidel")
    auto, exact = (solve_chain(system, (1, 1), solver=s) for s in ("auto", "gth"))
    assert auto.method == "arnoldi"
    assert auto.throughput_tok_s == pytest.approx(exact.throughput_tok_s, rel=1e-10)


class TestFailure:
    """A result that is not a stationary law never leaves the solver."""

    T = chain_of(r2r(4), (1, 1))

    def test_too_few_sweeps(self, monkeypatch):
        monkeypatch.setattr(MODULE, "MAX_SWEEPS", 3)
        with pytest.raises(NotConvergedError, match="gauss-seidel: not converged after 3 sweeps"):
            stationary(self.T, "gauss-seidel")

    @pytest.mark.parametrize("solver", ["arnoldi", "direct", "gth"])
    def test_a_tolerance_out_of_reach(self, solver):
        with pytest.raises(NotConvergedError, match="tolerance"):
            stationary(self.T, solver, tolerance=1e-30)

    def test_arnoldi_that_gives_up(self, monkeypatch):
        from scipy.sparse.linalg import ArpackNoConvergence

        def gives_up(*args, **kwargs):
            raise ArpackNoConvergence("no luck", np.empty(0), np.empty((0, 0)))

        monkeypatch.setattr(MODULE, "eigs", gives_up)
        with pytest.raises(NotConvergedError, match="no luck"):
            stationary(self.T, "arnoldi")

    @pytest.mark.parametrize("kernel", ["_gth", "_direct", "_arnoldi"])
    @pytest.mark.parametrize(
        "tamper",
        [
            lambda pi: pi * (1.0 + 1e-9 * np.arange(len(pi))),
            lambda pi: np.where(np.arange(len(pi)) == 7, -pi, pi),
            lambda pi: np.where(np.arange(len(pi)) == 7, np.nan, pi),
            lambda pi: np.roll(pi, 1),
        ],
        ids=["perturbed", "negative", "not a number", "shifted"],
    )
    def test_a_tampered_result(self, monkeypatch, kernel, tamper):
        right = getattr(MODULE, kernel)
        stationary(self.T, kernel.strip("_"))
        monkeypatch.setattr(MODULE, kernel, lambda *args: tamper(right(*args)))
        with pytest.raises(NotConvergedError, match=kernel.strip("_")):
            stationary(self.T, kernel.strip("_"))

    def test_a_negative_law_with_no_residual(self, monkeypatch):
        """Of two closed classes any mixture is balanced; the sign has to be looked at too."""
        monkeypatch.setattr(MODULE, "_gth", lambda T: np.array([2.0, -1.0]))
        with pytest.raises(NotConvergedError, match="least probability -1"):
            stationary(csr_array(np.eye(2)), "gth")

    def test_unknown_solver(self):
        with pytest.raises(UsageError, match="power is not one of auto, gauss-seidel"):
            stationary(self.T, "power")

    def test_gth_of_a_large_chain(self, monkeypatch):
        monkeypatch.setattr(MODULE, "GTH_MAX_STATES", 700)
        with pytest.raises(LimitError, match=r"700 states, this chain has 715.*another solver"):
            stationary(self.T, "gth")
