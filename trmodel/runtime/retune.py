"""Tuning in a process of its own, so that it can be killed and never delays a token.

``python -m trmodel.runtime.retune`` reads a `Job` on standard input and writes an `Answer` on
standard output, both JSON.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from trmodel.errors import TrmodelError
from trmodel.runtime.table import Vectors

if TYPE_CHECKING:
    from trmodel.system import RoutedSystem

_NICE = 10
_BATCHES = 400_000
"""Of a simulation: its interval is about a tenth of a percent."""
Matrix = tuple[tuple[float, ...], ...]


class Job(msgspec.Struct, frozen=True):
    """What to tune.

    Attributes
    ----------
    latency_ms
        (M, max_live), without waking.
    wake_ms
        (M,)
    handoff_ms
        (M, M). Tuning goes without, by the exact chain; the throughput at ``n`` has them.
    n
        The concurrency at which old and new thresholds are compared.
    present
        B(1), B(2), ... in force.
    """

    models: tuple[str, ...]
    latency_ms: Matrix
    transition_probability: Matrix
    committed_tokens: Matrix
    slow_down: Matrix
    wake_ms: tuple[float, ...]
    handoff_ms: Matrix
    entry: int
    max_batch: tuple[int, ...]
    grid_ms: float
    max_live: int
    n: int
    present: Vectors
    time_limit_s: float


class Answer(msgspec.Struct, frozen=True):
    """What was found: a table for n = 1..max_live, or why there is none.

    Attributes
    ----------
    new_tok_s, present_tok_s
        Predicted throughput at n under the new and the present thresholds.
    """

    vectors: Vectors = ()
    new_tok_s: float = 0.0
    present_tok_s: float = 0.0
    error: str = ""


def retune(job: Job) -> Answer:
    """Tune, and say what the new thresholds gain.

    Raises
    ------
    TrmodelError
        One of its subclasses, if the system cannot be tuned.
    """
    from trmodel.search import tune_system
    from trmodel.system import RoutedSystem

    system = RoutedSystem(
        job.models,
        job.latency_ms,
        job.transition_probability,
        job.committed_tokens,
        job.max_live,
        entry=job.entry,
        max_batch=job.max_batch,
        grid_ms=job.grid_ms,
        slow_down=job.slow_down,
        wake_ms=job.wake_ms,
    )
    table = tune_system(system, range(1, job.max_live + 1), time_limit_s=job.time_limit_s)
    vectors = table.thresholds.vectors
    at_n = replace(system.with_N(job.n), handoff_ms=np.asarray(job.handoff_ms))
    new, present = (
        _throughput_tok_s(at_n, rows[min(job.n, len(rows)) - 1]) for rows in (vectors, job.present)
    )
    return Answer(vectors, new, present)


def _throughput_tok_s(system: RoutedSystem, B: tuple[int, ...]) -> float:
    """Predict, by the exact chain unless handoffs take time, which it does not have."""
    from trmodel.markov import predict_chain
    from trmodel.simulate import simulate

    if system.handoffs_ms.any():
        return simulate(system, B, batches=_BATCHES).throughput_tok_s.value
    return predict_chain(system, B).throughput_tok_s


def main() -> None:
    """Answer one job."""
    os.nice(_NICE)
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    try:
        answer = retune(job)
    except TrmodelError as error:
        answer = Answer(error=str(error).splitlines()[0])
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
