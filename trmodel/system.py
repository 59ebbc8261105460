"""The vocabulary: what a token-level routing system is.

**System.** M models serve N requests in a closed loop: a finished request is replaced at once.
A *step* of model i runs one batch; when it completes, each of its requests commits tokens and is
routed to a model independently of the others.

- ``latency_ms[i, b - 1]``, L_i(b): duration of a step of model i with b requests.
- ``transition_probability[i, j]``, p_ij: after a step at i, the request goes to j (p_ii: stays).
- ``committed_tokens[i, j]``, c_ij: output tokens committed when that happens.
- ``phases``: i and j above are *phases*, each of which belongs to a model (`trmodel.phases`); a
  plain system has one phase per model, so that they are the models themselves.
- ``entry``: the phase in which all N requests wait at the start.
- ``restart``: the phase, if any, that opens a new reply: entering it completes the one before.
- ``max_batch[i]``: the most requests one step of model i can take.
- ``handoff_ms[i, j]``, d_ij: delay between leaving model i and joining the queue of model j, which
  occupies no model. The exact chain does not have it; simulation and executor do.
- ``slow_down[S, i]``, s_i(S): while exactly the models of the bit mask S run, a step of model i
  takes s_i(S) times as long (contention for shared GPUs; 1 for models on GPUs of their own).
- ``wake_ms[i]``, w_i: how much longer than L_i(b) a step of model i takes where the model was idle
  before (its threads are woken, its caches and clocks are cold). A model that starts in the very
  moment in which its last batch completed was not idle.
- ``grid_ms``: the time unit of the chain; a latency is rounded to a whole number of them.

A *threshold vector* B = (B_0, ..., B_{M-1}) says how many requests must wait at an idle model
before it starts; it is not part of the system but the thing to be chosen for it.

Source: arXiv:2610.12242, appendix D, whose notation (N, M, B, L, p, c) is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from trmodel.arrays import FloatArray, IntArray
from trmodel.errors import InputError, UsageError
from trmodel.phases import Phase, one_per_model, phase_problems
from trmodel.system_checks import (
    SlowDowns,
    delays,
    entry_index,
    is_int,
    is_number,
    is_positive,
    latencies,
    max_batches,
    probability_problems,
    slow_downs,
    square_matrix,
    token_problems,
    wakes,
)

DEFAULT_GRID_MS = 0.1
MAX_CONCURRENCY = 65_536
MAX_MODELS = 12
"""Slow-downs are tabulated for every set of running models."""


@dataclass(frozen=True, eq=False, init=False)
class RoutedSystem:
    """A token-level routing system at concurrency N, validated once on construction.

    Parameters
    ----------
    models
        M distinct names.
    latency_ms
        For each model either one number (a step takes the same time whatever the batch) or the
        latencies of batch sizes 1, 2, ...; in milliseconds. Stored as an (M, N) array in which
        sizes above ``max_batch`` repeat the last usable one.
    transition_probability
        (U, U) for U phases, rows summing to one; (M, M) in a plain system.
    committed_tokens
        (U, U), non-negative.
    N
        Concurrent requests, at least 1.
    entry
        Index or name of the phase in which all requests start.
    max_batch
        One number for all models, one per model, or None for no bound below N. Stored as a tuple
        of values in 1..N.
    grid_ms
        Time unit to which latencies are rounded.
    slow_down
        Factors of at least 1 by which models that run at the same time slow each other, one entry
        (i, j): (s_i, s_j) for each pair that does; see `slow_down_table`. Or such a table.
    phases
        U phases, at least one for each model; none for a plain system.
    restart
        Index or name of the phase that opens a new reply, or None.
    handoff_ms
        (M, M) delays in milliseconds between models; None for none.
    wake_ms
        (M,) milliseconds that a step of a model which was idle takes longer; None for none.

    Raises
    ------
    InputError
        With every problem found, each naming the field.
    """

    models: tuple[str, ...]
    latency_ms: FloatArray
    transition_probability: FloatArray
    committed_tokens: FloatArray
    N: int
    entry: int = 0
    max_batch: tuple[int, ...] = ()
    grid_ms: float = DEFAULT_GRID_MS
    slow_down: FloatArray = field(default_factory=lambda: np.ones((1, 1)))
    phases: tuple[Phase, ...] = ()
    restart: int | None = None
    handoff_ms: FloatArray = field(default_factory=lambda: np.zeros((1, 1)))
    wake_ms: FloatArray = field(default_factory=lambda: np.zeros(1))
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def __init__(
        self,
        models: Sequence[str],
        latency_ms: Sequence[float | ArrayLike],
        transition_probability: ArrayLike,
        committed_tokens: ArrayLike,
        N: int,
        *,
        entry: int | str = 0,
        max_batch: int | Sequence[int] | None = None,
        grid_ms: float = DEFAULT_GRID_MS,
        slow_down: SlowDowns | ArrayLike | None = None,
        phases: Sequence[Phase] = (),
        restart: int | str | None = None,
        handoff_ms: ArrayLike | None = None,
        wake_ms: ArrayLike | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        problems: list[str] = []
        names = tuple(models)
        M = len(names)
        if M == 0:
            raise InputError("models: at least one model is needed")
        if M > MAX_MODELS:
            raise InputError(f"models: at most {MAX_MODELS} models are supported, got {M}")
        if len(set(names)) < M:
            problems.append(f"models: names must be distinct, got {', '.join(names)}")
        if not is_int(N) or not 1 <= N <= MAX_CONCURRENCY:
            raise InputError(f"N: must be a whole number from 1 to {MAX_CONCURRENCY}, got {N}")
        stages = tuple(phases) or one_per_model(names)
        problems += phase_problems(phases, names) if phases else []
        U, what = len(stages), "phases" if phases else "models"
        P = square_matrix(transition_probability, U, "transition_probability", problems, what)
        C = square_matrix(committed_tokens, U, "committed_tokens", problems, what)
        if P is not None:
            problems += probability_problems(P)
        if C is not None:
            problems += token_problems(C)
        sizes = max_batches(max_batch, M, N, problems)
        if not is_positive(grid_ms):
            problems.append(f"grid_ms: must be a positive number of milliseconds, got {grid_ms}")
        latency = latencies(latency_ms, sizes, N, grid_ms, problems)
        stage_names = [stage.name for stage in stages]
        start = entry_index(entry, stage_names, problems)
        if restart is not None:
            restart = entry_index(restart, stage_names, problems, "restart")
        slowness = slow_downs(slow_down, M, problems)
        delay = delays(handoff_ms, M, problems)
        wake = wakes(wake_ms, M, problems)
        if problems or P is None or C is None or latency is None:
            raise InputError(problems)
        for array in (P, C, latency, slowness, delay, wake):
            array.setflags(write=False)
        values = {
            "models": names,
            "latency_ms": latency,
            "transition_probability": P,
            "committed_tokens": C,
            "N": int(N),
            "entry": start,
            "max_batch": sizes,
            "grid_ms": float(grid_ms),
            "slow_down": slowness,
            "phases": stages,
            "restart": restart,
            "handoff_ms": delay,
            "wake_ms": wake,
            "warnings": tuple(warnings),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def M(self) -> int:
        """Number of models."""
        return len(self.models)

    @property
    def U(self) -> int:
        """Number of phases."""
        return len(self.phases)

    @property
    def plain(self) -> bool:
        """Whether there is one phase per model, which adds nothing to a step."""
        return self.phases == one_per_model(self.models)

    @cached_property
    def phase_model(self) -> IntArray:
        """The model of each phase; (U,)."""
        return np.array([phase.model for phase in self.phases], dtype=np.int64)

    @cached_property
    def added_ms(self) -> FloatArray:
        """Time that a request in each phase adds to its step, in milliseconds; (U,)."""
        return np.array([phase.added_ms for phase in self.phases], dtype=np.float64)

    @property
    def entry_model(self) -> int:
        """The model at which all requests start."""
        return self.phases[self.entry].model

    @cached_property
    def latency_units(self) -> IntArray:
        """Step latencies as whole multiples of ``grid_ms``, shape (M, N)."""
        return np.rint(self.latency_ms / self.grid_ms).astype(np.int64)

    @cached_property
    def wake_units(self) -> IntArray:
        """What waking takes as whole multiples of ``grid_ms``, shape (M,)."""
        return np.rint(self.wake_ms / self.grid_ms).astype(np.int64)

    @property
    def grid_error_percent(self) -> float:
        """Largest relative change, in percent, that rounding to the grid makes to a step.

        Of models that were idle before and of those that were not. Where requests add times that
        are not whole units, the bound of half a unit.
        """
        rounded, exact = self.latency_units * self.grid_ms, self.latency_ms
        woken = rounded + self.wake_units[:, None] * self.grid_ms
        changes = rounded / exact - 1.0, woken / (exact + self.wake_ms[:, None]) - 1.0
        error = float(np.max(np.abs(changes)) * 100.0)
        added = self.added_ms / self.grid_ms
        for u in np.flatnonzero(np.abs(added - np.rint(added)) > 1e-9):
            shortest = self.latency_ms[self.phase_model[u]].min() + self.added_ms[u]
            error = max(error, float(50.0 * self.grid_ms / shortest))
        return error

    @cached_property
    def tokens_per_step(self) -> FloatArray:
        """Mean tokens that a request in phase i commits in a step: sum_j c_ij p_ij; (U,)."""
        return np.asarray((self.committed_tokens * self.transition_probability).sum(axis=1))

    @property
    def handoffs_ms(self) -> FloatArray:
        """Delays of the handoffs that routing makes from the entry on, some of which may be 0."""
        reached = self.phase_model[list(self.reached_phases)]
        delays = self.handoff_ms[np.ix_(reached, self.phase_model)]
        return np.asarray(delays[self.transition_probability[list(self.reached_phases)] > 0.0])

    @cached_property
    def reached_phases(self) -> tuple[int, ...]:
        """Phases that a request can come to from the entry."""
        seen = [self.entry]
        for i in seen:
            onward = np.flatnonzero(self.transition_probability[i])
            seen += [int(j) for j in onward if j not in seen]
        return tuple(sorted(seen))

    @cached_property
    def reached(self) -> tuple[int, ...]:
        """Models that a request can visit when it starts in the entry phase."""
        return tuple(sorted({self.phases[u].model for u in self.reached_phases}))

    @property
    def unreached_names(self) -> list[str]:
        """Names of the models that routing never reaches from the entry."""
        return [name for i, name in enumerate(self.models) if i not in self.reached]

    def restricted(self) -> RoutedSystem:
        """Return the system without what routing never reaches, and say so of models."""
        keep, stages = list(self.reached), list(self.reached_phases)
        if len(stages) == self.U:
            return self
        warning = (
            f"routing never reaches {', '.join(self.unreached_names)} from "
            f"{self.models[self.entry_model]}: left out, threshold 1"
        )
        return replace(
            self,
            models=tuple(self.models[i] for i in keep),
            latency_ms=self.latency_ms[keep],
            transition_probability=self.transition_probability[np.ix_(stages, stages)],
            committed_tokens=self.committed_tokens[np.ix_(stages, stages)],
            entry=stages.index(self.entry),
            max_batch=tuple(self.max_batch[i] for i in keep),
            slow_down=self.slow_down[np.ix_(_masks(keep), keep)],
            phases=tuple(
                replace(self.phases[u], model=keep.index(self.phases[u].model)) for u in stages
            ),
            restart=stages.index(self.restart) if self.restart in stages else None,
            handoff_ms=self.handoff_ms[np.ix_(keep, keep)],
            wake_ms=self.wake_ms[keep],
            warnings=(*self.warnings, warning) if len(keep) < self.M else self.warnings,
        )

    def with_N(self, N: int) -> RoutedSystem:
        """Return the same system at a smaller concurrency.

        Raises
        ------
        UsageError
            If N is larger: the latencies and largest batches held here end at the present one.
        """
        if N > self.N:
            raise UsageError(f"N: must be at most the system's own, {self.N}, got {N}")
        return self if N == self.N else replace(self, N=N)

    def with_p(self, p: float) -> RoutedSystem:
        """Return a two-model system whose first model hands over with probability p.

        Raises
        ------
        UsageError
            If there are not two models, each of one phase, or p is not in [0, 1].
        """
        if not self.plain:
            raise UsageError("p: applies to routing of one phase per model, this one has phases")
        P = hand_over_with(p, self.transition_probability)
        return replace(self, transition_probability=P)

    def check_thresholds(self, B: Sequence[int]) -> tuple[int, ...]:
        """Return B as a tuple of whole numbers, one per model, each at least 1.

        Raises
        ------
        UsageError
            If the length is not M or an entry is not a whole number of at least 1.
        """
        if isinstance(B, str) or not isinstance(B, Iterable):
            raise UsageError(f"B: a sequence of whole numbers is needed, got {B!r}")
        B = tuple(B)
        if len(B) != self.M:
            raise UsageError(
                f"B: {self.M} thresholds are needed ({', '.join(self.models)}), got {len(B)}"
            )
        for i, b in enumerate(B):
            if not is_int(b) or b < 1:
                raise UsageError(f"B[{i}]: must be a whole number of at least 1, got {b}")
        return tuple(int(b) for b in B)


def hand_over_with(p: float, transition_probability: FloatArray) -> FloatArray:
    """Return the matrix of two models with the first handing over with probability p.

    Raises
    ------
    UsageError
        If there are not two models or p is not in [0, 1].
    """
    M = len(transition_probability)
    if M != 2:
        raise UsageError(f"p: applies to systems of two models, this one has {M}")
    if not (is_number(p) and 0.0 <= p <= 1.0):
        raise UsageError(f"p: must be between 0 and 1, got {p}")
    return np.vstack([[1.0 - p, p], transition_probability[1]])


def _masks(keep: Sequence[int]) -> list[int]:
    """Bit masks, in all models, of every set of the kept ones."""
    return [
        sum(1 << model for place, model in enumerate(keep) if subset >> place & 1)
        for subset in range(1 << len(keep))
    ]
