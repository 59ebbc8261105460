"""What a profile says beside its tables: machine, memory, contention, handoff, sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trmodel.profile import Hardware, LoadedProfile, ModelProfile, Profile, Provenance


def profile_facts(loaded: LoadedProfile) -> str:
    """Return what holds for the whole profile, a line for each fact."""
    profile = loaded.profile
    routing = profile.routing
    facts = {
        "hardware": f"{profile.hardware.gpus} x {profile.hardware.gpu}",
        "memory": _memory(profile.hardware),
        "note": profile.hardware.note,
        "software": ", ".join(f"{name} {version}" for name, version in profile.software.items()),
        "obtained": profile.obtained,
        "routing": routing if routing is None or isinstance(routing, str) else routing.name,
        "context": profile.context_tokens and f"{profile.context_tokens} tokens",
        "grid": f"{profile.grid_ms:g} ms",
        "sha256": loaded.sha256,
    }
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    return "\n".join([*lines, *_slow_downs(profile), *_handoff(profile), *_fit(profile)])


def _memory(hardware: Hardware) -> str:
    said = []
    if hardware.gpu_memory_bytes is not None:
        said.append(f"{_gigabytes(hardware.gpu_memory_bytes)} a GPU")
    if hardware.reserved_bytes is not None:
        said.append(f"{_gigabytes(hardware.reserved_bytes)} of each reserved")
    return ", ".join(said)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _slow_downs(profile: Profile) -> list[str]:
    return [
        f"slow-down: {a} x {by_a:g} and {b} x {by_b:g} while both run "
        f"({source_of(entry.provenance)})"
        for entry in profile.slow_downs
        for (a, b), (by_a, by_b) in [(entry.models, entry.factors)]
    ]


def _handoff(profile: Profile) -> list[str]:
    if profile.handoff is None:
        return []
    pairs = [
        f"{pair.source} to {pair.destination} {pair.latency_ms:g} ms"
        for pair in profile.handoff.pairs
    ]
    delays = ", ".join([f"{profile.handoff.latency_ms:g} ms", *pairs])
    return [f"handoff: {delays} ({source_of(profile.handoff.provenance)})"]


def _fit(profile: Profile) -> list[str]:
    if profile.fit is None:
        return []
    known = "known" if profile.fit.covariance is not None else "unknown"
    return [f"fit: {profile.fit.source}; how sure it is, is {known}"]


def model_facts(model: ModelProfile) -> str:
    """Return what is listed of a model beside its tables, a line for each fact."""
    bound = "" if model.max_batch is None else f", at most {model.max_batch} requests a step"
    placed = "" if model.gpus is None else f" on GPU {_listed(model.gpus)}"
    contexts = model.decode.contexts
    tokens = f", context {_listed(contexts)} tokens" if contexts else ""
    lines = [f"{model.name}: tensor parallel {model.tensor_parallel}{placed}{bound}{tokens}"]
    if model.memory is not None:
        lines.append(
            f"memory: {_gigabytes(model.memory.weight_bytes)} of weights, "
            f"{model.memory.kv_bytes_per_token:,} KV bytes a token"
        )
    if model.decode.padded_batches is not None:
        lines.append(f"batches padded to: {_listed(model.decode.padded_batches)}")
    if model.extend is not None and model.extend.context_growth is not None:
        growth = ", ".join(f"{times:g}" for times in model.extend.context_growth)
        lines.append(
            f"extends grow with the context {growth} times as much as decodes, with "
            f"{_listed(model.extend.new_tokens)} new tokens"
        )
    if model.overhead is not None:
        lines.append(f"overhead: {model.overhead.value_ms:g} ms, added to every step")
    if model.wake is not None:
        lines.append(f"wake: {model.wake.value_ms:g} ms, added to a step if the model was idle")
    return "\n".join(lines)


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def sources(model: ModelProfile) -> str:
    """Return where every number of a model comes from, a line for each."""
    listed = {
        "decode": model.decode,
        "extend": model.extend,
        "overhead": model.overhead,
        "wake": model.wake,
        "memory": model.memory,
    }
    return "\n".join(
        f"{name}: {source_of(part.provenance)}" for name, part in listed.items() if part is not None
    )


def source_of(provenance: Provenance) -> str:
    """Return a provenance in a line."""
    note = f" ({provenance.note})" if provenance.note else ""
    return f"{provenance.method}; {provenance.source}{note}"
