"""Random numbers that belong to whoever draws them.

Every request, every model and the arrivals have a stream of their own (SplitMix64: Steele, Lea and
Flood, OOPSLA 2014), so that the n-th decision of a request is the same whatever the thresholds,
the strategy or the other requests do. Two simulations with one seed differ only by the rule that
is compared: these are common random numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trmodel.arrays import FloatArray
from trmodel.compiled import borrowing

Streams = NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = (np.uint64(n) for n in (30, 27, 31, 11))
_UNIT = 1.0 / (1 << 53)


@borrowing
def _mix(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return z ^ (z >> _31)


@borrowing
def stream_start(seed: int, number: int) -> np.uint64:
    """Where stream ``number`` of a seed begins."""
    return _mix(_mix(np.uint64(seed) + _GAMMA) + np.uint64(number) * _GAMMA)


@borrowing
def uniform(streams: Streams, n: int) -> float:
    """Draw the next number of stream n from [0, 1)."""
    streams[n] += _GAMMA
    return float((_mix(streams[n]) >> _11) * _UNIT)


@borrowing
def pick(cumulative: FloatArray, u: float) -> int:
    """Index of the outcome that u falls on; ``cumulative`` ends at 1 or above."""
    i = 0
    while u >= cumulative[i]:
        i += 1
    return i
