"""The launch rule of delayed batching and its liveness, stated once for chain and executor.

A model i that is idle starts a batch only when at least B_i requests wait for it, and then takes
all that wait, up to its largest batch. B_i = 1 is eager launching.

**Liveness.** With n requests that can run, thresholds B can never deadlock if

    sum_i (B_i - 1) < n:

not all n can then wait in queues that are all below their thresholds, so some idle model starts.
The condition does not depend on the routing and also holds with a largest batch below n.

Source: arXiv:2610.12242, delayed batching and appendix D.
"""

from __future__ import annotations

from collections.abc import Sequence

from trmodel.errors import InfeasibleError


def launch_size(waiting: int, running: int, threshold: int, max_batch: int) -> int:
    """Return how many requests an idle model starts now; 0 when it holds or is busy.

    Parameters
    ----------
    waiting
        Requests queued at the model, k_i.
    running
        Size of the batch in progress, b_i (0 when the model is idle).
    threshold
        B_i, the fewest requests that start a batch.
    max_batch
        The most requests that one batch can hold.
    """
    if running > 0 or waiting < threshold:
        return 0
    return min(waiting, max_batch)


def threshold_in_force(threshold: int, waited: float, hold: float) -> int:
    """Return B_i, or 1 once the oldest request has waited as long as requests may be held.

    With arrivals that come and go, fewer than B_i requests may be left: only a hold time then
    keeps them from waiting for ever. ``waited`` and ``hold`` are in the same unit of time.
    """
    return 1 if waited >= hold else threshold


def is_live(B: Sequence[int], n: int) -> bool:
    """Say whether thresholds B can never deadlock with n runnable requests."""
    return sum(b - 1 for b in B) < n


def require_live(B: Sequence[int], n: int) -> None:
    """Refuse thresholds that can deadlock, with a state in which nothing can start.

    Raises
    ------
    InfeasibleError
        Naming the sum that is too large and such a state.
    """
    if is_live(B, n):
        return
    waiting, left = [], n
    for b in B:
        waiting.append(min(b - 1, left))
        left -= waiting[-1]
    raise InfeasibleError(
        f"B = {shown_vector(B)} can deadlock at N = {n}: sum(B_i - 1) = "
        f"{sum(b - 1 for b in B)} must be below N; with {shown_vector(waiting)} requests waiting "
        "no model may start"
    )


def shown_vector(values: Sequence[int]) -> str:
    """Write a vector the way the command line takes it: ``1,3``."""
    return ",".join(map(str, values))
