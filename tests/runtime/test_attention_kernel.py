"""The compiled attention against its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel.runtime.engines.sglang.attention_kernel import attend


def defined(query, keys, values, scale):
    """Softmax-weighed values of one token, [H, width], in float64."""
    shared = query.shape[0] // keys.shape[1]
    keys, values = (np.repeat(one, shared, axis=1) for one in (keys, values))
    products = np.einsum("hd,nhd->hn", query.astype(float), keys) * scale
    weights = np.exp(products - products.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.einsum("hn,nhe->he", weights, values)


@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=5),
    heads=st.integers(1, 3),
    shared=st.integers(1, 4),
    widths=st.sampled_from([(8, 8), (32, 32), (12, 20)]),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60, deadline=None)
def test_it_is_what_it_is_defined_to_be(lengths, heads, shared, widths, scale, seed):
    random = np.random.default_rng(seed)
    pool, tokens = 512, len(lengths)
    keys, values = (random.normal(size=(pool, heads, w)).astype(np.float32) for w in widths)
    query = random.normal(size=(tokens, heads * shared, widths[0])).astype(np.float32)
    slots = np.zeros((tokens + 2, 80), np.int32)
    rows = random.permutation(tokens + 2)[:tokens]
    for row, length in zip(rows, lengths, strict=True):
        slots[row, :length] = random.permutation(pool)[:length]
    output = np.full((tokens, heads * shared, widths[1]), np.nan, np.float32)
    attend(query, output, keys, values, slots, rows, np.array(lengths), scale)
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        held = slots[row, :length]
        expected = defined(query[i], keys[held], values[held], scale)
        assert output[i] == pytest.approx(expected, rel=1e-4, abs=2e-5 * max(1.0, scale))


def test_one_request_may_have_several_tokens():
    random = np.random.default_rng(0)
    keys, values = (random.normal(size=(9, 2, 8)).astype(np.float32) for _ in range(2))
    query = random.normal(size=(2, 4, 8)).astype(np.float32)
    slots = np.array([[8, 1, 5, 3]], np.int32)
    output = np.empty_like(query)
    attend(query, output, keys, values, slots, np.zeros(2, int), np.array([3, 4]), 0.5)
    for i, n in enumerate((3, 4)):
        held = slots[0, :n]
        assert output[i] == pytest.approx(
            defined(query[i], keys[held], values[held], 0.5), abs=1e-5
        )
