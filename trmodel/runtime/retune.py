"""Tuning in a process of its own, so that it can be killed and never delays a token.

``python -m trmodel.runtime.retune`` reads a `Job` on standard input and writes an `Answer` on
standard output, both JSON.
"""

from __future__ import annotations

import os
import sys

import msgspec

from trmodel.errors import TrmodelError
from trmodel.runtime.table import Vectors

_NICE = 10
Matrix = tuple[tuple[float, ...], ...]


class Job(msgspec.Struct, frozen=True):
    """What to tune.

    Attributes
    ----------
    latency_ms
        (M, max_live).
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
    from trmodel.markov import predict_chain
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
    )
    table = tune_system(system, range(1, job.max_live + 1), time_limit_s=job.time_limit_s)
    vectors = table.thresholds.vectors
    at_n = system.with_N(job.n)
    new, present = (
        predict_chain(at_n, rows[min(job.n, len(rows)) - 1]).throughput_tok_s
        for rows in (vectors, job.present)
    )
    return Answer(vectors, new, present)


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
