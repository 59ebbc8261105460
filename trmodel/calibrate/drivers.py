"""What the gain of delayed batching over eager launching rests on.

The gain is computed again with one property of the system switched off at a time:

- *batch growth*: a step takes L_i(1) whatever its batch;
- *contention*: models that run together do not slow each other;
- *waking*, where there is some: a model that was idle starts as fast as others;
- *routing*: the entry model hands over half as often, whatever the phase.

The effects do not add up: each is what is missing when that property alone is gone. Thresholds
stay as given, although another choice might suit the changed system better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from trmodel.arrays import FloatArray
from trmodel.errors import UsageError
from trmodel.launch import shown_vector
from trmodel.markov import Limits, solve_chain
from trmodel.system import RoutedSystem

SMALL = 0.5
"""Percentage points of gain below which a change is not worth a word."""
UNKNOWN = "no slow-downs in this profile; models that share GPUs have some, which would matter"
DriverName = Literal["routing", "batch growth", "contention", "waking"]


@dataclass(frozen=True)
class Driver:
    """The gain with one property of the system switched off.

    Attributes
    ----------
    gain_percent, gain_without_percent
        Gain over eager launching as the system is, and without the property.
    reading
        What that means, in a sentence. Of contention, if the system has no slow-down, that it is
        not known what it matters.
    """

    name: DriverName
    gain_percent: float
    gain_without_percent: float
    reading: str

    @property
    def effect_points(self) -> float:
        """Percentage points of gain that go with the property; below 0 it costs gain."""
        return self.gain_percent - self.gain_without_percent

    def to_dict(self) -> dict[str, Any]:
        """Return the driver as plain values, ready for JSON."""
        return asdict(self) | {"effect_points": self.effect_points}


def gain_drivers(
    system: RoutedSystem, B: Sequence[int], *, limits: Limits = Limits()
) -> list[Driver]:
    """Say which of routing, batch growth, contention and waking drives the gain of B over eager.

    Returns
    -------
    list of Driver
        The one with the largest effect first.

    Raises
    ------
    UsageError
        If B is eager launching itself.
    InfeasibleError, LimitError
        See `solve_chain`.
    """
    thresholds = system.check_thresholds(B)
    if set(thresholds) == {1}:
        raise UsageError(f"B = {shown_vector(B)} is eager launching, there is no gain to explain")
    gain = _gain(system, thresholds, limits)
    constant = np.repeat(system.latency_ms[:, :1], system.N, axis=1)
    rarely = halved_hand_over(system)
    without: dict[DriverName, RoutedSystem] = {
        "routing": replace(system, transition_probability=rarely),
        "batch growth": replace(system, latency_ms=constant),
        "contention": replace(system, slow_down=np.ones_like(system.slow_down)),
    }
    if system.wake_ms.any():
        without["waking"] = replace(system, wake_ms=np.zeros(system.M))
    switch = {
        "routing": f"with half the hand-overs from {system.models[system.entry_model]}",
        "batch growth": "if steps took no longer with larger batches",
        "contention": "if models that run together did not slow each other",
        "waking": "if models that were idle started as fast as others",
    }
    drivers = []
    for name, changed in without.items():
        if name == "contention" and np.all(system.slow_down == 1.0):
            other, said = gain, UNKNOWN
        else:
            other = _gain(changed, thresholds, limits)
            said = _reading(gain, other, switch[name])
        reading = f"{name}: {said}"
        drivers.append(Driver(name, gain, other, reading))
    return sorted(drivers, key=lambda driver: -abs(driver.effect_points))


def halved_hand_over(system: RoutedSystem) -> FloatArray:
    """Return (U, U) transition probabilities with the entry model's hand-overs half as likely.

    The other half goes where the phase moves within the model; back to itself if it does not.
    """
    P = np.array(system.transition_probability)
    inside = system.phase_model == system.entry_model
    for u in np.flatnonzero(inside):
        row = P[u] / 2.0
        stays = P[u] * inside
        if not stays.any():
            stays[u] = 1.0
        row[inside] = ((1.0 - row[~inside].sum()) * stays / stays.sum())[inside]
        P[u] = row
    return P


def _gain(system: RoutedSystem, B: tuple[int, ...], limits: Limits) -> float:
    """Gain over eager launching in percent."""
    eager = solve_chain(system, (1,) * system.M, limits=limits).throughput_tok_s
    return 100.0 * (solve_chain(system, B, limits=limits).throughput_tok_s / eager - 1.0)


def _reading(gain: float, other: float, switch: str) -> str:
    if abs(gain - other) < SMALL:
        return f"hardly matters, the gain would stay at {other:.1f} % {switch}"
    if gain > 0.0 >= other:
        return f"the gain of {gain:.1f} % rests on it, there would be none ({other:.1f} %) {switch}"
    if gain > other:
        return f"raises the gain to {gain:.1f} %, which would be {other:.1f} % {switch}"
    return f"lowers the gain to {gain:.1f} %, which would be {other:.1f} % {switch}"
