"""What the exact chain leaves out: how far handoff latency shifts the throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trmodel.simulate.intervals import Estimate
from trmodel.simulate.paired import Case, simulate_paired
from trmodel.system import RoutedSystem

SHIFT_BATCHES = 200_000
"""Half a second; intervals of about 0.1 %."""


def handoff_shift(
    system: RoutedSystem,
    B: Sequence[int],
    *,
    seed: int = 0,
    batches: int = SHIFT_BATCHES,
    confidence: float = 0.95,
) -> Estimate | None:
    """Estimate the change of throughput, in percent, that handoff latency makes.

    Both sides are simulated on the same routing decisions. None where no handoff that the
    routing makes takes any time.

    Raises
    ------
    UsageError, InfeasibleError, InputError
        See `trmodel.simulate.simulate`.
    """
    if not system.handoffs_ms.any():
        return None
    cases = {
        "with": Case(system, B),
        "without": Case(replace(system, handoff_ms=np.zeros_like(system.handoff_ms)), B),
    }
    found = simulate_paired(cases, "with", seed=seed, batches=batches, confidence=confidence)
    return found.gain_percent["without"]
