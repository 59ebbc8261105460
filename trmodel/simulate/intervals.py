"""Confidence intervals of long-run averages from one long run, by batch means.

The run is cut into n *sections* of equal simulated time. A long-run ratio R = E[y] / E[x] (tokens
per time, delay per request) is estimated by sum y / sum x, and with z_s = y_s - R x_s

    half width = t(n - 1) sqrt(n / (n - 1) sum z_s^2) / sum x.

Sections that are too short are correlated, which makes intervals too narrow. While their lag-one
correlation is above what independent ones would show once in twenty times, neighbours are merged
and so made twice as long, down to 16 of them (Law, Simulation Modeling and Analysis, chapter 9).

The interval of a quantile q lies between two other quantiles of the run: those at q less the half
width of the share of times at or above the estimate, and at q plus that of the times above it. It
holds for lumpy distributions, and where times of some sections are of another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from scipy.special import stdtrit

from trmodel.arrays import FloatArray

FEWEST_SECTIONS = 16
_CORRELATED = 1.645
Section = TypeVar("Section")


@dataclass(frozen=True)
class Estimate:
    """A simulated figure with its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return 0.5 * (self.high - self.low)

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


def ratio(y: FloatArray, x: FloatArray, confidence: float) -> Estimate:
    """Estimate E[y] / E[x] from sections; both (n,). nan if x is zero throughout."""
    total = float(x.sum())
    if total <= 0.0:
        return Estimate(float("nan"), float("nan"), float("nan"))
    R, n = float(y.sum()) / total, len(x)
    z = y - R * x
    spread = math.sqrt(n / (n - 1) * float(z @ z)) / total
    return around(R, spread, n, confidence)


def around(value: float, spread: float, n: int, confidence: float) -> Estimate:
    """Return the interval of a mean of n independent contributions with this standard error."""
    half = float(stdtrit(n - 1, 0.5 + confidence / 2.0)) * spread
    return Estimate(value, value - half, value + half)


def independent(
    sections: Sequence[Section],
    deviations: Callable[[Sequence[Section]], FloatArray],
    merge: Callable[[Section, Section], Section],
) -> tuple[list[Section], bool]:
    """Merge neighbouring sections until they look independent.

    Parameters
    ----------
    deviations
        Gives the z_s of sections.
    merge
        Makes one section of two neighbours.

    Returns
    -------
    sections, whether they look independent
    """
    sections = list(sections)
    while True:
        z = deviations(sections)
        power = float(z @ z)
        correlation = float(z[1:] @ z[:-1]) / power if power > 0.0 else 0.0
        if correlation * math.sqrt(len(z)) < _CORRELATED:
            return sections, True
        if len(sections) // 2 < FEWEST_SECTIONS:
            return sections, False
        pairs = zip(sections[::2], sections[1::2], strict=False)
        sections = [merge(first, second) for first, second in pairs]
