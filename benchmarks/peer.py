"""Standard serving: an engine for each model, and a dispatcher outside them.

An engine knows nothing of routing, so the dispatcher asks one token at a time, with the whole
context, of the engine whose turn it is. Everything else is as good as it can be: engines and
dispatcher speak token ids and share a machine without HTTP between them, all requests are in
flight at once, and batching is left to the engine, which is SGLang's own. `Dispatcher` is a
`trmodel.runtime.bench.target.Target`, so what measures the executor measures it as well.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from trmodel.runtime.bench.target import Hear, Stats
from trmodel.runtime.counters import Counters
from trmodel.runtime.engines.sglang import attention
from trmodel.runtime.messages import Sampling
from trmodel.runtime.policies import Policy
from trmodel.runtime.request import Batch, Request, StepResult
from trmodel.runtime.table import Vectors

Steps = Callable[[int], Iterator[tuple[int, bool]]]
"""By a request's seed: the model of each of its steps, and whether the token is committed."""
NextToken = Callable[[list[int]], Awaitable[tuple[int, int]]]
"""By a context: the token after it, and how many tokens the engine read for that."""


def steps_of(policy: Policy, entry: int = 0) -> Steps:
    """Return the decisions of a policy that goes by seed, steps and committed tokens alone."""

    def steps(seed: int) -> Iterator[tuple[int, bool]]:
        request = Request(0, [], 0, Sampling(seed=seed), handoff=0, steps=0, seen=[])
        model = entry
        while True:
            batch = Batch(model, [request], 0.0, [0.0])
            destination = int(policy.route(batch, StepResult([0]))[0])
            kept = policy.commit(request, [0], model, destination)
            yield model, bool(kept)
            request.token_ids += kept
            request.steps += 1
            model = destination

    return steps


class Dispatcher:
    """Asks the engines for one token after the other.

    Parameters
    ----------
    names
        The models'.
    engines
        Of each model, in that order.
    steps
        The routing decisions.
    loop
        Runs on a thread of its own; engines are called there.
    """

    def __init__(
        self,
        names: Sequence[str],
        engines: Sequence[NextToken],
        steps: Steps,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.names, self.engines, self._steps, self._loop = tuple(names), engines, steps, loop
        self._counters = [Counters(len(names)) for _ in names]
        self._live: set[Future[None]] = set()

    def stats(self) -> Stats:
        """Count a token's time at its engine as forward; steps are the engine's secret."""
        pid, now_s = os.getpid(), time.monotonic()
        counted = {
            model: deepcopy(counters.values(table_version=0, pid=pid, now_s=now_s, resent=0))
            for model, counters in enumerate(self._counters)
        }
        return Stats(self.names, counted, len(self._live), 0, 0)

    def set_thresholds(self, vectors: Vectors) -> None:
        """There are none: every engine batches as it likes."""

    def ask(self, prompt: Sequence[int], tokens: int, seed: int, hear: Hear) -> Callable[[], None]:
        """Begin a reply; see `trmodel.runtime.bench.target.Target`."""
        reply = asyncio.run_coroutine_threadsafe(
            self._reply(list(prompt), tokens, self._steps(seed), hear), self._loop
        )
        self._live.add(reply)
        reply.add_done_callback(self._live.discard)
        return lambda: reply.cancel() and None

    async def _reply(
        self, ids: list[int], tokens: int, steps: Iterator[tuple[int, bool]], hear: Hear
    ) -> None:
        try:
            model, keep = next(steps)
            while tokens:
                counters = self._counters[model]
                asked_at = time.monotonic()
                token, read = await self.engines[model](ids)
                counters.forward_s += time.monotonic() - asked_at
                counters.extended += read - 1
                here, kept = model, keep
                model, keep = next(steps)
                tokens -= kept
                # What ends stays where it is, as the executor counts it.
                counters.moved(model if tokens else here, int(kept), away=model != here)
                if kept:
                    ids.append(token)
                    hear(1, "" if tokens else "length")
        except Exception as error:
            hear(0, f"error: {type(error).__name__}: {error}")


def engine_arguments(
    path: str | Path, options: Mapping[str, Any], *, radix: bool
) -> dict[str, Any]:
    """Return the arguments of `sglang.Engine` for a model that is asked for single tokens.

    On the CPU attention is computed as the executor has it computed, not by SGLang's plain
    backend, which takes longer the longer the context is: what differs is the way of serving.
    """
    common = {
        "model_path": str(path),
        "skip_tokenizer_init": True,
        "skip_server_warmup": True,
        "disable_radix_cache": not radix,
        "grammar_backend": "none",
        # An engine with nothing to do would keep from the other what they share, the CPU.
        "sleep_on_idle": True,
        "log_level": "error",
    }
    on_cpu = {
        "attention_backend": attention.NAME,
        "sampling_backend": "pytorch",
        "disable_cuda_graph": True,
        "disable_overlap_schedule": True,
        "mem_fraction_static": 0.3,
    }
    return common | (on_cpu if options.get("device") == "cpu" else {}) | dict(options)


def run_scheduler(*args: Any, **kwargs: Any) -> None:
    """Run an engine's process that knows the executor's attention as well."""
    from sglang.srt.managers.scheduler import run_scheduler_process

    attention.register()
    run_scheduler_process(*args, **kwargs)


@contextmanager
def standard_serving(
    models: Mapping[str, str | Path],
    steps: Steps,
    options: Mapping[str, Any],
    *,
    radix: bool,
    cores: Sequence[Sequence[int]] = (),
) -> Iterator[Dispatcher]:
    """Yield a dispatcher over engines of their own processes, which end with it.

    All other child processes of this one are ended as well: SGLang's way to shut down. On the CPU,
    `trmodel.runtime.engines.sglang.environment.prepare_cpu` comes first.

    Parameters
    ----------
    models
        Name and folder of each.
    options
        Arguments of `sglang.Engine`, of all models.
    radix
        Whether engines keep the KV of what they have read, for whoever asks again.
    cores
        Where each engine may run; empty for anywhere.
    """
    from sglang.srt.entrypoints.engine import Engine

    class WithAttention(Engine):
        run_scheduler_process_func = staticmethod(run_scheduler)

    engines: list[Any] = []
    try:
        for path in models.values():  # one that fails leaves none of the others behind
            engine = WithAttention(**engine_arguments(path, options, radix=radix))
            engines.append(engine)
        for engine, of_engine in zip(engines, cores, strict=False):
            for process in engine.get_all_child_pids():
                _pin(process, of_engine)
        loop = engines[0].loop
        runs = threading.Thread(target=loop.run_forever, name="dispatcher", daemon=True)
        runs.start()
        yield Dispatcher(list(models), [_next_token(engine) for engine in engines], steps, loop)
        loop.call_soon_threadsafe(loop.stop)
        runs.join()
    finally:
        for engine in engines:
            engine.shutdown()


def _next_token(engine: Any) -> NextToken:
    sampling = {"max_new_tokens": 1, "temperature": 0.0, "ignore_eos": True}

    async def next_token(ids: list[int]) -> tuple[int, int]:
        answer = await engine.async_generate(input_ids=ids, sampling_params=sampling)
        told = answer["meta_info"]
        return answer["output_ids"][-1], told["prompt_tokens"] - told["cached_tokens"]

    return next_token


def _pin(process: int, cores: Sequence[int]) -> None:
    """Keep every thread of a process on some cores."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)
