import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel.errors import InputError
from trmodel.markov import predict_chain
from trmodel.markov.admission import followed_admission_delay_ms
from trmodel.markov.chain import solve_chain
from trmodel.system import RoutedSystem

R2R = dict(
    models=["small", "large"],
    latency_ms=[6.0, 27.9],
    transition_probability=[[0.65, 0.35], [1.0, 0.0]],
    committed_tokens=[[1, 0], [1, 0]],
)


def r2r(N: int, **changes) -> RoutedSystem:
    return RoutedSystem(**(R2R | changes), N=N)


@st.composite
def systems_and_thresholds(draw):
    M = draw(st.integers(1, 3))
    N = draw(st.integers(1, 4))
    weights = draw(
        st.lists(st.lists(st.integers(1, 9), min_size=M, max_size=M), min_size=M, max_size=M)
    )
    P = np.array(weights, dtype=float)
    P /= P.sum(axis=1, keepdims=True)
    latency = [
        draw(st.lists(st.integers(1, 12), min_size=N, max_size=N).map(sorted)) for _ in range(M)
    ]
    max_batch = [draw(st.integers(1, N)) for _ in range(M)]
    system = RoutedSystem(
        [f"m{i}" for i in range(M)], latency, P, np.ones((M, M)), N, max_batch=max_batch, grid_ms=1
    )
    left, B = N - 1, []
    for _ in range(M):
        B.append(1 + draw(st.integers(0, left)))
        left -= B[-1] - 1
    return system, tuple(B)


@settings(deadline=None, max_examples=60)
@given(systems_and_thresholds())
def test_identities_that_hold_in_every_system(case):
    system, B = case
    prediction = predict_chain(system, B)
    chain = solve_chain(system, B)
    # The ledger's parts sum to N / T, in total and however they are split over models.
    assert prediction.ledger.total_ms == pytest.approx(1000 * system.N / chain.throughput_tok_s)
    parts = [m.ledger.total_ms for m in prediction.per_model]
    assert sum(parts) == pytest.approx(prediction.ledger.total_ms)
    assert sum(m.step_share for m in prediction.per_model) == pytest.approx(1.0)
    # Share of steps is the stationary law of the routing itself, whatever the launches.
    P = system.transition_probability
    shares = np.array([m.step_share for m in prediction.per_model])
    assert shares @ P == pytest.approx(shares, abs=1e-9)
    for i, m in enumerate(prediction.per_model):
        assert 0.0 < m.busy_fraction <= 1.0 + 1e-12
        assert sum(m.batch_distribution) == pytest.approx(1.0)
        sizes = np.arange(1, len(m.batch_distribution) + 1)
        assert m.mean_batch == pytest.approx(sizes @ np.array(m.batch_distribution))
        # A model is busy for the latency of each of its batches.
        busy = m.batches_per_s * (
            np.array(m.batch_distribution) @ system.latency_ms[i, : len(sizes)]
        )
        assert m.busy_fraction == pytest.approx(busy / 1000.0)
        # Steps by share and by batches agree (every step commits one token).
        assert m.batches_per_s * m.mean_batch == pytest.approx(
            m.step_share * prediction.throughput_tok_s
        )
        if B[i] == 1:
            assert m.ledger.threshold_wait_ms == pytest.approx(0.0, abs=1e-12)
        # Little's law against following single requests.
        assert followed_admission_delay_ms(chain, i) == pytest.approx(
            m.admission_delay_ms, rel=1e-7, abs=1e-9
        )
    assert prediction.throughput_tok_s == pytest.approx(system.N * prediction.request_speed_tok_s)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4))
def test_throughput_never_exceeds_the_no_waiting_bound_with_constant_latency(N, b, m):
    prediction = predict_chain(r2r(N, max_batch=m), (1, min(b, N)))
    assert prediction.throughput_tok_s <= prediction.no_waiting_tok_s * (1 + 1e-9)


def test_the_no_waiting_bound_is_a_request_alone_n_times():
    # One step of the small model, and 0.35 of the large one, commit one token.
    alone = 1000 / (6.0 + 0.35 * 27.9)
    prediction = predict_chain(r2r(8), (1, 5))
    assert prediction.no_waiting_tok_s == pytest.approx(8 * alone)
    assert predict_chain(r2r(1), (1, 1)).no_waiting_percent == pytest.approx(100.0)


def test_eager_launching_of_one_model_waits_for_nothing():
    system = RoutedSystem(["only"], [[10.0, 12.0, 15.0]], [[1.0]], [[1.0]], 3)
    prediction = predict_chain(system, (1,))
    assert prediction.throughput_tok_s == pytest.approx(3 / 0.015)
    (m,) = prediction.per_model
    assert m.busy_fraction == pytest.approx(1.0)
    assert m.mean_batch == pytest.approx(3.0)
    assert m.admission_delay_ms == 0.0
    assert prediction.ledger.forward_ms == pytest.approx(15.0)


def test_a_largest_batch_makes_requests_queue_behind_each_other():
    system = RoutedSystem(["only"], [10.0], [[1.0]], [[1.0]], 3, max_batch=1)
    prediction = predict_chain(system, (1,))
    assert prediction.throughput_tok_s == pytest.approx(100.0)
    (m,) = prediction.per_model
    assert m.admission_delay_ms == pytest.approx(20.0)  # two others go first, every time
    assert m.batch_distribution == (1.0,)
    assert prediction.ledger.batch_wait_ms == pytest.approx(20.0)
    assert followed_admission_delay_ms(solve_chain(system, (1,)), 0) == pytest.approx(20.0)


def test_a_model_only_transient_states_visit_has_zero_share():
    system = r2r(
        2, transition_probability=[[0.5, 0.5], [0.0, 1.0]], committed_tokens=np.ones((2, 2))
    )
    prediction = predict_chain(system, (1, 1))
    small, large = prediction.per_model
    assert small.step_share == 0.0
    assert small.mean_batch == 0.0
    assert small.batches_per_s == 0.0
    assert large.step_share == pytest.approx(1.0)
    # Both end on the large model, together in one batch or in two: 2 tokens a step or 1.
    assert prediction.throughput_tok_s == pytest.approx(2000 / 27.9)


def test_models_never_reached_keep_their_place_in_b():
    prediction = predict_chain(r2r(3).with_p(0.0), (2, 1))
    assert prediction.B == (2, 1)
    assert [m.name for m in prediction.per_model] == ["small"]
    assert len(prediction.warnings) == 1


def test_a_routing_that_commits_nothing_is_refused():
    with pytest.raises(InputError, match="no token is committed"):
        predict_chain(r2r(2, committed_tokens=np.zeros((2, 2))), (1, 1))


def test_the_document_is_plain_json():
    document = json.loads(json.dumps(predict_chain(r2r(4), (1, 3)).to_dict(), allow_nan=False))
    assert document["method"] == "exact"
    assert document["states"] == 14
    assert document["B"] == [1, 3]
    assert document["ledger"]["total_ms"] == pytest.approx(4000 / document["throughput_tok_s"])
