"""Signs of mistakes in a profile that is valid: wrong units, large dips, gaps.

Nothing is refused for them; every one is told with the field, the model and the numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

from trmodel.profile.schema import Hardware, ModelProfile, Profile
from trmodel.profile.smooth import LARGE_DIP, table_dips
from trmodel.profile.tables import DecodeTable, ExtendTable

LONGEST_STEP_MS = 2000.0
SHORTEST_STEP_MS = 0.05
"""A kernel launch alone takes a few microseconds, and a step has dozens."""
LARGEST_GAP = 4
"""Neighbouring sizes further apart than this factor leave the shape between them unknown."""
SMALLEST_GPU_BYTES = 10**8


def plausibility_warnings(profile: Profile, models: Collection[str] | None = None) -> list[str]:
    """List what looks like a mistake in a profile, one line each.

    - a step of more than 2000 ms, or an overhead or handoff of as much (microseconds?), or a step
      of less than 0.05 ms (seconds?); for an extend table the shortest entry counts;
    - a GPU with less than 0.1 GB of memory (gigabytes given as bytes?);
    - a latency that falls by 5 % or more with the batch (smaller dips are noise), or with context;
    - neighbouring batch sizes or contexts that differ by more than a factor of 4, unless the
      latencies at both are equal: then the table says that they do not matter.

    Parameters
    ----------
    profile
        A valid profile.
    models
        Names of the models to look at; all of the profile when left out.
    """
    warnings = _hardware(profile.hardware)
    for i, model in enumerate(profile.models):
        if models is None or model.name in models:
            warnings += _model(model, f"models[{i}]")
    if profile.handoff is not None:
        delays = [profile.handoff.latency_ms, *(pair.latency_ms for pair in profile.handoff.pairs)]
        warnings += _too_long(max(delays), "handoff.latency_ms", "a handoff")
    return warnings


def _hardware(hardware: Hardware) -> list[str]:
    memory = hardware.gpu_memory_bytes
    if memory is None or memory >= SMALLEST_GPU_BYTES:
        return []
    return [
        f"hardware.gpu_memory_bytes: {memory} bytes is little for a GPU; gigabytes given as bytes?"
    ]


def _model(model: ModelProfile, where: str) -> list[str]:
    decode = np.array(model.decode.rows)
    warnings = _units(decode, f"{where}.decode.latency_ms", f"a step of {model.name}")
    warnings += _large_dips(model.decode, model.name)
    warnings += _gaps(model.decode.batch, decode.T, f"{model.name}: batches")
    warnings += _gaps(model.decode.contexts, decode, f"{model.name}: contexts")
    warnings += _falling_with_context(model.decode, model.name)
    if model.extend is not None:
        name = f"{model.name}, extend"
        extend = np.array(model.extend.rows)
        shortest = np.array([extend.min()])
        warnings += _units(shortest, f"{where}.extend.latency_ms", f"the shortest step of {name}")
        warnings += _large_dips(model.extend, name)
        warnings += _gaps(model.extend.batch, extend.T, f"{name}: batches")
        warnings += _gaps(model.extend.new_tokens, extend, f"{name}: new tokens")
    if model.overhead is not None:
        what = f"the overhead of {model.name}"
        warnings += _too_long(model.overhead.value_ms, f"{where}.overhead.value_ms", what)
    return warnings


def _units(latency: np.ndarray, where: str, what: str) -> list[str]:
    shortest = float(latency.min())
    warnings = _too_long(float(latency.max()), where, what)
    if shortest < SHORTEST_STEP_MS:
        warnings.append(
            f"{where}: {shortest:g} ms is short for {what}; seconds given as milliseconds?"
        )
    return warnings


def _too_long(latency_ms: float, where: str, what: str) -> list[str]:
    if latency_ms <= LONGEST_STEP_MS:
        return []
    return [f"{where}: {latency_ms:g} ms is long for {what}; microseconds given as milliseconds?"]


def _large_dips(table: DecodeTable | ExtendTable, name: str) -> list[str]:
    return [
        f"{name}: {dip} is too large for measurement noise; kept"
        for dip in table_dips(table)
        if dip.large
    ]


def _gaps(listed: Sequence[int], latency: np.ndarray, name: str) -> list[str]:
    """Name the gaps between listed places; ``latency`` has a row for each place."""
    return [
        f"{name}: none listed between {a} and {b}; latency is taken as linear there"
        for (a, b), (low, high) in zip(pairwise(listed), pairwise(latency), strict=True)
        if b > LARGEST_GAP * max(a, 1) and np.any(low != high)
    ]


def _falling_with_context(table: DecodeTable, name: str) -> list[str]:
    warnings = []
    for r, (shorter, longer) in enumerate(pairwise(np.array(table.rows)), start=1):
        drops = 1.0 - longer / shorter
        worst = int(drops.argmax())
        if drops[worst] >= LARGE_DIP:
            warnings.append(
                f"{name}: latency falls by {100 * drops[worst]:.1f} % from context "
                f"{table.contexts[r - 1]} to {table.contexts[r]} at batch {table.batch[worst]}"
            )
    return warnings
