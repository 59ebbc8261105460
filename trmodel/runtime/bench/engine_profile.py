"""Measure a server's real engines into a profile: tables directly, the rest in a running executor.

Nothing is counted twice:

- the *tables* hold the engine's own step, timed alone (`trmodel.runtime.bench.engine_tables`);
- *slow-downs* are what such a step takes while another engine runs, against alone;
- the *overhead* is what a whole step of the running executor takes beyond all that
  (`trmodel.runtime.bench.engine_overhead`);
- *handoffs* last from the end of that whole step until the request is in the other queue.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

from trmodel.profile import Profile
from trmodel.runtime.bench.engine_document import base_of, profile_of
from trmodel.runtime.bench.engine_process import EngineProcess
from trmodel.runtime.bench.engine_tables import (
    PASSES,
    Tables,
    batches_up_to,
    choose_grid,
    slow_downs,
    time_tables,
)
from trmodel.runtime.bench.engine_times import Ready
from trmodel.runtime.bench.loop import PROMPT, REPLY_TOKENS
from trmodel.runtime.bench.running import running
from trmodel.runtime.bench.steps import measure_steps, settings
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.plan import make_plan

SHARE = 8.0
"""An entry of a table is timed for this part of a setting's time."""
Progress = Callable[[int, int], None]


def measure_engines(
    config: ServerConfig,
    largest: int = 16,
    *,
    contexts: Sequence[int] | None = None,
    new_tokens: Sequence[int] | None = None,
    seconds: float = 3.0,
    warm_up: float = 1.0,
    name: str = "measured",
    progress: Progress | None = None,
) -> Profile:
    """Measure the models of a server's file, on this machine.

    Parameters
    ----------
    config
        The server; its engine is one that can be timed.
    largest
        Largest batch.
    contexts, new_tokens
        What the tables list; see `trmodel.runtime.bench.engine_tables.choose_grid`.
    seconds, warm_up
        Of every setting of the running executor, besides the reading of prompts; an entry of a
        table takes an eighth.
    progress
        Called with what is done and all there is.

    Raises
    ------
    TrmodelError
        One of its subclasses: the file is wrong, an engine cannot be loaded or fails, or there
        were too few steps.
    """
    config = config.model_copy(update={"max_live": largest, "thresholds": "eager"})
    plan = make_plan(config)
    if plan.folder is not None:
        shutil.rmtree(plan.folder, ignore_errors=True)  # the executor makes its own
    base, routing = base_of(plan)
    starting_s = plan.config.transport.starting_s or 60.0
    with ExitStack() as ended:
        engines = [
            ended.enter_context(closing(EngineProcess(spec, starting_s))) for spec in plan.specs
        ]
        ready = [engine.ready() for engine in engines]
        room = _room(plan.config, ready, largest)
        grid = choose_grid(batches_up_to(largest), room, contexts, new_tokens)
        sizes = sorted({1, grid.middle_batch, largest})
        M = len(engines)
        step = _Steps(progress, M * PASSES * grid.cells + M * (M - 1) + len(settings(sizes, M)))
        tables = [time_tables(engine, grid, seconds / SHARE, step) for engine in engines]
        factors = slow_downs(engines, grid, seconds / SHARE, step)
    # The context of the extends: what is measured next is compared with them.
    prompt = (PROMPT * (room // len(PROMPT) + 1))[: min(grid.middle, room // 2)]
    reading_s = len(prompt) * sum(map(_token_s, tables))
    with running(config) as target:
        found = measure_steps(
            target,
            largest,
            seconds=seconds,
            warm_up=lambda N: warm_up + N * reading_s,
            sizes=sizes,
            reply_tokens=min(REPLY_TOKENS, room - len(prompt)),
            prompt=prompt,
            progress=lambda done, of: step(),
        )
    return profile_of(plan, base, routing, ready, tables, factors, found, name)


def _token_s(tables: Tables) -> float:
    """Seconds that a model takes to read one token of many."""
    (new, batch), timing = max(tables.extend.items(), default=((1, 1), None))
    return 0.0 if timing is None else timing.mean_ms / (1000.0 * new * batch)


class _Steps:
    """Counts what is done, for a progress bar."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self) -> None:
        self._done += 1
        if self._progress:
            self._progress(self._done, self._total)


def _room(config: ServerConfig, ready: Sequence[Ready], largest: int) -> int:
    """Tokens that each of so many requests may hold."""
    capacities = [one.kv_capacity for one in ready if one.kv_capacity is not None]
    if config.kv_tokens is not None:
        capacities.append(config.kv_tokens)
    return min([config.max_context, *(tokens // largest for tokens in capacities)])
