"""Chain and simulation check each other: they share the launch rule and nothing else."""

import numpy as np
import pytest

from trmodel.launch import is_live
from trmodel.markov import predict_chain
from trmodel.phases import Phase
from trmodel.simulate import Options, simulate
from trmodel.system import RoutedSystem

SYSTEMS = 100
FEWEST = 95


def random_system(rng, contention, waking=False):
    M = int(rng.integers(1, 4))
    N = int(rng.integers(1, (7, 7, 5)[M - 1]))
    latency = [np.cumsum(rng.integers([1] + [0] * (N - 1), [30] + [6] * (N - 1))) for _ in range(M)]
    slow_down = None
    if contention and M > 1:
        factors = np.round(rng.uniform(1.0, 2.0, 2), 2)
        slow_down = {(0, 1): tuple(factors)}
    return RoutedSystem(
        models=[f"m{i}" for i in range(M)],
        latency_ms=latency,
        transition_probability=rng.dirichlet(np.ones(M), M),
        committed_tokens=rng.integers(0, 3, (M, M)) + np.eye(M),
        N=N,
        max_batch=rng.integers(1, N + 1, M).tolist(),
        grid_ms=1.0,
        slow_down=slow_down,
        wake_ms=rng.integers(0, 9, M) if waking else None,
    )


def random_phased_system(rng):
    """Two or three phases at one model at least; one phase opens replies and takes longer."""
    M = int(rng.integers(1, 3))
    N = int(rng.integers(1, 5))
    U = M + int(rng.integers(1, 3))
    models = [*range(M), *rng.integers(0, M, U - M)]
    P = rng.dirichlet(np.full(U, 0.7), U)
    return RoutedSystem(
        models=[f"m{i}" for i in range(M)],
        latency_ms=[
            np.cumsum(rng.integers([1] + [0] * (N - 1), [20] + [5] * (N - 1))) for _ in range(M)
        ],
        transition_probability=P,
        committed_tokens=rng.integers(0, 3, (U, U)) + np.eye(U),
        N=N,
        grid_ms=1.0,
        phases=[Phase(f"u{u}", int(m), float(rng.integers(0, 9))) for u, m in enumerate(models)],
        restart=int(rng.integers(0, U)),
        slow_down={(0, 1): (1.5, 1.25)} if M > 1 and rng.random() < 0.5 else None,
        wake_ms=rng.integers(0, 7, M),
    )


def test_the_exact_value_is_inside_the_interval_with_phases():
    rng = np.random.default_rng(3)
    inside = {"throughput": 0, "replies": 0}
    for n in range(SYSTEMS):
        system = random_phased_system(rng)
        B = random_thresholds(rng, system)
        exact = predict_chain(system, B)
        found = simulate(system, B, Options(on_grid=True), seed=n, batches=100_000, confidence=0.99)
        assert found.little_gap < 1e-3
        inside["throughput"] += covers(found.throughput_tok_s, exact.throughput_tok_s)
        inside["replies"] += covers(found.replies_per_s, exact.replies_per_s)
    assert inside["throughput"] >= FEWEST
    assert inside["replies"] >= FEWEST


def random_thresholds(rng, system):
    while True:
        B = rng.integers(1, system.N + 1, system.M)
        if is_live(B, system.N):
            return tuple(B.tolist())


@pytest.mark.parametrize(
    ("contention", "waking"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_the_exact_value_is_inside_the_interval(contention, waking):
    rng = np.random.default_rng(1 + contention)
    inside = {"throughput": 0, "delay": 0, "busy": 0}
    for n in range(SYSTEMS):
        system = random_system(rng, contention, waking)
        B = random_thresholds(rng, system)
        exact = predict_chain(system, B)
        found = simulate(system, B, Options(on_grid=True), seed=n, batches=100_000, confidence=0.99)
        # An end effect of the run, larger where steps are longer.
        assert found.little_gap < (2e-3 if waking else 1e-3)
        T = found.throughput_tok_s
        inside["throughput"] += covers(T, exact.throughput_tok_s)
        delays = [
            covers(sim.admission_delay_ms.mean, chain.admission_delay_ms)
            for sim, chain in zip(found.per_model, exact.per_model, strict=True)
        ]
        inside["delay"] += np.mean(delays)
        assert found.ledger.total_ms == pytest.approx(1000 * system.N / T.value)
        assert found.ledger.threshold_wait_ms == pytest.approx(
            exact.ledger.threshold_wait_ms, rel=0.05, abs=0.05
        )
        for sim, chain in zip(found.per_model, exact.per_model, strict=True):
            assert sim.busy_fraction == pytest.approx(chain.busy_fraction, abs=0.02)
            assert sim.batch_distribution == pytest.approx(chain.batch_distribution, abs=0.03)
    assert inside["throughput"] >= FEWEST
    assert inside["delay"] >= FEWEST


def covers(estimate, value):
    slack = 1e-9 * abs(value) + 1e-12
    return estimate.low - slack <= value <= estimate.high + slack
