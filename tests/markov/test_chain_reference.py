"""The whole chain against an independent implementation in plain Python, on random systems."""

from dataclasses import asdict

import numpy as np
import pytest
from chain_reference import reference_chain
from chain_systems import cases, r2r
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel.markov import solve_chain


@settings(max_examples=200)
@given(st.one_of(cases(), cases(max_wake=3)))
def test_states_law_and_throughput(case):
    expected = reference_chain(**asdict(case))
    chain = solve_chain(case.system, case.B)
    e = chain.enumeration
    # Where nothing runs, what remains is the waking, which the reference knows otherwise.
    woken = np.where(e.b > 0, 0, chain.system.wake_units)
    assert np.array_equal(np.where(e.b > 0, 0, e.r), woken)
    ours = [
        tuple(zip(*(array[s].tolist() for array in (e.k, e.b, e.r - woken)), strict=True))
        for s in range(chain.states)
    ]
    assert set(ours) == set(expected.states)
    law = dict(zip(ours, chain.pi, strict=True))
    assert np.allclose([law[s] for s in expected.states], expected.pi, rtol=0, atol=1e-10)
    assert chain.throughput_tok_s == pytest.approx(expected.throughput_tok_s, rel=1e-10)


def test_on_the_published_system_itself():
    values = {"P": [[0.65, 0.35], [1, 0]], "C": [[1, 0], [1, 0]], "entry": 0, "grid_ms": 0.1}
    expected = reference_chain(
        latency=[[60] * 3, [279] * 3], N=3, max_batch=[3, 2], B=(2, 2), **values
    )
    chain = solve_chain(r2r(3, max_batch=[3, 2]), (2, 2))
    assert chain.states == len(expected.states)
    assert chain.throughput_tok_s == pytest.approx(expected.throughput_tok_s, rel=1e-10)
