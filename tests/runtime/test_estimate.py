"""Estimating routing and step times from totals: changes, restarts, intervals."""

import numpy as np
import pytest

from trmodel.runtime.estimate import Estimator, likelihood_ratio

STEP_S, HANDOFF_S, ROUTE_S = 0.01, 0.002, 0.0005


class Server:
    """Counts what two models would, with p of the first."""

    def __init__(self, seed=0):
        self.random = np.random.default_rng(seed)
        self.start(0)
        self.start(1)

    def start(self, model, pid=1):
        if not hasattr(self, "counted"):
            self.counted = {}
        self.counted[model] = {
            "pid": pid,
            "transitions": [0, 0],
            "committed": [0, 0],
            "batches": {},
            "idle_starts": {},
            "arrivals": [[0, 0.0], [0, 0.0]],
            "route_s": 0.0,
        }

    def second(self, p, steps=150):
        """One second more; returns the totals as they would be sent."""
        away = int(self.random.binomial(steps, p))
        moves = {0: (steps - away, away), 1: (away, 0)}
        tokens = {0: (steps - away, 0), 1: (away, 0)}
        told = {}
        for model, values in self.counted.items():
            transitions = np.add(values["transitions"], moves[model]).tolist()
            committed = np.add(values["committed"], tokens[model]).tolist()
            count, took, squares = values["batches"].get("2", (0, 0.0, 0.0))
            batches = {"2": [count + 4, took + 4 * STEP_S, squares]}
            idle = values["idle_starts"].get("2", 0) + 1
            came = [[0, 0.0], [0, 0.0]]
            came[1 - model] = [away, away * (HANDOFF_S + ROUTE_S)]
            told[model] = values | {
                "transitions": transitions,
                "committed": committed,
                "batches": batches,
                "idle_starts": {"2": idle},
                "arrivals": np.add(values["arrivals"], came).tolist(),
                "route_s": values["route_s"] + ROUTE_S * sum(moves[model]),
            }
        self.counted = told
        return told


def fed(server, estimator, p, seconds, start=0):
    return [estimator.add(float(start + second), server.second(p), 8) for second in range(seconds)]


def test_the_estimate_is_what_was_counted():
    server, estimator = Server(), Estimator(2, warm_up_s=0.0)
    assert not any(fed(server, estimator, 0.3, 40))
    found = estimator.estimate()
    P = found.transition_probability(np.full((2, 2), 0.5))
    low, high = found.intervals()
    assert found.transitions.sum(axis=1)[0] == 150 * 39
    assert low[0, 1] < P[0, 1] < high[0, 1]
    assert high[0, 1] - low[0, 1] == pytest.approx(4 * 0.006, rel=0.1)
    assert P[1].tolist() == [1.0, 0.0]
    assert found.committed_tokens(np.full((2, 2), 7.0)).tolist() == [[1.0, 0.0], [1.0, 7.0]]
    count, took_s, idle = found.steps[0][2]
    assert idle == count / 4
    assert took_s / count == pytest.approx(STEP_S)
    assert found.mean_n == 8
    delay = found.handoff_ms(np.full((2, 2), 7.0))
    assert delay == pytest.approx(np.array([[7.0, 2.0], [2.0, 7.0]]))


def test_a_change_is_found_soon_and_what_was_before_is_dropped():
    server, estimator = Server(), Estimator(2, warm_up_s=0.0)
    fed(server, estimator, 0.1, 60)
    changed = fed(server, estimator, 0.5, 10, start=60)
    assert any(changed[:4])
    assert estimator.changes == 1
    P = estimator.estimate().transition_probability(np.zeros((2, 2)))
    assert P[0, 1] == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("seed", range(5))
def test_no_change_is_found_where_there_is_none(seed):
    server, estimator = Server(seed), Estimator(2, window_s=60.0, warm_up_s=0.0)
    fed(server, estimator, 0.35, 300)
    assert estimator.changes == 0
    assert estimator.estimate().seconds <= 61.0


def test_a_restart_and_its_warm_up_are_not_counted():
    server, estimator = Server(), Estimator(2, warm_up_s=5.0)
    fed(server, estimator, 0.3, 6)
    assert estimator.estimate().transitions.sum() == 0
    fed(server, estimator, 0.3, 10, start=6)
    before = estimator.estimate().transitions[0].sum()
    assert before == 150 * 10
    server.start(0, pid=2)
    fed(server, estimator, 0.3, 6, start=16)
    found = estimator.estimate()
    assert found.transitions[0].sum() == before
    assert (found.transitions >= 0).all()
    fed(server, estimator, 0.3, 5, start=22)
    assert estimator.estimate().transitions[0].sum() == before + 5 * 150


def test_intervals_cover():
    random = np.random.default_rng(3)
    inside = 0
    for _ in range(400):
        estimator = Estimator(2, warm_up_s=0.0)
        server = Server(int(random.integers(2**31)))
        fed(server, estimator, 0.35, 3)
        low, high = estimator.estimate().intervals()
        inside += low[0, 1] < 0.35 < high[0, 1]
    assert 0.92 < inside / 400 < 0.98


def test_the_ratio_is_that_of_the_textbook():
    from scipy.stats import chi2_contingency

    a, b = np.array([[30.0, 10.0], [5.0, 0.0]]), np.array([[22.0, 25.0], [9.0, 0.0]])
    expected = chi2_contingency([a[0], b[0]], correction=False, lambda_="log-likelihood")
    assert likelihood_ratio(a, b) == pytest.approx(expected.statistic)
