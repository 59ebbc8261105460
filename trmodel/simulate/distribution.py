"""Distributions of times as compiled code gathers them: counts and sums in bins.

A bin is 1/64 of an octave wide (at most 1.6 %), and its mean is kept exactly, so that a time that
occurs again and again, as they do with fixed latencies, comes out exactly. Bin 0 holds zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmodel.arrays import FloatArray, IntArray
from trmodel.compiled import borrowing

_SHIFT = 46
"""Leaves the exponent and the first 6 bits of the fraction of a double."""
_LOW_EXPONENT, _OCTAVES = -12, 40
_OFFSET = ((1023 + _LOW_EXPONENT) << (52 - _SHIFT)) - 1
BINS = (_OCTAVES << (52 - _SHIFT)) + 2


@borrowing
def gather(
    count: FloatArray,
    total: FloatArray,
    value: float,
    weight: float,
    scratch: FloatArray,
    bits: IntArray,
) -> None:
    """Add a time to the bins; ``bits`` is a view of ``scratch`` (one element) as integers."""
    place = 0
    if value > 0.0:
        scratch[0] = value
        place = min(max((bits[0] >> _SHIFT) - _OFFSET, 1), len(count) - 1)
    count[place] += weight
    total[place] += weight * value


@dataclass(frozen=True, eq=False)
class Distribution:
    """A gathered distribution of times in milliseconds.

    Attributes
    ----------
    count, total_ms
        (BINS,): how many times fell into each bin, and their sum.
    """

    count: FloatArray
    total_ms: FloatArray

    @property
    def n(self) -> float:
        """How many times were gathered."""
        return float(self.count.sum())

    @property
    def mean_ms(self) -> float:
        """Their mean; nan if there are none."""
        return float(self.total_ms.sum() / self.n) if self.n else float("nan")

    def quantile_ms(self, q: float) -> float:
        """The smallest bin mean with at least a share q of the times at or below; nan if none."""
        if not self.n:
            return float("nan")
        place = self.place(q)
        return float(self.total_ms[place] / self.count[place])

    def place(self, q: float) -> int:
        """The first bin with at least a share q of the times in it or below; there must be some."""
        below = np.cumsum(self.count)
        return int(np.searchsorted(below, q * below[-1] * (1.0 - 1e-12)))

    def share_above(self, limit_ms: float) -> float:
        """Share of the times that are above a limit, by bin means."""
        filled = self.count > 0
        means = self.total_ms[filled] / self.count[filled]
        return float(self.count[filled][means > limit_ms].sum() / self.n) if self.n else 0.0
