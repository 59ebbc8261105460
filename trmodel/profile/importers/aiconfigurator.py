"""Step latencies derived with NVIDIA's aiconfigurator-core, without a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trmodel.errors import InputError, UsageError
from trmodel.profile.context import DEFAULT_CONTEXT
from trmodel.profile.importers.document import finished
from trmodel.profile.importers.estimate import Grid, Source, estimate_model
from trmodel.profile.importers.package import BACKENDS, opened
from trmodel.profile.schema import Profile

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (512, 1024, 2048, 4096, 8192)
NEW_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)
MODELS = ("Qwen/Qwen3-0.6B:tp1", "Qwen/Qwen3-32B:tp2")
MEMORY_FRACTION = 0.88
"""Share of a GPU for weights and KV: what SGLang's --mem-fraction-static comes to on 80 GB."""


def parse_model(text: str) -> tuple[str, int]:
    """Split a model and the GPUs it is spread over: ``Qwen/Qwen3-32B:tp2`` has 2, none means 1.

    Raises
    ------
    UsageError
        If what follows the colon is not ``tp`` and a whole number of at least 1.
    """
    name, colon, suffix = text.partition(":")
    digits = suffix.removeprefix("tp")
    if not name or (colon and not (digits.isascii() and digits.isdigit() and int(digits) >= 1)):
        raise UsageError(f"model: expected NAME or NAME:tp2, got {text!r}")
    return name, int(digits) if colon else 1


def import_aiconfigurator(
    system: str,
    models: Iterable[str | tuple[str, int]] = MODELS,
    *,
    backend: str = "sglang",
    version: str | None = None,
    batches: Sequence[int] = BATCHES,
    contexts: Sequence[int] = CONTEXTS,
    new_tokens: Sequence[int] = NEW_TOKENS,
    context_tokens: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str | None = None,
    description: str | None = None,
    routing: str | None = None,
) -> Profile:
    """Make a profile of models on one of the package's systems; takes about a second a model.

    Parameters
    ----------
    system
        The package's name of a GPU, such as ``a100_sxm``.
    models
        Names with an optional ``:tp2``, or pairs of a name and the number of GPUs it is spread
        over. A name is one that the package ships, or a folder with a ``config.json``.
    backend, version
        Server whose measurements to use, and its version; None for the package's current one.
    batches
        Batch sizes of both tables, increasing, the first one 1.
    contexts
        Context lengths of the decode table, in tokens (the one being decoded included).
    new_tokens
        New tokens per request of the extend table.
    context_tokens
        The profile's usual context, among ``contexts``; also the cached tokens of every request
        before an extend step. None for 2048, or the listed one that is closest to it.
    memory_fraction
        Share of each GPU's memory for weights and KV; the rest is reserved.
    name, description, routing
        Of the profile; the default name is that of the system.

    Raises
    ------
    UsageError
        If the package is missing, has no such system, backend or version (one line with those
        there are), or another argument makes no sense.
    InputError
        With a line for each model that the package cannot be asked about.
    """
    if context_tokens is None:
        context_tokens = min(contexts, key=lambda tokens: abs(tokens - DEFAULT_CONTEXT), default=0)
    grid = Grid(batches, contexts, new_tokens, context_tokens)
    if not 0 < memory_fraction < 1:
        raise UsageError(f"memory_fraction: must be between 0 and 1, got {memory_fraction}")
    wanted = [parse_model(each) if isinstance(each, str) else each for each in models]
    if not wanted or any(tp < 1 for _, tp in wanted):
        raise UsageError(f"models: name at least one, each on at least one GPU, got {wanted}")
    with opened() as (package, scratch):
        source = Source(package, system, backend, package.choose_version(system, backend, version))
        found, problems = [], []
        for each, tensor_parallel in wanted:
            try:
                found.append((package.find_model(each, scratch), tensor_parallel))
            except InputError as error:
                problems += error.problems
        if problems:
            raise InputError(problems)
        entries = [estimate_model(source, grid, model, tp) for model, tp in found]
    capacity = entries[0].gpu_memory_bytes
    hardware = {
        "gpu": entries[0].gpu or system,
        "gpus": max(tp for _, tp in wanted),
        "gpu_memory_bytes": capacity,
        "reserved_bytes": round(capacity * (1 - memory_fraction)),
        "note": f"{1 - memory_fraction:.0%} of each GPU's memory is reserved for what is neither "
        f"weights nor KV (SGLang's --mem-fraction-static {memory_fraction:g}).",
    }
    label = f"{BACKENDS[backend]} {source.version}"
    return finished(
        {
            "name": name or system,
            "description": description
            or f"Forward passes on {hardware['gpu']} with {label}, derived with "
            "aiconfigurator-core; overhead and contention are not in it.",
            "hardware": hardware,
            "software": {backend: source.version, "aiconfigurator-core": package.version},
            "obtained": "derived",
            "context_tokens": context_tokens,
            "models": [entry.document for entry in entries],
            "routing": routing,
        }
    )
