"""Simulated tails are those of the exact chain."""

import exact_delays as exact
import pytest
from exact_delays import FollowedRequests, admission_delays

from trmodel import RoutedSystem
from trmodel.markov import solve_chain
from trmodel.markov.admission import followed_admission_delay_ms
from trmodel.simulate import Options, Simulator
from trmodel.simulate.result import Figures
from trmodel.simulate.sections import Sections
from trmodel.simulate.state import INTER_TOKEN

SURE = 0.9999


def system(N, latency=((3.0, 4.0, 4.0), (7.0, 8.0, 10.0)), max_batch=None, wake_ms=None):
    return RoutedSystem(
        ["small", "large"],
        [list(row)[:N] for row in latency],
        [[0.7, 0.3], [0.8, 0.2]],
        [[1.0, 0.0], [2.0, 1.0]],
        N,
        grid_ms=1.0,
        max_batch=max_batch,
        wake_ms=wake_ms,
    )


CASES = [
    (system(1), (1, 1)),
    (system(2), (1, 1)),
    (system(2), (1, 2)),
    (system(2), (2, 1)),
    (system(3), (1, 3)),
    (system(3, max_batch=2), (1, 2)),
    (system(3, max_batch=1), (1, 1)),
    (system(3, wake_ms=[1.0, 2.0]), (1, 2)),
]


def simulated(system, B):
    run = Simulator(system, B, Options(on_grid=True), seed=1)
    sections = Sections.after_warm_up(run, 400_000)
    sections.lengthen()
    return Figures(sections.counts, run.unit_ms, SURE)


def agree(figures, rows, shares):
    """Mean, share above every limit between the times that occur, and quantiles."""
    delays = figures.delays(rows)
    assert delays.mean.low - 1e-9 <= exact.mean(shares) <= delays.mean.high + 1e-9
    for t in list(shares)[:40]:
        found = figures.share_above(rows, t + 0.01)
        above = exact.share_above(shares, t + 0.01)
        assert found.low - 1e-5 <= above <= found.high + 1e-5
    for q, found in ((0.5, delays.p50), (0.9, delays.p90), (0.99, delays.p99)):
        near = {exact.quantile(shares, q + d) for d in (-0.003, 0.0, 0.003)}
        assert min(abs(found.value - t) for t in near) <= 0.016 * found.value + 1e-9


@pytest.mark.parametrize(("system", "B"), CASES)
def test_inter_token_times(system, B):
    shares = FollowedRequests(system, B).inter_token()
    agree(simulated(system, B), [system.M + INTER_TOKEN], shares)


@pytest.mark.parametrize(("system", "B"), CASES)
def test_admission_delays(system, B):
    chain, followed = solve_chain(system, B), FollowedRequests(system, B)
    figures = simulated(system, B)
    for i in range(system.M):
        shares, same = admission_delays(chain, i), followed.admission(i)
        for t in {*shares, *same}:
            assert shares.get(t, 0.0) == pytest.approx(same.get(t, 0.0), abs=1e-9)
        assert exact.mean(shares) == pytest.approx(followed_admission_delay_ms(chain, i), abs=1e-9)
        agree(figures, [i], shares)


def test_admission_delays_of_more_requests():
    plain = RoutedSystem(
        ["small", "large"], [6.0, 28.0], [[0.65, 0.35], [1.0, 0.0]], [[1, 0], [1, 0]], 8, grid_ms=1
    )
    chain, figures = solve_chain(plain, (1, 5)), simulated(plain, (1, 5))
    for i in range(2):
        agree(figures, [i], admission_delays(chain, i))


def test_one_request_alone():
    """N = 1: a closed form, with c = 1 at the small model and after the large one."""
    alone = RoutedSystem(
        ["small", "large"], [3.0, 7.0], [[0.6, 0.4], [1.0, 0.0]], [[1, 0], [1, 0]], 1, grid_ms=1
    )
    shares = FollowedRequests(alone, (1, 1)).inter_token()
    assert shares == pytest.approx({3: 0.6, 10: 0.4})
