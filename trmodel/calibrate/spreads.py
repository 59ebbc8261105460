"""Systems drawn at random about a nominal one: how uncertain its numbers are taken to be."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logit
from scipy.stats import norm

from trmodel.arrays import FloatArray
from trmodel.calibrate.law import FittedLaw
from trmodel.errors import UsageError
from trmodel.system import RoutedSystem
from trmodel.system_checks import MAX_SLOW_DOWN, slow_down_table

LATENCY_PERCENT = 3.0
SLOW_DOWN_PERCENT = 10.0
P_PERCENT = 10.0


@dataclass(frozen=True)
class Spreads:
    """Standard deviations, in percent, of what a system consists of.

    Attributes
    ----------
    p_percent
        Of each probability of handing over, relative to it.
    p_interval
        Instead, for two models: a 95 % interval of the probability that the first hands over.
    latency_percent
        Of a factor common to all steps of a model.
    slow_down_percent
        Of each slow-down.
    fit
        Where overheads and slow-downs are drawn from jointly, or None.
    defaults
        Names of the above that are defaults, for the words.
    """

    p_percent: float = P_PERCENT
    p_interval: tuple[float, float] | None = None
    latency_percent: float = LATENCY_PERCENT
    slow_down_percent: float = SLOW_DOWN_PERCENT
    fit: FittedLaw | None = None
    defaults: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in ("p_percent", "latency_percent", "slow_down_percent"):
            value = getattr(self, name)
            if not 0.0 <= value <= 100.0:
                raise UsageError(f"{name}: must be between 0 and 100, got {value}")
        if self.p_interval is not None and not 0.0 < self.p_interval[0] < self.p_interval[1] < 1.0:
            low, high = self.p_interval
            raise UsageError(f"p_interval: must rise between 0 and 1, got {low:g}, {high:g}")

    def __str__(self) -> str:
        p = f"p by {self._by('p_percent')}"
        if self.p_interval is not None:
            p = f"p from {self.p_interval[0]:g} to {self.p_interval[1]:g} (95 %)"
        parts = [p]
        if self.latency_percent or self.fit is None:
            parts.append(f"latencies by {self._by('latency_percent')} per model")
        if self.slow_down_percent or self.fit is None:
            parts.append(f"slow-downs by {self._by('slow_down_percent')}")
        if self.fit is not None:
            source = self.fit.source
            parts.append(f"overheads and slow-downs as the fit leaves them ({source})")
        return ", ".join(parts)

    def _by(self, name: str) -> str:
        return f"{getattr(self, name):g} %{' (default)' if name in self.defaults else ''}"


def drawn_systems(
    system: RoutedSystem, spreads: Spreads, samples: int, seed: int
) -> list[RoutedSystem]:
    """Draw systems about a nominal one.

    - Row i of the transition probabilities is logistic-normal: each p_ij relative to p_ii (or, if
      that is 0, to the largest) is multiplied by a log-normal factor. Zeros stay zero.
    - All latencies of a model and its waking are multiplied by one log-normal factor.
    - Each slow-down above 1 is multiplied by a log-normal factor and cut at 1. One that is 1 says
      that the models are on GPUs of their own, which is not in doubt.
    - With a fit, its draws of overheads and slow-downs take the place of the nominal ones first.

    Medians are the nominal values, except that of p with ``p_interval``.

    Raises
    ------
    UsageError
        If ``p_interval`` is given for other than two models, or the fit is of other models.
    """
    M = system.M
    if spreads.p_interval is not None and not (M == 2 and system.plain):
        raise UsageError(
            f"p_interval: applies to systems of two models of one phase each, this one has {M} "
            f"models and {system.U} phases"
        )
    rng = np.random.default_rng(seed)
    # Every kind of number has a fixed share of the stream: a spread of 0 leaves the others alone.
    z_p = rng.standard_normal((samples, system.U, system.U))
    z_latency = rng.standard_normal((samples, M))
    z_slow = rng.standard_normal((samples, M, M))
    fitted = None if spreads.fit is None else _fitted(system, spreads.fit, samples, rng)
    result = []
    for k in range(samples):
        latency, slow_down = system.latency_ms, system.slow_down
        if fitted is not None:
            latency, slow_down = fitted[k]
        longer = np.exp(_sigma(spreads.latency_percent) * z_latency[k])
        latency = latency * longer[:, None]
        factor = np.exp(_sigma(spreads.slow_down_percent) * z_slow[k])
        result.append(
            replace(
                system,
                transition_probability=_probabilities(system, spreads, z_p[k]),
                latency_ms=np.maximum(latency, system.grid_ms),
                slow_down=_slowed(slow_down, factor),
                wake_ms=system.wake_ms * longer,
            )
        )
    return result


def _sigma(percent: float) -> float:
    return percent / 100.0


def _probabilities(system: RoutedSystem, spreads: Spreads, z: FloatArray) -> FloatArray:
    P = np.array(system.transition_probability)
    for i, row in enumerate(P):
        if i == 0 and spreads.p_interval is not None:
            low, high = logit(spreads.p_interval)
            at = (low + high) / 2.0 + (high - low) / (2.0 * norm.ppf(0.975)) * z[0, 1]
            P[0] = [1.0 / (1.0 + np.exp(at)), 1.0 / (1.0 + np.exp(-at))]
            continue
        others = (row > 0.0) & (row < 1.0)
        others[i if row[i] > 0.0 else int(np.argmax(row))] = False
        # d log p = (1 - p) d log(odds): this makes the spread of p itself the stated one.
        sigma = _sigma(spreads.p_percent) / np.where(others, 1.0 - row, 1.0)
        row = row * np.exp(np.where(others, sigma * z[i], 0.0))
        P[i] = row / row.sum()
    return P


def _slowed(slow_down: FloatArray, factor: FloatArray) -> FloatArray:
    """Multiply slow-downs of pairs by (M, M) factors, where they are above 1; (2^M, M)."""
    M = slow_down.shape[1]
    pairs = {}
    for i in range(M):
        for j in range(i + 1, M):
            both = 1 << i | 1 << j
            pairs[i, j] = (
                factor[i, j] if slow_down[both, i] > 1.0 else 1.0,
                factor[j, i] if slow_down[both, j] > 1.0 else 1.0,
            )
    return np.clip(slow_down * slow_down_table(M, pairs), 1.0, MAX_SLOW_DOWN)


def _fitted(
    system: RoutedSystem, fit: FittedLaw, samples: int, rng: np.random.Generator
) -> list[tuple[FloatArray, FloatArray]]:
    """Latencies and slow-downs of the system with the fit's draws in place of its estimates."""
    if fit.models != set(system.models):
        raise UsageError(
            f"fit: is of {', '.join(sorted(fit.models))}, the system has {', '.join(system.models)}"
        )
    place = {name: i for i, name in enumerate(system.models)}
    result = []
    for theta in fit.draws(samples, rng):
        change = np.zeros(system.M)
        slow = np.ones((system.M, system.M))
        for parameter, estimate, value in zip(fit.parameters, fit.theta, theta, strict=True):
            i = place[parameter.model]
            if parameter.beside is None:
                change[i] = value - estimate
            else:
                slow[i, place[parameter.beside]] = value
        pairs = {
            (i, j): (slow[i, j], slow[j, i])
            for i in range(system.M)
            for j in range(i + 1, system.M)
        }
        result.append((system.latency_ms + change[:, None], slow_down_table(system.M, pairs)))
    return result
