"""Routing from a trace: P and C with intervals, and phases where runs are not geometric.

p_ij is the share of the steps in phase i that were followed by one in phase j, with a 95 % Jeffreys
interval; c_ij the mean of the tokens that those committed. The last step of a request says nothing
about routing and is left out. What a model does next is taken to depend on its phase alone, that is
on how long the run has lasted (`trmodel.routing.runs`), not on what was before the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

import numpy as np
from scipy.special import betaincinv

from trmodel.documents import StrPath
from trmodel.errors import InputError, UsageError
from trmodel.routing.runs import Runs, ages, runs_of
from trmodel.routing.schema import Routing, RoutingPhase, matrix_rows
from trmodel.routing.trace import Trace, read_trace, trace_of
from trmodel.system_checks import is_int, is_number

LEVEL = 0.01
MAX_PHASES = 16
MOST_PHASES = 200


@dataclass(frozen=True)
class Move:
    """One entry of P and C as estimated.

    Attributes
    ----------
    source, target
        Names of phases (of models, where each is one).
    count, steps
        Moves seen, of so many steps in the source.
    probability, low, high
        Estimate and 95 % interval.
    committed
        Mean tokens committed on such a move; 0 if none was seen.
    """

    source: str
    target: str
    count: int
    steps: int
    probability: float
    low: float
    high: float
    committed: float


@dataclass(frozen=True, eq=False)
class RoutingFit:
    """A routing estimated from a trace.

    Attributes
    ----------
    routing
        What ``--routing`` accepts.
    trace
        What it was estimated from.
    runs
        Of each model.
    moves
        Entries of P that were seen, and the others between models of which there could be.
    level
        p-value below which runs count as not geometric.
    notes
        What a reader should know, a line each.
    """

    routing: Routing
    trace: Trace
    runs: tuple[Runs, ...]
    moves: tuple[Move, ...]
    level: float
    notes: tuple[str, ...]

    @property
    def reply_tokens(self) -> float:
        """Mean tokens that a request committed in the trace."""
        return float(self.trace.committed.sum() / self.trace.requests)

    def readings(self) -> list[str]:
        """Say of each model what its runs are, a line each."""
        return [self._reading(runs) for runs in self.runs]

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as plain values, ready for JSON."""
        names = self.trace.models
        return {
            "schema": "trmodel/routing-fit",
            "schema_version": 1,
            "trace": {
                "origin": self.trace.origin,
                "sha256": self.trace.sha256,
                "requests": self.trace.requests,
                "steps": len(self.trace.model),
                "reply_tokens": self.reply_tokens,
            },
            "level": self.level,
            "runs": [
                asdict(runs) | {"model": names[runs.model], "reading": reading}
                for runs, reading in zip(self.runs, self.readings(), strict=True)
            ],
            "moves": [asdict(move) for move in self.moves],
            "routing": self.routing.model_dump(mode="json", by_alias=True, exclude_none=True),
            "notes": list(self.notes),
        }

    def _reading(self, runs: Runs) -> str:
        name = self.trace.models[runs.model]
        if runs.complete == 0:
            return f"{name}: never left"
        if runs.fixed is not None:
            all_of = f"{name}: all {runs.complete} runs have exactly {runs.fixed} steps"
            if runs.phases == runs.fixed:
                return f"{all_of}: a phase for each"
            if runs.phases == 1:
                return f"{all_of}, too few to tell from geometric ones: one phase"
            return f"{all_of}; raise the largest number of phases (--max-phases {runs.fixed})"
        if runs.p_value is None:
            why = "each of one step" if runs.mean_steps == 1.0 else "too few to test"
            return f"{name}: {runs.complete} runs, {why}: one phase"
        if runs.p_value >= self.level:
            return (
                f"{name}: {runs.complete} runs of {runs.mean_steps:.2f} steps on average agree "
                f"with geometric ones (p-value {runs.p_value:.2g}: that often geometric runs look "
                "at least this uneven): one phase"
            )
        uneven = f"{name}: runs are not geometric (p-value {runs.p_value:.2g}): "
        phases = "one phase" if runs.phases == 1 else f"{runs.phases} phases by age"
        rest = runs.rest_p_value
        if rest is not None and rest < self.level:
            return f"{uneven}{phases} {'is' if runs.phases == 1 else 'are'} not enough for them"
        known = "" if rest is None else f" (p-value {rest:.2g})"
        return f"{uneven}{phases}, beyond which nothing speaks against it{known}"


def fit_routing(
    trace: StrPath | Trace | Iterable[tuple[Any, str, float]],
    *,
    name: str = "fitted",
    level: float = LEVEL,
    max_phases: int = MAX_PHASES,
) -> RoutingFit:
    """Estimate a routing from a trace.

    Parameters
    ----------
    trace
        A file (`trmodel.routing.trace`), or rows (request, model, committed).
    name
        Of the routing.
    level
        p-value below which runs count as not geometric and are split into phases.
    max_phases
        Most phases of a model; 1 for a routing without.

    Raises
    ------
    InputError
        If the trace is malformed, or a model is never followed by another step.
    UsageError
        If level or max_phases makes no sense.
    """
    if not (is_number(level) and 0.0 < level < 1.0):
        raise UsageError(f"level: must be a p-value between 0 and 1, got {level}")
    if not (is_int(max_phases) and 1 <= max_phases <= MOST_PHASES):
        raise UsageError(
            f"max_phases: must be a whole number from 1 to {MOST_PHASES}, got {max_phases}"
        )
    if isinstance(trace, (str, PathLike)):
        trace = read_trace(trace)
    elif not isinstance(trace, Trace):
        trace = trace_of(trace)
    at = trace.followed
    silent = [m for i, m in enumerate(trace.models) if i not in trace.model[at]]
    if silent:
        raise InputError(
            f"{trace.origin}: {', '.join(silent)}: only in last steps of requests, so that nothing "
            "says where requests go from there; use a longer trace"
        )
    runs = tuple(runs_of(trace, i, level, max_phases) for i in range(len(trace.models)))
    phases = _phases(trace, runs)
    first = np.cumsum([0, *(each.phases for each in runs)])
    last_age = np.array([each.phases for each in runs])[trace.model]
    place = first[trace.model] + np.minimum(ages(trace), last_age) - 1
    U = len(phases)
    cell = place[at] * U + place[at + 1]
    counts = np.bincount(cell, minlength=U * U).reshape(U, U)
    tokens = np.bincount(cell, trace.committed[at], minlength=U * U).reshape(U, U)
    P = counts / counts.sum(axis=1, keepdims=True)
    C = tokens / np.maximum(counts, 1)
    starts = place[np.flatnonzero(np.diff(trace.request, prepend=-1))]
    entry = int(np.bincount(starts).argmax())
    routing = Routing(
        name=name,
        models=trace.models,
        phases=phases if U > len(runs) else (),
        transition_probability=matrix_rows(P),
        committed_tokens=matrix_rows(C),
        entry=phases[entry].name,
        source=f"estimated from {trace.origin}: {len(trace.model)} steps of {trace.requests} "
        f"requests{f', SHA-256 {trace.sha256}' if trace.sha256 else ''}",
    )
    names = [phase.name for phase in phases]
    return RoutingFit(
        routing, trace, runs, _moves(names, counts, C), level, _notes(phases, starts, entry)
    )


def _phases(trace: Trace, runs: Iterable[Runs]) -> tuple[RoutingPhase, ...]:
    """Name the phases of each model by age; the last holds all later ages as well."""
    phases = []
    for each in runs:
        model, D = trace.models[each.model], each.phases
        open_end = "" if each.fixed == D else "+"
        names = [f"{model} {d}" for d in range(1, D)] + [f"{model} {D}{open_end}"]
        phases += [RoutingPhase(name=name, model=model) for name in (names if D > 1 else [model])]
    return tuple(phases)


def _moves(names: list[str], counts: np.ndarray, C: np.ndarray) -> tuple[Move, ...]:
    steps = counts.sum(axis=1)
    moves = []
    for u, v in np.argwhere(counts > 0).tolist():
        n, total = int(counts[u, v]), int(steps[u])
        low = 0.0 if n == 0 else float(betaincinv(n + 0.5, total - n + 0.5, 0.025))
        high = 1.0 if n == total else float(betaincinv(n + 0.5, total - n + 0.5, 0.975))
        moves.append(Move(names[u], names[v], n, total, n / total, low, high, float(C[u, v])))
    return tuple(moves)


def _notes(phases: tuple[RoutingPhase, ...], starts: np.ndarray, entry: int) -> tuple[str, ...]:
    elsewhere = int((starts != entry).sum())
    if not elsewhere:
        return ()
    return (
        f"{elsewhere} of {len(starts)} requests start elsewhere than at {phases[entry].name}, "
        "where all start in the model",
    )
