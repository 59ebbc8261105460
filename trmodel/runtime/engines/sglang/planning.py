"""From a server's file to its SGLang engines: what each is told, and what fits.

Models that share a GPU share its memory: their weights and caches and what is kept for workspace
fit together. As a live request keeps its tokens on every model, all models hold equally many.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence

from trmodel.errors import InfeasibleError, InputError
from trmodel.machine import memory_bytes
from trmodel.profile import LoadedProfile
from trmodel.profile.capacity import capacity
from trmodel.profile.schema import Hardware, Memory, ModelProfile, Profile
from trmodel.profile.tables import DecodeTable, Provenance
from trmodel.routing import Routing
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.engines.sglang.folder import ModelFolder
from trmodel.runtime.engines.sglang.gpus import VISIBLE, visible_gpus
from trmodel.runtime.engines.sglang.options import EngineOptions

log = logging.getLogger(__name__)

UNMEASURED = "unmeasured"
"""Name of the profile of a server whose steps were not measured yet."""
_CPU_TOKENS = 65_536
"""The most that caches on a CPU hold by default."""
_BATCHES = 1024


def machine_profile(config: ServerConfig) -> Profile:
    """Return a profile of the models and the machine; its step times are placeholders.

    Raises
    ------
    InputError
        If a model's folder cannot be read, or a GPU is not there.
    """
    models = [
        ModelProfile(
            name=name,
            tensor_parallel=model.tp,
            gpus=tuple(range(model.gpu, model.gpu + model.tp)) if _on_gpu(config) else None,
            decode=DecodeTable(
                batch=(1, _BATCHES),
                latency_ms=(1.0, 1.0),
                context_tokens=None,
                provenance=Provenance(method="assumed", source="placeholder until measured"),
            ),
            memory=_memory(ModelFolder(model.path), config.sglang.dtype),
        )
        for name, model in config.models.items()
    ]
    return Profile(
        schema="trmodel/profile",
        schema_version=1,
        name=UNMEASURED,
        description="The models of a server, before their steps are measured.",
        hardware=_hardware(config),
        obtained="assumed",
        models=tuple(models),
        routing=_routing(tuple(config.models)),
    )


def _routing(names: tuple[str, ...]) -> str | Routing | None:
    """The default where no file says otherwise: with one model there is nothing to choose."""
    return _everywhere(names) if len(names) == 1 else {2: "r2r", 3: "ensemble"}.get(len(names))


def _on_gpu(config: ServerConfig) -> bool:
    return config.sglang.device == "cuda"


def _memory(folder: ModelFolder, dtype: str) -> Memory:
    return Memory(
        weight_bytes=folder.weight_bytes(dtype),
        kv_bytes_per_token=folder.kv_bytes_per_token(dtype),
        provenance=Provenance(method="derived", source=f"{folder.path}: sizes and config.json"),
    )


def _hardware(config: ServerConfig) -> Hardware:
    if not _on_gpu(config):
        return Hardware(gpu="CPU", gpus=1)
    used = max(model.gpu + model.tp for model in config.models.values())
    gpus = visible_gpus()
    if used > len(gpus):
        hidden = " visible to this process" if VISIBLE in os.environ else ""
        raise InputError(f"models: {used} GPUs are named, the machine has {len(gpus)}{hidden}")
    memory = min(gpu.memory_bytes for gpu in gpus[:used])
    return Hardware(
        gpu=gpus[0].name,
        gpus=used,
        gpu_memory_bytes=memory,
        reserved_bytes=int(config.sglang.workspace_fraction * memory),
    )


def check_settings(config: ServerConfig) -> None:
    """Check that no setting is for another device.

    Raises
    ------
    InputError
        With the first that would have no effect.
    """
    if _on_gpu(config):
        return
    for name, model in config.models.items():
        if "gpu" in model.model_fields_set:
            raise InputError(
                f"models.{name}.gpu: there is none with device: cpu; leave it out (cores say "
                "where it runs)"
            )
    for key in ("workspace_fraction", "cuda_graphs", "extend_tokens"):
        if key in config.sglang.model_fields_set:
            raise InputError(f"sglang.{key}: is for GPUs, and device is cpu; leave it out")


def check_cores(config: ServerConfig, names: Collection[str]) -> None:
    """Check that models that are to run on this machine find their cores.

    Raises
    ------
    InputError
        If some core is not there, or not for this process.
    """
    there = os.sched_getaffinity(0)
    for name in names:
        if missing := sorted(set(config.models[name].cores) - there):
            raise InputError(
                f"models.{name}.cores: there is no {', '.join(map(str, missing))}; this process "
                f"has {', '.join(map(str, sorted(there)))}"
            )


def limits(config: ServerConfig, machine: LoadedProfile) -> ServerConfig:
    """Return the file with the context and the cache that all its models have room for.

    Parameters
    ----------
    machine
        See `machine_profile`.

    Raises
    ------
    InputError, InfeasibleError
        If a folder cannot be read, the weights do not fit, or not one request does.
    """
    bounds = []
    for name, model in config.models.items():
        bounds.append((ModelFolder(model.path).max_context, f"{name} attends to no more"))
        if model.kv_tokens is not None:
            bounds.append((model.kv_tokens, f"models.{name}.kv_tokens"))
    context = min([config.max_context, *(bound for bound, _ in bounds)])
    if _on_gpu(config):
        room = capacity(machine, _everywhere(tuple(config.models)), context=context).tokens
        if config.kv_tokens is not None and config.kv_tokens > room:
            raise InfeasibleError(
                f"kv_tokens: {config.kv_tokens} do not fit; beside weights and workspace_fraction "
                f"the GPUs have room for {room}"
            )
    else:
        room = min(config.max_live * context, _CPU_TOKENS)
        _check_memory(config, machine, config.kv_tokens or room)
    tokens = config.kv_tokens or room
    bounds.append((tokens, "the models' caches hold no more (kv_tokens)"))
    least, why = min(bounds, key=lambda bound: bound[0])
    if least < 2:
        raise InfeasibleError(f"there is no room for a request: {least} tokens, {why}")
    if least < config.max_context:
        log.warning("max_context: %d tokens, not %d: %s", least, config.max_context, why)
    return config.model_copy(update={"max_context": min(context, tokens), "kv_tokens": tokens})


def _check_memory(config: ServerConfig, machine: LoadedProfile, tokens: int) -> None:
    """Refuse caches that are larger than the machine; a GPU's are checked on the GPU as well."""
    caches = sum(
        (config.models[model.name].kv_tokens or tokens) * model.memory.kv_bytes_per_token
        for model in machine.profile.models
        if model.memory is not None
    )
    memory = memory_bytes()
    if caches > memory:
        raise InfeasibleError(
            f"kv_tokens: the models' caches take {caches / 2**30:.3g} GiB, the machine has "
            f"{memory / 2**30:.3g}"
        )


def _everywhere(names: tuple[str, ...]) -> Routing:
    """A routing by which every request comes to every model."""
    M = len(names)
    return Routing(
        name="everywhere",
        models=names,
        transition_probability=((1 / M,) * M,) * M,
        committed_tokens=((1,) * M,) * M,
        source="every model follows every other alike",
    )


def engine_options(
    config: ServerConfig, names: Sequence[str], vocabulary: int
) -> list[EngineOptions]:
    """Return what each model's engine is told, in the order of the names; see `limits`.

    Parameters
    ----------
    vocabulary
        Tokens that all models have.

    Raises
    ------
    InputError
        If ``sglang.arguments`` has what is decided here.
    """
    common = config.sglang
    made = [
        EngineOptions(
            path=model.path,
            device=common.device,
            dtype=common.dtype,
            gpu=model.gpu,
            tp=model.tp,
            cores=model.cores,
            vocabulary=vocabulary,
            kv_tokens=model.kv_tokens or config.kv_tokens,
            max_batch=config.max_batch or config.max_live,
            max_context=config.max_context,
            cuda_graphs=common.cuda_graphs,
            extend_tokens=common.extend_tokens,
            arguments=dict(common.arguments),
        )
        for model in (config.models[name] for name in names)
    ]
    for options in made:
        options.server_arguments(1, hidden=False)  # says what may not be given
    return made
