"""The one interpolation of a latency table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from trmodel.arrays import FloatArray
from trmodel.errors import InputError


def decode_latency(
    batches: Sequence[int],
    latency_ms: Sequence[float],
    sizes: ArrayLike,
    *,
    where: str = "decode.batch",
    model: str = "the model",
) -> FloatArray:
    """Return the duration of a decode step for given batch sizes, linear between listed ones.

    Nothing is extrapolated: beyond the last listed size a step may grow faster than the table.

    Parameters
    ----------
    batches, latency_ms
        The table: strictly increasing batch sizes and the latency of each, in milliseconds.
    sizes
        Batch sizes to evaluate, any shape.
    where, model
        The field and the model to name if the table does not reach.

    Returns
    -------
    Latencies in milliseconds, of the shape of ``sizes``.

    Raises
    ------
    InputError
        If a size lies outside the table.
    """
    wanted = np.asarray(sizes, dtype=np.float64)
    if wanted.size and wanted.max() > batches[-1]:
        raise InputError(
            f"{where}: {model} has latencies for batches up to {batches[-1]}, but batches of "
            f"{wanted.max():g} can form; add larger batches, lower N, or bound them with "
            f"max_batch (--max-batch {batches[-1]})"
        )
    if wanted.size and wanted.min() < batches[0]:
        raise InputError(
            f"{where}: {model} has no latency for a batch of {wanted.min():g}, the smallest is "
            f"{batches[0]}"
        )
    return np.asarray(np.interp(wanted, batches, latency_ms))
