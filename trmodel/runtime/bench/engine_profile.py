"""Measure a server's real engines into a profile: tables directly, the rest in a running executor.

Nothing is counted twice:

- the *tables* hold the engine's own step, timed alone (`trmodel.runtime.bench.engine_tables`);
- *slow-downs* are what such a step takes while another engine runs, against alone;
- the *overhead* is what a whole step of the running executor takes beyond all that, and the *wake*
  what it takes still longer if the model was idle (`trmodel.runtime.bench.engine_overhead`);
- *handoffs* last from the end of that whole step until the request is in the other queue.

All of it may be measured in several rounds. A machine drifts; in rounds it does so under the tables
as under the executor, with which they are compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

from trmodel.errors import UsageError
from trmodel.profile import Profile
from trmodel.runtime.bench.engine_document import base_of, profile_of
from trmodel.runtime.bench.engine_process import EngineProcess
from trmodel.runtime.bench.engine_tables import (
    PASSES,
    Cell,
    Factors,
    Grid,
    Tables,
    batches_up_to,
    choose_grid,
    time_slow_downs,
    time_tables,
)
from trmodel.runtime.bench.engine_times import Ready, Times
from trmodel.runtime.bench.loop import PROMPT, REPLY_TOKENS
from trmodel.runtime.bench.running import running
from trmodel.runtime.bench.steps import StepMeasurements, measure_steps, settings
from trmodel.runtime.bench.target import Target
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
    rounds: int = 1,
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
        Of every setting of the running executor in each round, besides the reading of prompts; an
        entry of a table takes an eighth.
    rounds
        How often all of it is measured.
    progress
        Called with what is done and all there is.

    Raises
    ------
    UsageError
        If there are to be no rounds.
    TrmodelError
        One of its subclasses: the file is wrong, an engine cannot be loaded or fails, or there
        were too few steps.
    """
    if rounds < 1:
        raise UsageError(f"rounds: must be at least 1, got {rounds}")
    found = EngineMeasurements(config, largest, contexts, new_tokens, rounds, progress)
    for _ in range(rounds):
        found.time_engines(seconds)
        with running(found.config) as target:
            found.time_executor(target, seconds, warm_up)
    return found.profile(name)


class EngineMeasurements:
    """Rounds of measurements: the engines first, then the executor, as often as one likes.

    Parameters
    ----------
    config, largest, contexts, new_tokens, progress
        As `measure_engines`.
    rounds
        How many are to come, for the progress alone.

    Attributes
    ----------
    config
        The server that is to run as executor.
    """

    def __init__(
        self,
        config: ServerConfig,
        largest: int,
        contexts: Sequence[int] | None = None,
        new_tokens: Sequence[int] | None = None,
        rounds: int = 1,
        progress: Progress | None = None,
    ) -> None:
        self.config = config.model_copy(update={"max_live": largest, "thresholds": "eager"})
        self._largest, self._asked = largest, (contexts, new_tokens)
        self._plan = make_plan(self.config)
        if self._plan.folder is not None:
            shutil.rmtree(self._plan.folder, ignore_errors=True)  # the executor makes its own
        self._base, self._routing = base_of(self._plan)
        self._ready: list[Ready] = []
        self._grid: Grid | None = None
        self._passes: list[dict[Cell, list[Times]]] = [{} for _ in self._plan.specs]
        self._factors: Factors = {}
        self._found = StepMeasurements(self._plan.names)
        self._step = _Steps(progress, rounds)

    def time_engines(self, seconds: float) -> None:
        """Time the engines in processes of their own, every entry for an eighth of the seconds."""
        plan, M, step = self._plan, len(self._plan.specs), self._step
        starting_s, each_s = plan.config.transport.starting_s or 60.0, seconds / SHARE
        with ExitStack() as ended:
            engines = [
                ended.enter_context(closing(EngineProcess(spec, starting_s))) for spec in plan.specs
            ]
            self._ready = [engine.ready() for engine in engines]
            self._grid = grid = self._grid or choose_grid(
                batches_up_to(self._largest), self._room, *self._asked
            )
            runs = len(settings(self._sizes(grid), M))
            step.expect(M * PASSES * len(grid.cells) + M * (M - 1) + runs)
            for engine, passes in zip(engines, self._passes, strict=True):
                time_tables(engine, grid, each_s, step, passes)
            time_slow_downs(engines, grid, each_s, step, self._factors)

    def time_executor(self, target: Target, seconds: float, warm_up: float) -> None:
        """Measure whole steps and handoffs of the running executor.

        Raises
        ------
        UsageError
            If the engines were not timed before.
        """
        grid, tables = self._timed()
        # The context of the extends: what is measured here is compared with them.
        prompt = (PROMPT * (self._room // len(PROMPT) + 1))[: min(grid.middle, self._room // 2)]
        reading_s = len(prompt) * sum(map(_token_s, tables))
        measure_steps(
            target,
            self._largest,
            seconds=seconds,
            warm_up=lambda N: warm_up + N * reading_s,
            sizes=self._sizes(grid),
            reply_tokens=min(REPLY_TOKENS, self._room - len(prompt)),
            prompt=prompt,
            into=self._found,
            progress=lambda *_: self._step(),
        )

    def profile(self, name: str) -> Profile:
        """Make the profile document of all rounds so far.

        Raises
        ------
        UsageError
            If the engines were not timed.
        TrmodelError
            If the executor made too few steps.
        """
        _, tables = self._timed()
        return profile_of(
            self._plan,
            self._base,
            self._routing,
            self._ready,
            tables,
            self._factors,
            self._found,
            name,
        )

    def _timed(self) -> tuple[Grid, list[Tables]]:
        grid = self._grid
        if grid is None:
            raise UsageError("the engines come first: time_engines")
        return grid, [Tables.of(grid, passes) for passes in self._passes]

    @property
    def _room(self) -> int:
        """Tokens that each of so many requests may hold."""
        capacities = [one.kv_capacity for one in self._ready if one.kv_capacity is not None]
        config = self._plan.config
        if config.kv_tokens is not None:
            capacities.append(config.kv_tokens)
        return min([config.max_context, *(tokens // self._largest for tokens in capacities)])

    def _sizes(self, grid: Grid) -> list[int]:
        return sorted({1, grid.middle_batch, self._largest})


def _token_s(tables: Tables) -> float:
    """Seconds that a model takes to read one token of many."""
    (new, batch), timing = max(tables.extend.items(), default=((1, 1), None))
    return 0.0 if timing is None else timing.mean_ms / (1000.0 * new * batch)


class _Steps:
    """Counts what is done, for a progress bar."""

    def __init__(self, progress: Progress | None, rounds: int) -> None:
        self._progress, self._rounds, self._total, self._done = progress, rounds, 0, 0

    def expect(self, in_a_round: int) -> None:
        """Say how much there is to do in each round."""
        self._total = self._rounds * in_a_round

    def __call__(self) -> None:
        self._done += 1
        if self._progress:
            self._progress(self._done, self._total)
