"""Phases: what a request is doing at its model, where that decides what comes next.

With one phase per model a request's run at the model is geometric: after each step it leaves with
the same probability, however long it has been there. Runs of fixed length, a probe before a whole
step, prefill before decoding are not. A model may therefore have several *phases*: a request is in
one of them, routing goes from phase to phase, and each has its own row of p and c. A batch of a
model mixes whatever phases wait there, and the launch rule counts all of them.

A step of model i with b requests takes L_i(b), plus ``added_ms`` for each of its requests in a
phase that has some: the prompt that a prefill reads, or the suffix that an extend does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trmodel.system_checks import MAX_LATENCY_MS, is_int, is_number


@dataclass(frozen=True)
class Phase:
    """One phase of a model.

    Attributes
    ----------
    name
        Unique among the system's phases.
    model
        Index of the model that works on requests in this phase.
    added_ms
        Time that each request in this phase adds to its step, in milliseconds.
    """

    name: str
    model: int
    added_ms: float = 0.0


def one_per_model(models: Sequence[str]) -> tuple[Phase, ...]:
    """Return the phases of a plain system: one for each model, under the model's name."""
    return tuple(Phase(name, i) for i, name in enumerate(models))


def phase_problems(phases: Sequence[Phase], models: Sequence[str]) -> list[str]:
    """List what is wrong with the phases of a system, each with the path to the field."""
    problems = []
    names = [phase.name for phase in phases]
    if len(set(names)) < len(names):
        problems.append(f"phases: names must be distinct, got {', '.join(names)}")
    for u, phase in enumerate(phases):
        if not (is_int(phase.model) and 0 <= phase.model < len(models)):
            problems.append(
                f"phases[{u}].model: must be an index below {len(models)}, got {phase.model}"
            )
        if not (is_number(phase.added_ms) and 0.0 <= phase.added_ms <= MAX_LATENCY_MS):
            problems.append(
                f"phases[{u}].added_ms: must be from 0 to {MAX_LATENCY_MS:g} ms, "
                f"got {phase.added_ms}"
            )
    without = set(range(len(models))) - {phase.model for phase in phases}
    problems += [f"phases: {models[i]} has none" for i in sorted(without)]
    return problems
