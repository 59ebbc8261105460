"""How a profile is shown: its facts, step latencies by batch and context, and a chart of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from trmodel.cli.output import Grid, View

if TYPE_CHECKING:
    from trmodel.profile import LoadedProfile, ModelProfile, Profile, Provenance

CHART_WIDTH = 40


def profile_view(
    loaded: LoadedProfile, context: tuple[int, int] | None = None, chart: bool = False
) -> View:
    """Show a profile in full.

    Parameters
    ----------
    context
        Latencies at this context; None for those that are listed.
    chart
        Also draw step latency by batch size in text.
    """
    profile = loaded.profile
    blocks: list[str | Grid] = [f"{profile.name}: {profile.description}", _facts(loaded)]
    records: list[dict[str, Any]] = []
    warnings: list[str] = []
    for model in profile.models:
        if context is None:
            steps = _steps(model)
        else:
            steps, notes = _steps_at(model, context)
            warnings += notes
        records += [{"model": model.name, **step} for step in steps]
        cells = [tuple(v if isinstance(v, str) else f"{v:g}" for v in s.values()) for s in steps]
        blocks += [_model_title(model), Grid(tuple(steps[0]), cells, ("status",))]
        blocks.append(_sources(model))
    if chart:
        blocks += [_chart(profile, model, context) for model in profile.models]
    document = profile.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return View(document, records, blocks, warnings=warnings)


def _facts(loaded: LoadedProfile) -> str:
    profile = loaded.profile
    software = ", ".join(f"{name} {version}" for name, version in profile.software.items())
    routing = profile.routing
    facts = {
        "hardware": f"{profile.hardware.gpus} x {profile.hardware.gpu}",
        "note": profile.hardware.note,
        "software": software,
        "obtained": profile.obtained,
        "routing": routing if routing is None or isinstance(routing, str) else routing.name,
        "grid": f"{profile.grid_ms:g} ms",
        "sha256": loaded.sha256,
    }
    slow_downs = [
        f"{a} x {by_a:g} and {b} x {by_b:g} while both run ({entry.provenance.method})"
        for entry in profile.slow_downs
        for (a, b), (by_a, by_b) in [(entry.models, entry.factors)]
    ]
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    return "\n".join(lines + [f"slow-down: {each}" for each in slow_downs])


def _steps(model: ModelProfile) -> list[dict[str, Any]]:
    """Return the step latency by batch size, and by context if several are listed, added up."""
    table = model.decode
    contexts = table.contexts if len(table.rows) > 1 else ()
    return [
        {
            **({"context": contexts[r]} if contexts else {}),
            "batch": batch,
            **_added_up(model, latency),
        }
        for r, row in enumerate(table.rows)
        for batch, latency in zip(table.batch, row, strict=True)
    ]


def _steps_at(
    model: ModelProfile, context: tuple[int, int]
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the step latency at a context, with the status of each, and what to know of them."""
    from trmodel.profile import step_latency

    read = step_latency(model.decode, _batches(model), context, model=model.name)
    values = zip(_batches(model), read.latency_ms.tolist(), read.status.tolist(), strict=True)
    steps = [
        {"batch": batch, **_added_up(model, latency), "status": status}
        for batch, latency, status in values
    ]
    return steps, read.notes


def _batches(model: ModelProfile) -> tuple[int, ...]:
    """Return the listed batches that can be asked for: padded, they must stay within the table."""
    from trmodel.errors import InputError
    from trmodel.profile import step_latency

    def reached(batch: int) -> bool:
        try:
            step_latency(model.decode, [batch], (1, 1))
        except InputError:
            return False
        return True

    return tuple(filter(reached, model.decode.batch))


def _added_up(model: ModelProfile, latency: float) -> dict[str, float]:
    overhead = model.overhead.value_ms if model.overhead else 0.0
    return {
        "decode_ms": round(latency, 9),
        "overhead_ms": overhead,
        "step_ms": round(latency + overhead, 9),
    }


def _model_title(model: ModelProfile) -> str:
    bound = "" if model.max_batch is None else f", at most {model.max_batch} requests a step"
    contexts = [f"{context}" for context in model.decode.contexts]
    tokens = f", context {', '.join(contexts)} tokens" if contexts else ""
    return f"{model.name}: tensor parallel {model.tensor_parallel}{bound}{tokens}"


def _sources(model: ModelProfile) -> str:
    lines = [f"decode: {_source(model.decode.provenance)}"]
    if model.extend:
        lines.append(f"extend: {_source(model.extend.provenance)}")
    if model.overhead:
        lines.append(f"overhead: {_source(model.overhead.provenance)}")
    return "\n".join(lines)


def _source(provenance: Provenance) -> str:
    note = f" ({provenance.note})" if provenance.note else ""
    return f"{provenance.method}; {provenance.source}{note}"


def _chart(profile: Profile, model: ModelProfile, context: tuple[int, int] | None) -> str:
    """Draw a bar for each batch size, as long as the step at the context, or the usual one."""
    from trmodel.profile import context_range

    low, high = context or context_range(profile)
    steps, _ = _steps_at(model, (low, high))
    longest = max(step["step_ms"] for step in steps)
    widths = [max(len(str(step["batch"])) for step in steps), len(f"{longest:.1f}")]
    bar = "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
    at = f"{low}" if low == high else f"{low} to {high}"
    tokens = f" at a context of {at} tokens" if model.decode.contexts else ""
    lines = [
        f"{step['batch']:>{widths[0]}}  {step['step_ms']:>{widths[1]}.1f}  "
        + bar * max(1, round(CHART_WIDTH * step["step_ms"] / longest))
        for step in steps
    ]
    return "\n".join([f"{model.name}: ms of a step by batch size{tokens}", *lines])
