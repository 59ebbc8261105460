"""The tables and the memory of one model, as aiconfigurator-core estimates them.

A decode step at context s is the package's one-token step after s - 1 cached tokens; an extend
step of n tokens is its prefill with a prefix. The package adds up the operators of a forward pass;
what a server does around it (scheduling, a router, hidden states) is not in any number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

from trmodel.errors import InputError, UsageError
from trmodel.profile.importers.measured_points import MeasuredPoints, measured_points
from trmodel.profile.importers.package import BACKENDS, Model, Package, refusals


@dataclass(frozen=True)
class Source:
    """What is asked: a system's measurements of one version of a backend."""

    package: Package
    system: str
    backend: str
    version: str

    def provenance(self, note: str) -> dict[str, str]:
        """Return the provenance of an estimate, with its note."""
        return {
            "method": "derived",
            "source": f"derived with aiconfigurator-core {self.package.version} (NVIDIA "
            f"CORPORATION & AFFILIATES, Apache-2.0), system {self.system}, "
            f"{BACKENDS[self.backend]} {self.version} data",
            "note": note,
        }


@dataclass(frozen=True)
class Grid:
    """The sizes to estimate.

    Parameters
    ----------
    batches
        Requests in a step, of both tables; increasing, the first one 1.
    contexts
        Tokens of every request in a decode step, the one being decoded included; increasing.
    new_tokens
        New tokens of every request in an extend step; increasing.
    cached
        Cached tokens of every request before an extend step; one of the contexts.

    Raises
    ------
    UsageError
        If they are not so.
    """

    batches: Sequence[int]
    contexts: Sequence[int]
    new_tokens: Sequence[int]
    cached: int

    def __post_init__(self) -> None:
        for what, values, least in (
            ("batches", self.batches, 1),
            ("contexts", self.contexts, 2),
            ("new_tokens", self.new_tokens, 1),
        ):
            if not values or values[0] < least or any(a >= b for a, b in pairwise(values)):
                raise UsageError(f"{what}: must increase from at least {least}, got {list(values)}")
        if self.batches[0] != 1:
            raise UsageError(f"batches: the first one must be 1, got {self.batches[0]}")
        if self.cached not in self.contexts:
            raise UsageError(
                f"context_tokens: must be one of {list(self.contexts)}, got {self.cached}"
            )


@dataclass(frozen=True)
class Entry:
    """A model of a profile in its JSON form, and what was learnt of the GPU on the way."""

    document: dict[str, Any]
    gpu: str | None
    gpu_memory_bytes: int


def estimate_model(source: Source, grid: Grid, model: Model, tp: int) -> Entry:
    """Estimate the tables and the memory of a model spread over ``tp`` GPUs.

    Raises
    ------
    InputError
        If the model is too short for the grid, or the package cannot estimate it.
    """
    sdk, asked = source.package.sdk, (source.system, source.backend)
    limit = model.config.get("max_position_embeddings")
    longest = max(grid.contexts[-1], grid.cached + grid.new_tokens[-1])
    if limit is not None and longest > limit:
        raise InputError(f"model {model.name!r}: takes {limit} tokens, {longest} are asked for")
    with refusals(f"model {model.name!r} with tensor parallel {tp} on {source.system}"):
        engine = sdk.EngineHandle.compile(
            model.path, *asked, backend_version=source.version, tp_size=tp
        )
        memory = sdk.estimate_kv_cache(
            model.path,
            *asked,
            source.version,
            max_num_tokens=8192,
            max_batch_size=256,
            memory_fraction_kind="of_total",
            memory_fraction_value=0.88,  # of the room for KV, which is not used
            tp_size=tp,
        )
        decode = _decode_step(engine)
        decode_rows = [[decode(b, s) for b in grid.batches] for s in grid.contexts]
        extend_rows, floored = _extend_rows(engine, decode, grid)
    points = measured_points(source.package, *asked, source.version, model, tp)
    document = {
        "name": model.short_name,
        "tensor_parallel": tp,
        "gpus": list(range(tp)),
        "decode": {
            "batch": list(grid.batches),
            "context_tokens": list(grid.contexts),
            "latency_ms": decode_rows,
            **_decode_status(source, grid, points),
        },
        "extend": {
            "batch": list(grid.batches),
            "new_tokens": list(grid.new_tokens),
            "latency_ms": extend_rows,
            "context_tokens": grid.cached,
            "status": [["extrapolated"] * len(grid.batches) for _ in grid.new_tokens],
            "provenance": source.provenance(
                f"{_counted(Counter(extrapolated=len(grid.batches) * len(grid.new_tokens)))}: "
                f"steps after {grid.cached} cached tokens are a formula on measurements without "
                f"any; {floored} that came out below a decode step at the context they end with "
                "were raised to it. Forward pass only."
            ),
        },
        "memory": _memory(source, model, memory, tp),
    }
    return Entry(document, points.gpu if points else None, memory["total_gpu_capacity_bytes"])


def _decode_step(engine: Any) -> Callable[[int, int], float]:
    """Return the function of batch and context that gives a decode step in milliseconds."""

    def decode(batch: int, context: int) -> float:
        # One step after context - 1 cached tokens: an output of two tokens takes one.
        return _latency(engine.predict_decode_latency(batch, context - 1, 2))

    return decode


def _extend_rows(
    engine: Any, decode: Callable[[int, int], float], grid: Grid
) -> tuple[list[list[float]], int]:
    """Latencies by new tokens and batch, and how many were raised to a decode step."""
    rows, floored = [], 0
    for new in grid.new_tokens:
        row = []
        for batch in grid.batches:
            # The package counts the cached tokens into the input.
            total = grid.cached + new
            estimate = _latency(engine.predict_prefill_latency(batch, total, grid.cached))
            # An extend step reads at least what a decode step at its final context reads.
            row.append(max(estimate, decode(batch, total)))
            floored += row[-1] > estimate
        rows.append(row)
    return rows, floored


def _latency(value: float) -> float:
    rounded = round(float(value), 3)
    if not (isfinite(rounded) and rounded > 0):
        raise ValueError(f"estimates a step of {value} ms")
    return rounded


def _decode_status(source: Source, grid: Grid, points: MeasuredPoints | None) -> dict[str, Any]:
    """Status and provenance of a decode table."""
    forward = "Forward pass of a decode step, its operators added up."
    if points is None:
        # To leave the status out would claim that all were measured.
        unknown = [["interpolated"] * len(grid.batches) for _ in grid.contexts]
        note = "Which entries are measured could not be read from the package's tables."
        return {"status": unknown, "provenance": source.provenance(f"{forward} {note}")}
    status = [[points.decode_status(b, s) for b in grid.batches] for s in grid.contexts]
    counted = _counted(Counter(each for row in status for each in row))
    notes = [
        f"{forward} {counted}, by the measured batches, contexts and matrix shapes.",
        "Attention is the mean over contexts around the given one.",
    ]
    for kind in ("interpolated", "extrapolated"):
        names = [name for name, each in points.products.items() if each == kind]
        if names:
            notes.append(f"Matrix shapes {kind} in every entry: {', '.join(names)}.")
    return {"status": status, "provenance": source.provenance(" ".join(notes))}


def _counted(counts: Counter[str]) -> str:
    kinds = ("measured", "interpolated", "extrapolated")
    if len(counts) == 1:
        return f"All {counts.total()} entries {next(iter(counts))}"
    parts = ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind])
    return f"Of {counts.total()} entries {parts}"


def _memory(source: Source, model: Model, memory: dict[str, Any], tp: int) -> dict[str, Any]:
    """Weights and KV over all GPUs of a model."""
    weights = memory["memory_breakdown"]["weights_bytes"] * tp
    note = "Over all GPUs of the model."
    if model.config.get("tie_word_embeddings"):
        weights -= model.config["vocab_size"] * model.config["hidden_size"] * 2
        note += " Tied embeddings, which the package counts twice, are counted once."
    return {
        "weight_bytes": round(weights),
        "kv_bytes_per_token": round(memory["kv_size_per_token_bytes"] * tp),
        "provenance": source.provenance(note),
    }
