"""The launch rule of delayed batching, stated once for the chain, simulation and executor.

A model i that is idle starts a batch only when at least B_i requests wait for it, and then takes
all that wait, up to its largest batch (arXiv:2610.12242, section on delayed batching).
B_i = 1 is eager launching.
"""

from __future__ import annotations


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


def is_live(thresholds: tuple[int, ...], n: int) -> bool:
    """Say whether a threshold vector can never deadlock with n runnable requests.

    If sum_i (B_i - 1) < n, not all n requests can wait in queues that are all below their
    thresholds, so some idle model always starts (arXiv:2610.12242, appendix D). The condition
    does not depend on the routing and also holds with a largest batch below n.
    """
    return sum(b - 1 for b in thresholds) < n
