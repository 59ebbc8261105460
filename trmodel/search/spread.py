"""Work spread over cores, or over whatever else joblib has a back end for.

By default threads on all cores: the compiled parts run outside the interpreter lock. Inside a
``joblib.parallel_config`` (or ``parallel_backend``) of the caller's its back end and its number of
jobs hold instead, so that Dask or Ray take a search to a cluster.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, TypeVar

from joblib import Parallel, delayed, parallel_config
from joblib.parallel import default_parallel_config, get_active_backend
from threadpoolctl import threadpool_limits

Result = TypeVar("Result")
_AT_ONCE = 256
"""Jobs handed at once to a back end that cannot give results while others still run."""


def in_order(
    function: Callable[..., Result], jobs: Iterable[tuple[Any, ...]]
) -> Generator[Result, None, None]:
    """Yield ``function(*job)`` for every job, in order; a few run ahead of the one yielded next.

    Function, jobs and results must be picklable for back ends that use other processes. Closing
    the generator finishes the jobs in progress and starts no more.
    """
    backend, _ = get_active_backend(prefer="threads")
    as_they_come = getattr(backend, "supports_return_generator", False)
    parallel = Parallel(
        n_jobs=None if _configured() else -1,
        prefer="threads",
        return_as="generator" if as_they_come else "list",
    )
    calls = (delayed(function)(*job) for job in jobs)
    with threadpool_limits(1, user_api="blas"):
        if as_they_come:
            with warnings.catch_warnings():
                # A search that is closed early does not want the results that are under way.
                warnings.filterwarnings("ignore", ".*tasks", UserWarning, "joblib")
                yield from parallel(calls)
            return
        while some := list(islice(calls, _AT_ONCE)):
            yield from parallel(some)


def _configured() -> bool:
    """Whether the caller has chosen a back end or a number of jobs.

    (Joblib's own default is one job, and only a configuration knows the one that it replaces.)
    """
    inner = parallel_config()
    inner.unregister()
    outer = inner.old_parallel_config
    return any(outer[key] is not default_parallel_config[key] for key in ("backend", "n_jobs"))
