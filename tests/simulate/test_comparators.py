"""What else could serve the requests: closed forms of one model and of request-level routing."""

import numpy as np
import pytest

from trmodel.errors import UsageError
from trmodel.markov import solve_chain
from trmodel.simulate import simulate
from trmodel.simulate.comparators import (
    one_model_only,
    request_level,
    small_and_large,
    token_shares,
)
from trmodel.system import RoutedSystem

SMALL, LARGE = [4.0, 4.5, 5.0, 5.5, 6.0], [20.0, 21.0, 22.0, 24.0, 26.0]
P = np.array([[0.65, 0.35], [1.0, 0.0]])


def system(N=5, slow_down=None, **more):
    return RoutedSystem(
        ["small", "large"],
        [SMALL[:N], LARGE[:N]],
        P,
        [[1, 0], [1, 0]],
        N,
        slow_down=slow_down,
        **more,
    )


@pytest.mark.parametrize(("model", "latencies"), [(0, SMALL), (1, LARGE)])
@pytest.mark.parametrize("N", [1, 3, 5])
def test_one_model_alone(model, latencies, N):
    case = one_model_only(system(N, slow_down={(0, 1): (2.0, 3.0)}), model)
    found = simulate(case.system, case.B, batches=1000)
    assert found.throughput_tok_s.value == pytest.approx(1000.0 * N / latencies[N - 1])
    assert found.inter_token_ms.p99.value == pytest.approx(latencies[N - 1])
    limited = one_model_only(system(N, max_batch=1), model)
    found = simulate(limited.system, limited.B, batches=1000)
    assert found.throughput_tok_s.value == pytest.approx(1000.0 / latencies[0])


def long_reply_tok_s(q, slow, N=5):
    """Throughput of request-level routing with long replies: a birth-death chain of n at large."""
    weight = np.ones(N + 1)
    speed = np.zeros((N + 1, 2))
    for n in range(N + 1):
        both = 0 < n < N
        if n < N:
            speed[n, 0] = (N - n) / (SMALL[N - n - 1] * (slow[0] if both else 1.0))
        if n > 0:
            speed[n, 1] = n / (LARGE[n - 1] * (slow[1] if both else 1.0))
    for n in range(N):
        weight[n + 1] = weight[n] * q * speed[n, 0] / ((1.0 - q) * speed[n + 1, 1])
    return 1000.0 * float(weight / weight.sum() @ speed.sum(axis=1))


@pytest.mark.parametrize("slow", [(1.0, 1.0), (1.6, 1.2)])
@pytest.mark.parametrize("percent", [10.0, 40.0])
def test_request_level_routing_with_long_replies(slow, percent):
    case = request_level(system(slow_down={(0, 1): slow}), percent, 400.0)
    found = simulate(case.system, case.B, batches=1_000_000, confidence=0.999)
    exact = long_reply_tok_s(percent / 100.0, slow)
    # Replies of finite length lose some steps that do not begin together.
    assert found.throughput_tok_s.low * 0.995 < exact < found.throughput_tok_s.high * 1.005
    assert found.throughput_tok_s.half_width < 0.06 * exact
    assert found.per_model[1].step_share == pytest.approx(percent / 100.0, rel=0.1)


def test_requests_batch_continuously():
    """At each model all that are there step together, once its step is over."""
    case = request_level(system(), 50.0, 1e5)
    found = simulate(case.system, case.B, batches=20_000)
    assert found.ledger.threshold_wait_ms == pytest.approx(0.0, abs=1e-9)


def test_models_that_fall_idle_are_woken():
    """With replies of one token, at N = 1: by a question that is not for the same model again."""
    woken = system(1, wake_ms=[1.5, 2.5])
    q = 0.4
    case = request_level(woken, 100 * q, 1.0)
    step_ms = (1 - q) * (SMALL[0] + q * 1.5) + q * (LARGE[0] + (1 - q) * 2.5)
    exact = solve_chain(case.system, case.B).throughput_tok_s
    assert exact == pytest.approx(1000 / step_ms)
    only = one_model_only(woken, 1)
    assert solve_chain(only.system, only.B).throughput_tok_s == pytest.approx(1000 / LARGE[0])


def test_shares_of_tokens():
    assert token_shares(system()) == pytest.approx([0.65, 0.35])
    keeps = RoutedSystem(["a", "b"], [1.0, 2.0], P, [[1, 1], [1, 1]], 2)
    assert token_shares(keeps) == pytest.approx([1 / 1.35, 0.35 / 1.35])
    alternates = RoutedSystem(["a", "b"], [1.0, 2.0], [[0, 1], [1, 0]], [[1, 3], [1, 1]], 2)
    assert token_shares(alternates) == pytest.approx([0.75, 0.25])
    splits = RoutedSystem(
        ["a", "b", "c"], [1.0] * 3, [[0, 0.25, 0.75], [0, 1, 0], [0, 0, 1]], np.ones((3, 3)), 1
    )
    assert token_shares(splits) == pytest.approx([0.0, 0.25, 0.75])


def test_small_and_large_are_by_latency():
    assert small_and_large(system()) == (0, 1)
    three = RoutedSystem(
        ["a", "b", "c"], [27.9, 6.0, 12.0], np.full((3, 3), 1 / 3), np.ones((3, 3)), 1
    )
    assert small_and_large(three) == (1, 0)
    same = RoutedSystem(["a", "b"], [5.0, 5.0], P, np.ones((2, 2)), 1)
    assert small_and_large(same) == (0, 1)
    with pytest.raises(UsageError, match="one model only"):
        small_and_large(RoutedSystem(["a"], [1.0], [[1.0]], [[1.0]], 1))


@pytest.mark.parametrize(
    ("share", "tokens", "named"),
    [
        (0.0, 500.0, "share_percent"),
        (100.0, 500.0, "share_percent"),
        (float("nan"), 500.0, "share_percent"),
        (40.0, 0.5, "reply_tokens"),
        (40.0, float("inf"), "reply_tokens"),
    ],
)
def test_what_makes_no_sense_is_refused(share, tokens, named):
    with pytest.raises(UsageError, match=named):
        request_level(system(), share, tokens)
