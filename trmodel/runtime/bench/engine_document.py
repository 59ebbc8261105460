"""The profile document of what engines and a running executor said."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from trmodel._version import __version__
from trmodel.arrays import FloatArray
from trmodel.documents import parse_document
from trmodel.machine import memory_bytes
from trmodel.profile import Profile, load_profile
from trmodel.profile.build import choose_routing
from trmodel.profile.schema import Hardware, ModelProfile, Overhead, SlowDown, Wake
from trmodel.profile.smooth import AnyTable
from trmodel.profile.tables import DecodeTable, ExtendTable, Provenance
from trmodel.routing import Routing
from trmodel.runtime.bench.engine_overhead import Beyond, beyond
from trmodel.runtime.bench.engine_tables import Factors, Tables, Timing
from trmodel.runtime.bench.engine_times import Ready
from trmodel.runtime.bench.steps import GRID_MS, StepMeasurements, machine, software
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.plan import Plan
from trmodel.system_checks import MAX_SLOW_DOWN


def base_of(plan: Plan) -> tuple[Profile, Routing]:
    """Return the machine and the models as far as their files tell, and the routing.

    Raises
    ------
    InputError
        If the routing cannot be applied to the models.
    """
    config = plan.config
    base = plan.loaded if plan.real is None else plan.real.unmeasured
    routing = choose_routing(base, config.routing)
    routing = routing if config.p is None else routing.with_p(config.p)
    return base.profile, routing.under_names_of(base.profile.model_names)


def profile_of(
    plan: Plan,
    base: Profile,
    routing: Routing,
    ready: Sequence[Ready],
    tables: Sequence[Tables],
    factors: Factors,
    found: StepMeasurements,
    name: str,
) -> Profile:
    """Make the profile document of what was measured.

    Parameters
    ----------
    plan
        Of the server.
    base, routing
        See `base_of`.
    ready, tables, factors
        What the engines said, alone and in pairs.
    found
        The running executor.
    name
        Of the profile.

    Raises
    ------
    TrmodelError
        If the executor made too few steps.
    """
    config = plan.config
    where = f"trmodel {__version__}: {config.engine} engine"
    by_name = {model.name: model for model in base.models}
    models = tuple(
        _model(by_name[each], tables[i], ready[i], config.max_batch, where)
        for i, each in enumerate(plan.names)
    )
    bare = base.model_copy(
        update={
            "name": name,
            "description": "Steps of engines alone and in pairs, and of a running executor.",
            "hardware": _hardware(base.hardware, config),
            "software": software(),
            "obtained": "measured",
            "grid_ms": GRID_MS,
            "context_tokens": tables[0].grid.middle,
            "models": models,
            "slow_downs": (),
            "handoff": None,
            "routing": routing,
        }
    )
    more = beyond(found, load_profile(bare), routing, _engines_alone(len(models), factors))
    models = tuple(
        _with_overhead(model, more[i], tables[i], where) for i, model in enumerate(models)
    )
    changed = bare.model_copy(
        update={
            "models": models,
            "slow_downs": _slow_downs(plan.names, more, factors, where),
            "handoff": found.handoff(where),
        }
    )
    return parse_document(Profile, changed.model_dump(mode="json", by_alias=True), name)


def _model(
    like: ModelProfile, tables: Tables, ready: Ready, max_batch: int | None, where: str
) -> ModelProfile:
    memory = like.memory
    if memory is not None and ready.kv_bytes_per_token is not None:
        memory = memory.model_copy(
            update={
                "kv_bytes_per_token": round(ready.kv_bytes_per_token * like.tensor_parallel),
                "provenance": Provenance(
                    method="measured", source=where, note="Weights as stored, the cache as made."
                ),
            }
        )
    return like.model_copy(
        update={
            "max_batch": max_batch,
            "decode": decode_table(tables, where),
            "extend": extend_table(tables, where),
            "overhead": None,
            "wake": None,
            "memory": memory,
        }
    )


def decode_table(tables: Tables, where: str) -> DecodeTable:
    """Return decode steps by batch and context."""
    grid = tables.grid
    rows = [
        tuple(_rounded(tables.decode[context, batch]) for batch in grid.batches)
        for context in grid.contexts
    ]
    one = len(rows) == 1
    return DecodeTable(
        batch=grid.batches,
        context_tokens=grid.contexts[0] if one else grid.contexts,
        latency_ms=rows[0] if one else tuple(rows),
        provenance=_provenance(tables.decode.values(), where),
    )


def extend_table(tables: Tables, where: str) -> ExtendTable | None:
    """Return extends by batch and new tokens; those of one token are decode steps."""
    grid = tables.grid
    if not grid.new_tokens:
        return None
    new = (1, *grid.new_tokens)
    growth, told = None, ""
    if tables.growth:
        # That of the most new tokens timed holds for still more.
        known = np.interp(new, (1, *grid.grown), (1.0, *tables.growth))
        growth = tuple(known.round(3).tolist())
        told = (
            f" Their growth is that of {', '.join(map(str, grid.grown))} new tokens from context "
            f"{grid.middle} to {grid.above}, with {grid.middle_batch} requests."
        )
    decode = {(1, batch): tables.decode[grid.middle, batch] for batch in grid.batches}
    cells = decode | tables.extend
    return ExtendTable(
        batch=grid.batches,
        new_tokens=new,
        latency_ms=tuple(tuple(_rounded(cells[k, b]) for b in grid.batches) for k in new),
        context_tokens=grid.middle,
        context_growth=growth,
        provenance=_provenance(tables.extend.values(), where, told),
    )


def _rounded(timing: Timing) -> float:
    return round(timing.mean_ms, 4)


def _provenance(timings: Iterable[Timing], where: str, more: str = "") -> Provenance:
    """Say how well steps of a table were measured."""
    found = list(timings)
    counts = [timing.count for timing in found]
    medians = [100.0 * abs(timing.median_ms / timing.mean_ms - 1.0) for timing in found]
    spreads = [100.0 * timing.deviation_ms / timing.mean_ms for timing in found]
    told = (
        f"Means of {min(counts)} to {max(counts)} steps for each entry, the engine alone, from the "
        "start of the step until its tokens are known, on the clock of the process; chosen at "
        f"temperature 1. Warm-up and {sum(timing.left_out for timing in found)} stalls (over twice "
        f"the median) left out. Medians are within {max(medians):.2g} % of the means, standard "
        f"deviations {min(spreads):.2g} to {max(spreads):.2g} % of them."
    )
    shares = [
        100.0 * timing.device_ms / timing.mean_ms
        for timing in found
        if timing.device_ms is not None
    ]
    if shares:
        told += (
            f" Between events on the GPU the same steps took {min(shares):.4g} to "
            f"{max(shares):.4g} % of that."
        )
    return Provenance(method="measured", source=where, note=told + more)


def _hardware(like: Hardware, config: ServerConfig) -> Hardware:
    note = machine()
    if config.sglang.device == "cpu" or config.engine != "sglang":
        memory = memory_bytes() / 2**30
        note += f"; {os.cpu_count()} cores of {_processor()}, {memory:.0f} GiB of memory"
    if pinned := [
        f"{name} on {', '.join(map(str, model.cores))}"
        for name, model in config.models.items()
        if model.cores
    ]:
        note += f"; cores: {'; '.join(pinned)}"
    return like.model_copy(update={"note": note})


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _engines_alone(M: int, factors: Factors) -> FloatArray:
    """Return how many times as long steps of i take while j runs, from the tries, [M, M]."""
    found = np.ones((M, M))
    for pair, tries in factors.items():
        found[pair] = max(statistics.median(tries), 1.0)
    return found


def _slow_downs(
    names: Sequence[str], found: Sequence[Beyond], factors: Factors, where: str
) -> tuple[SlowDown, ...]:
    slow_downs = []
    for i, j in combinations(range(len(names)), 2):
        both = ((i, j), (j, i))
        told = " and ".join(", ".join(f"{ratio:.3f}" for ratio in factors[pair]) for pair in both)
        values = [round(min(found[a].slow_down[b], MAX_SLOW_DOWN), 4) for a, b in both]
        slow_downs.append(
            SlowDown(
                models=(names[i], names[j]),
                factors=(values[0], values[1]),
                provenance=Provenance(
                    method="measured",
                    source=where,
                    note="Best fit to whole steps of the running executor, where front end and "
                    "network share the cores, and no less than the engines' own: decode steps "
                    f"beside the other against alone, medians of {told}.",
                ),
            )
        )
    return tuple(slow_downs)


def _with_overhead(model: ModelProfile, found: Beyond, tables: Tables, where: str) -> ModelProfile:
    """Add what the executor takes: for each request to the tables, the rest beside them."""
    route = [1000.0 * timing.route_ms for timing in tables.decode.values()]
    told = (
        f"What whole steps of the running executor take beyond the engine's: {found.mean_ms:.3g} "
        f"ms on average of {found.steps} steps, in {found.settings} settings and sizes. The best "
        f"fit is this for every step, {found.request_ms:.3g} ms for each request in it, which is "
        f"in the tables, {found.wake_ms:.3g} ms where the model was idle before, its wake, and the "
        f"slow-downs; it leaves {found.left_ms:.2g} ms (root of the mean square). The policy's "
        f"decision alone takes {min(route):.2g} to {max(route):.2g} microseconds."
    )
    if found.mean_ms < 0.0:
        told += " As it is negative, the machine was busier while the engines were timed alone."
    overhead = Overhead(
        value_ms=round(found.step_ms, 4),
        provenance=Provenance(method="measured", source=where, note=told),
    )
    wake = Wake(
        value_ms=round(found.wake_ms, 4),
        provenance=Provenance(method="measured", source=where, note="From the fit, see overhead."),
    )
    changes: dict[str, Any] = {
        "overhead": overhead,
        "wake": wake,
        "decode": _longer(model.decode, found.request_ms),
    }
    if model.extend is not None:
        changes["extend"] = _longer(model.extend, found.request_ms)
    return model.model_copy(update=changes)


def _longer(table: AnyTable, request_ms: float) -> AnyTable:
    """Add so many milliseconds for each request of a batch."""
    rows = tuple(
        tuple(
            round(latency + request_ms * batch, 4)
            for latency, batch in zip(row, table.batch, strict=True)
        )
        for row in table.rows
    )
    note = f"{table.provenance.note} {request_ms:.3g} ms for each request added, see overhead."
    return table.model_copy(
        update={
            "latency_ms": rows if isinstance(table.latency_ms[0], tuple) else rows[0],
            "provenance": table.provenance.model_copy(update={"note": note}),
        }
    )
