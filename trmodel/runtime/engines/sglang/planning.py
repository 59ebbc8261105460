"""From a server's file to its SGLang engines: what each is told, and what fits.

Models that share a GPU share its memory: their weights and caches and what is kept for workspace
fit together. As a live request keeps its tokens on every model, all models hold equally many.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from trmodel.errors import InfeasibleError, InputError
from trmodel.profile import load_profile
from trmodel.profile.capacity import capacity
from trmodel.profile.schema import Hardware, Memory, ModelProfile, Profile
from trmodel.profile.tables import DecodeTable, Provenance
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.engines.sglang.folder import ModelFolder
from trmodel.runtime.engines.sglang.options import EngineOptions
from trmodel.runtime.engines.sglang.vocabulary import read_vocabulary

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
        routing="ensemble" if len(models) == 3 else "r2r" if len(models) == 2 else None,
    )


def _on_gpu(config: ServerConfig) -> bool:
    return config.sglang.device == "cuda"


def _memory(folder: ModelFolder, dtype: str) -> Memory:
    return Memory(
        weight_bytes=folder.weight_bytes,
        kv_bytes_per_token=folder.kv_bytes_per_token(dtype),
        provenance=Provenance(method="derived", source=f"{folder.path}: sizes and config.json"),
    )


def _hardware(config: ServerConfig) -> Hardware:
    if not _on_gpu(config):
        return Hardware(gpu="CPU", gpus=1)
    used = max(model.gpu + model.tp for model in config.models.values())
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60.0,
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(
            f"sglang: device cuda: nvidia-smi finds no GPU ({error}); without one, device: cpu"
        ) from None
    if used > len(listed):
        raise InputError(f"models: {used} GPUs are named, the machine has {len(listed)}")
    gpus = [line.rsplit(",", 1) for line in listed[:used]]
    try:
        memory = min(int(mib) for _, mib in gpus) * 2**20
    except ValueError:
        raise InputError("sglang: nvidia-smi does not tell the memory of the GPUs") from None
    return Hardware(
        gpu=gpus[0][0].strip(),
        gpus=used,
        gpu_memory_bytes=memory,
        reserved_bytes=int(config.sglang.workspace_fraction * memory),
    )


def check_cores(config: ServerConfig) -> None:
    """Check that the models that run on this machine find their cores.

    Raises
    ------
    InputError
        If some core is not there, or not for this process.
    """
    there = os.sched_getaffinity(0)
    for name, model in config.models.items():
        missing = sorted(set(model.cores) - there)
        if missing and name not in config.transport.remote:
            raise InputError(
                f"models.{name}.cores: there is no {', '.join(map(str, missing))}; this process "
                f"has {', '.join(map(str, sorted(there)))}"
            )


def limits(config: ServerConfig) -> ServerConfig:
    """Return the file with the context and the cache that all its models have room for.

    Raises
    ------
    InputError, InfeasibleError
        If a folder cannot be read, the weights do not fit, or not one request does.
    """
    models = config.models.values()
    most = [ModelFolder(model.path).max_context for model in models]
    context = min(config.max_context, *most, *(m.kv_tokens for m in models if m.kv_tokens))
    tokens = config.kv_tokens
    if tokens is None:
        if _on_gpu(config):
            tokens = capacity(load_profile(machine_profile(config)), context=context).tokens
        else:
            tokens = min(config.max_live * context, _CPU_TOKENS)
    if tokens < 2:
        raise InfeasibleError("the models' caches have no room left for a request")
    return config.model_copy(update={"max_context": min(context, tokens), "kv_tokens": tokens})


def engine_options(config: ServerConfig, names: Sequence[str]) -> list[EngineOptions]:
    """Return what each model's engine is told, in the order of the names; see `limits`.

    Raises
    ------
    InputError
        If ``sglang.arguments`` has what is decided here.
    """
    common = config.sglang
    vocabulary = read_vocabulary(next(iter(config.models.values())).path)  # that of all
    made = [
        EngineOptions(
            path=model.path,
            device=common.device,
            dtype=common.dtype,
            gpu=model.gpu,
            tp=model.tp,
            cores=model.cores,
            vocabulary=vocabulary.size,
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
