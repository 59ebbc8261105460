"""What the tuner's process answers."""

from dataclasses import replace

import numpy as np
import pytest

from trmodel.markov import predict_chain
from trmodel.profile import build_system, load_profile
from trmodel.runtime.retune import Job, retune

N = 8
P = 0.5


def answered(handoff_ms, wake_ms=(0.0, 0.0)):
    system = build_system(load_profile("a100-paper"), N, p=P)
    system = replace(system, wake_ms=wake_ms)
    told = {
        name: getattr(system, name).tolist()
        for name in ("latency_ms", "transition_probability", "committed_tokens", "slow_down")
    }
    job = Job(
        models=system.models,
        wake_ms=wake_ms,
        handoff_ms=(handoff_ms * (1.0 - np.eye(2))).tolist(),
        entry=system.entry,
        max_batch=system.max_batch,
        grid_ms=system.grid_ms,
        max_live=N,
        n=N,
        present=((1, 1),),
        time_limit_s=60.0,
        **told,
    )
    return system, retune(job)


@pytest.mark.parametrize(("wake_ms", "gain"), [((0.0, 0.0), 0.1), ((2.0, 5.0), 0.01)])
def test_thresholds_are_those_of_the_offline_tuner_and_the_gain_is_that_of_the_chain(wake_ms, gain):
    """Models that are launched eagerly fall idle less often, so that waking takes from the gain."""
    system, answer = answered(0.0, wake_ms)
    new, present = (predict_chain(system, B) for B in (answer.vectors[N - 1], (1, 1)))
    assert answer.new_tok_s == pytest.approx(new.throughput_tok_s)
    assert answer.present_tok_s == pytest.approx(present.throughput_tok_s)
    assert answer.new_tok_s > (1.0 + gain) * answer.present_tok_s


def test_handoffs_that_take_time_are_in_what_is_promised():
    """Among few requests that wait for each other a handoff of 2 ms costs about a tenth."""
    _, without = answered(0.0)
    _, answer = answered(2.0)
    assert answer.vectors == without.vectors
    assert 0.88 < answer.new_tok_s / without.new_tok_s < 0.94
