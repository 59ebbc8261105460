"""Signs of mistakes in a profile that is valid: wrong units, large dips, gaps.

Nothing is refused for them; every one is told with the field, the model and the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from trmodel.profile.schema import Hardware, ModelProfile, Profile
from trmodel.profile.smooth import LARGE_DIP, table_dips
from trmodel.profile.tables import DecodeTable, ExtendTable

LONGEST_STEP_MS = 2000.0
LONGEST_OVERHEAD_MS = 100.0
LONGEST_WAKE_MS = 100.0
LONGEST_HANDOFF_MS = 50.0
SHORTEST_STEP_MS = 0.05
"""A kernel launch alone takes a few microseconds, and a step has dozens."""
SLOWEST_MEMORY = 1e8
"""Bytes per millisecond: 0.1 TB/s, that of a server without a GPU."""
FASTEST_MEMORY = 4e11
"""400 TB/s, as a mixture of experts may read a fiftieth of its weights in a step."""
LONGEST_REST_MS = 100.0
"""Of a step with one request, beyond reading the weights."""
BYTES_PER_PARAMETER = 2
LARGEST_RATIO = 300.0
"""Of the times that two models take per byte of weights: a tiny model mostly launches kernels."""
LARGEST_GAP = 4
"""Neighbouring sizes further apart than this factor leave the shape between them unknown."""
SMALLEST_GPU_BYTES = 10**8

Unit = Literal["milliseconds", "seconds"]
_OTHER: dict[Unit, tuple[str, str]] = {
    "milliseconds": ("microseconds", "seconds"),
    "seconds": ("milliseconds", "minutes"),
}


def plausibility_warnings(
    profile: Profile, models: Collection[str] | None = None, *, read_in: Unit = "milliseconds"
) -> list[str]:
    """List what looks like a mistake in a profile, one line each.

    - a step of more than 2000 ms, an overhead or waking of more than 100 ms or a handoff of more
      than 50 ms (microseconds?), or a step of less than 0.05 ms (seconds?); for an extend table the
      shortest entry counts;
    - a decode step with one request that is orders of magnitude longer or shorter than to read the
      model's weights once takes, or per byte of weights hundreds of times as long as that of
      another model; the weights are those listed, or 2 bytes for each parameter that the name
      tells (8B);
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
    read_in
        Unit in which the latencies were given, for the question which other one they are in.
    """
    warnings = _hardware(profile.hardware)
    smaller, larger = (f"{other} given as {read_in}?" for other in _OTHER[read_in])
    units: list[str] = []
    looked_at = [
        (f"models[{i}]", model)
        for i, model in enumerate(profile.models)
        if models is None or model.name in models
    ]
    for where, model in looked_at:
        found = _units(model, where, smaller, larger)
        units += found
        warnings += found + _model(model, where)
    if not units:  # else the odd one is named already
        warnings += _beside_each_other(looked_at)
    if profile.handoff is not None:
        delays = [profile.handoff.latency_ms, *(pair.latency_ms for pair in profile.handoff.pairs)]
        what = "a handoff"
        warnings += _too_long(max(delays), LONGEST_HANDOFF_MS, "handoff.latency_ms", what)
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
    warnings = _large_dips(model.decode, model.name)
    warnings += _gaps(model.decode.batch, decode.T, f"{model.name}: batches")
    warnings += _gaps(model.decode.contexts, decode, f"{model.name}: contexts")
    warnings += _falling_with_context(model.decode, model.name)
    if model.extend is not None:
        name = f"{model.name}, extend"
        extend = np.array(model.extend.rows)
        warnings += _large_dips(model.extend, name)
        warnings += _gaps(model.extend.batch, extend.T, f"{name}: batches")
        warnings += _gaps(model.extend.new_tokens, extend, f"{name}: new tokens")
    if model.overhead is not None:
        what = f"the overhead of {model.name}"
        value = model.overhead.value_ms
        warnings += _too_long(value, LONGEST_OVERHEAD_MS, f"{where}.overhead.value_ms", what)
    if model.wake is not None:
        what, value = f"waking {model.name}", model.wake.value_ms
        warnings += _too_long(value, LONGEST_WAKE_MS, f"{where}.wake.value_ms", what)
    return warnings


def _units(model: ModelProfile, where: str, smaller: str, larger: str) -> list[str]:
    """Name latencies that are a thousand times too long or too short, with what may be why."""
    decode = np.array(model.decode.rows)
    tables = [("decode", f"a step of {model.name}", float(decode.min()), float(decode.max()))]
    if model.extend is not None:
        shortest = float(np.array(model.extend.rows).min())
        tables.append(("extend", f"the shortest step of {model.name}, extend", shortest, shortest))
    warnings = []
    for table, what, low, high in tables:
        at = f"{where}.{table}.latency_ms"
        warnings += _too_long(high, LONGEST_STEP_MS, at, what, smaller)
        if low < SHORTEST_STEP_MS:
            warnings.append(f"{at}: {low:g} ms is short for {what}; {larger}")
    size = _bytes_per_gpu(model)
    if warnings or size is None:
        return warnings
    at, first, read = f"{where}.decode.latency_ms", float(decode[0, 0]), f"{size / 1e9:.3g} GB"
    what = f"a step of {model.name} that reads {read} of weights on each GPU"
    longest = size / SLOWEST_MEMORY + LONGEST_REST_MS
    if first < size / FASTEST_MEMORY:
        return [f"{at}: {first:g} ms is short for {what}; {larger}"]
    return _too_long(first, longest, at, what, smaller)


def _too_long(
    latency_ms: float,
    longest_ms: float,
    where: str,
    what: str,
    hint: str = "microseconds given as milliseconds?",
) -> list[str]:
    if latency_ms <= longest_ms:
        return []
    return [f"{where}: {latency_ms:g} ms is long for {what}; {hint}"]


def _bytes_per_gpu(model: ModelProfile) -> float | None:
    """Bytes of weights on one GPU, as listed or as the name tells; None if neither does."""
    if model.memory is not None:
        return model.memory.weight_bytes / model.tensor_parallel
    named = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)B(?![\w])", model.name)
    if named is None or float(named[1]) == 0.0:
        return None
    return float(named[1]) * 1e9 * BYTES_PER_PARAMETER / model.tensor_parallel


def _beside_each_other(models: Sequence[tuple[str, ModelProfile]]) -> list[str]:
    """Name the model that is slowest for its weights if another one is hundreds of times faster."""
    known = [
        (model.decode.rows[0][0] / size, where, model)
        for where, model in models
        if (size := _bytes_per_gpu(model)) is not None
    ]
    if len(known) < 2:
        return []
    fast, slow = min(known, key=lambda k: k[0]), max(known, key=lambda k: k[0])
    if slow[0] <= LARGEST_RATIO * fast[0]:
        return []
    return [
        f"{slow[1]}.decode.latency_ms: for its weights a step of {slow[2].name} takes "
        f"{slow[0] / fast[0]:.0f} times as long as one of {fast[2].name} ({fast[1]}); is one of "
        "the two in another unit?"
    ]


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
