"""How a profile is shown: its facts, step latencies by batch and context, and a chart of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from trmodel.cli.output import Grid, View
from trmodel.cli.profile_facts import model_facts, profile_facts, sources
from trmodel.cli.profile_tables import added_up, records_of, table_blocks

if TYPE_CHECKING:
    from trmodel.profile import LoadedProfile, ModelProfile, Profile

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
    blocks: list[str | Grid] = [f"{profile.name}: {profile.description}", profile_facts(loaded)]
    records: list[dict[str, Any]] = []
    warnings: list[str] = []
    for model in profile.models:
        blocks.append(model_facts(model))
        if context is None:
            records += records_of(model)
            blocks += table_blocks(model, model.decode)
        else:
            steps, notes = _steps_at(model, context)
            warnings += notes
            records += [{"model": model.name, **step} for step in steps]
            cells = [
                tuple(v if isinstance(v, str) else f"{v:g}" for v in s.values()) for s in steps
            ]
            blocks.append(Grid(tuple(steps[0]), cells, ("status",)))
        if model.extend is not None:
            blocks += table_blocks(model, model.extend)
        blocks.append(sources(model))
    if chart:
        blocks += [_chart(profile, model, context) for model in profile.models]
    document = profile.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return View(document, records, blocks, warnings=warnings)


def _steps_at(
    model: ModelProfile, context: tuple[int, int]
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the step latency at a context, with the status of each, and what to know of them."""
    from trmodel.profile import step_latency

    read = step_latency(model.decode, _batches(model), context, model=model.name)
    values = zip(_batches(model), read.latency_ms.tolist(), read.status.tolist(), strict=True)
    steps = [
        {
            "batch": batch,
            "decode_ms": round(latency, 9),
            **added_up(model, latency),
            "status": status,
        }
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
