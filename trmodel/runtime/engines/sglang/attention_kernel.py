"""Attention of single tokens over long caches, on one core.

For the query q of a request's last position, and the keys k_j and values v_j of its n positions,
softmax_j(q . k_j * scale) weighs the v_j. The H heads of the query share those of the cache, H / K
each. Keys and values are read where the pool has them: gathering them first, as attention made of
tensor operations must, takes several times as long as the arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trmodel.compiled import reordering

Array = np.ndarray[Any, np.dtype[Any]]


@reordering
def attend(
    query: Array,
    output: Array,
    keys: Array,
    values: Array,
    slots: Array,
    rows: Array,
    lengths: Array,
    scale: float,
) -> None:
    """Fill the output.

    Parameters
    ----------
    query, output
        [tokens, H, width] and [tokens, H, width of values], float32.
    keys, values
        The pools, [slots, K, width], float32.
    slots
        Where the positions of each row are in the pools, [rows, positions].
    rows, lengths
        Of each token: the row of its request, and the positions up to and with its own.
    scale
        Of the products.
    """
    heads, width = keys.shape[1], values.shape[2]
    shared = query.shape[1] // heads
    weights = np.empty((shared, lengths.max()), np.float32)
    sums = np.empty((shared, width), np.float32)
    for token in range(rows.shape[0]):
        place, n = slots[rows[token]], lengths[token]
        for head in range(heads):
            for j in range(n):
                key = keys[place[j], head]
                for i in range(shared):
                    q = query[token, head * shared + i]
                    product = np.float32(0.0)
                    for d in range(key.shape[0]):
                        product += q[d] * key[d]
                    weights[i, j] = product * scale
            for i in range(shared):
                peak = weights[i, :n].max()
                total = np.float32(0.0)
                for j in range(n):
                    weights[i, j] = np.exp(weights[i, j] - peak)
                    total += weights[i, j]
                for j in range(n):
                    weights[i, j] /= total
            sums[:] = np.float32(0.0)
            for j in range(n):
                value = values[place[j], head]
                for i in range(shared):
                    for d in range(width):
                        sums[i, d] += weights[i, j] * value[d]
            output[token, head * shared : (head + 1) * shared] = sums
