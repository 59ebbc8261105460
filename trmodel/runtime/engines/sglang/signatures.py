"""Does the installed SGLang have what the adapter uses, in the form in which it uses it?

Its internals move at every few releases. What is listed here is all that `adapter` and `attention`
call or set; a difference is told before a model is loaded, instead of as some error in a step.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from trmodel.errors import InputError

log = logging.getLogger(__name__)

WRITTEN_FOR = "0.5.23"

CALLS: Mapping[str, tuple[str, ...]] = {
    "sglang.benchmark.one_batch:TreeCacheNamespace": (
        "page_size",
        "device",
        "token_to_kv_pool_allocator",
    ),
    "sglang.benchmark.one_batch:_init_process_global_configs": (),
    "sglang.srt.configs.model_config:ModelConfig.from_server_args": ("server_args",),
    "sglang.srt.distributed.bootstrap:init_layer_runtime": ("model_config",),
    "sglang.srt.distributed.bootstrap:init_parallel_runtime": (
        "server_args",
        "device",
        "dist_port",
    ),
    "sglang.srt.entrypoints.engine:_set_envs_and_config": ("server_args",),
    "sglang.srt.layers.attention.attention_registry:register_attention_backend": ("name",),
    "sglang.srt.layers.attention.torch_native_backend:"
    "TorchNativeAttnBackend._run_sdpa_forward_decode": (
        "query",
        "output",
        "k_cache",
        "v_cache",
        "req_to_token",
        "req_pool_indices",
        "seq_lens",
        "encoder_lens",
        "scaling",
        "enable_gqa",
        "causal",
        "is_cross_attn",
        "sliding_window_size",
    ),
    "sglang.srt.layers.attention.torch_native_backend:"
    "TorchNativeAttnBackend._run_sdpa_forward_extend": (
        "query",
        "output",
        "k_cache",
        "v_cache",
        "req_to_token",
        "req_pool_indices",
        "seq_lens",
        "extend_prefix_lens",
        "extend_seq_lens",
        "encoder_lens",
        "scaling",
        "enable_gqa",
        "causal",
        "is_cross_attn",
        "sliding_window_size",
    ),
    "sglang.srt.managers.schedule_batch:Req": (
        "rid",
        "origin_input_text",
        "origin_input_ids",
        "sampling_params",
    ),
    "sglang.srt.managers.schedule_batch:ScheduleBatch.init_new": (
        "reqs",
        "req_to_token_pool",
        "token_to_kv_pool_allocator",
        "tree_cache",
        "model_config",
        "enable_overlap",
        "spec_algorithm",
    ),
    "sglang.srt.managers.schedule_batch:ScheduleBatch.prepare_for_decode": (),
    "sglang.srt.managers.schedule_batch:ScheduleBatch.prepare_for_extend": (),
    "sglang.srt.mem_cache.allocator.token:TokenToKVPoolAllocator.available_size": (),
    "sglang.srt.mem_cache.allocator.token:TokenToKVPoolAllocator.free": ("free_index",),
    "sglang.srt.mem_cache.memory_pool:ReqToTokenPool.available_size": (),
    "sglang.srt.mem_cache.memory_pool:ReqToTokenPool.free": ("req",),
    "sglang.srt.model_executor.forward_batch_info:ForwardBatch.init_new": (
        "batch",
        "model_runner",
        "capture_hidden_mode",
        "return_hidden_states_before_norm",
    ),
    "sglang.srt.model_executor.model_runner:ModelRunner": (
        "model_config",
        "mem_fraction_static",
        "gpu_id",
        "nccl_port",
        "server_args",
    ),
    "sglang.srt.model_executor.model_runner:ModelRunner.alloc_memory_pool": (),
    "sglang.srt.model_executor.model_runner:ModelRunner.forward": ("forward_batch",),
    "sglang.srt.model_executor.model_runner:ModelRunner.init_attention_backends": (),
    "sglang.srt.model_executor.model_runner:ModelRunner.init_cuda_graphs": (),
    "sglang.srt.runtime_context:SpawnRanks": ("world_rank", "gpu_id"),
    "sglang.srt.runtime_context:get_device": (),
    "sglang.srt.runtime_context:publish": ("server_args", "role", "ranks"),
    "sglang.srt.runtime_context:spawn_world_rank": ("server_args", "tp_rank", "pp_rank"),
    "sglang.srt.sampling.sampling_batch_info:SamplingBatchInfo.from_schedule_batch": (
        "batch",
        "vocab_size",
    ),
    "sglang.srt.sampling.sampling_params:SamplingParams": ("temperature", "max_new_tokens"),
    "sglang.srt.server_args:PortArgs.init_new": ("server_args",),
    "sglang.srt.server_args:ServerArgs": (
        "attention_backend",
        "base_gpu_id",
        "context_length",
        "cuda_graph_bs_decode",
        "cuda_graph_bs_prefill",
        "device",
        "disable_cuda_graph",
        "disable_overlap_schedule",
        "disable_radix_cache",
        "dtype",
        "grammar_backend",
        "log_level",
        "max_running_requests",
        "max_total_tokens",
        "mem_fraction_static",
        "model_path",
        "page_size",
        "random_seed",
        "return_hidden_states_mode",
        "sampling_backend",
        "skip_tokenizer_init",
        "tp_size",
    ),
    "sglang.srt.server_args:ServerArgs.resolve_once": (),
}
"""What is called, and the names of the arguments given."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    "sglang.srt.managers.schedule_batch:ReqKvInfo": (
        "kv_allocated_len",
        "kv_committed_len",
        "req_pool_idx",
    ),
    "sglang.srt.managers.schedule_batch:ScheduleBatch": (
        "input_ids",
        "orig_seq_lens",
        "prefill_input_ids_cpu",
        "req_pool_indices",
        "req_pool_indices_cpu",
        "sampling_info",
        "seq_lens",
        "seq_lens_cpu",
    ),
}
"""What is set on objects of these classes."""


def check_signatures() -> None:
    """Refuse an SGLang that differs from the one that the adapter was written for.

    Raises
    ------
    InputError
        With every difference; or if there is none installed.
    """
    try:
        installed = version("sglang")
    except PackageNotFoundError:
        raise InputError(
            "engine: sglang is not installed; pip install 'trmodel[sglang]', or 'make sglang-cpu' "
            "without a GPU"
        ) from None
    found = differences(CALLS, FIELDS)
    if found:
        raise InputError(
            f"sglang {installed} differs from {WRITTEN_FOR}, for which the engine was written: "
            + "; ".join(found)
        )
    if installed != WRITTEN_FOR:
        log.warning(
            "sglang %s is not the %s that the engine was tested with; what it uses looks the same",
            installed,
            WRITTEN_FOR,
        )


def differences(
    calls: Mapping[str, Sequence[str]], fields_of: Mapping[str, Sequence[str]]
) -> list[str]:
    """List what is missing of these calls and fields, and what has come to be required."""
    found: list[str] = []
    for name, arguments in calls.items():
        target = _find(name)
        if target is None:
            found.append(f"{_short(name)} is gone")
            continue
        try:
            parameters = inspect.signature(target).parameters
        except ValueError:  # a built-in base takes any names
            continue
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            missing = [argument for argument in arguments if argument not in parameters]
            found += [f"{_short(name)} takes no {argument}" for argument in missing]
        found += [
            f"{_short(name)} needs {key}"
            for key, p in parameters.items()
            if key not in {*arguments, "self", "cls"}
            and p.default is p.empty
            and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
    for name, wanted in fields_of.items():
        cls = _find(name)
        known = {f.name for f in fields(cls)} if is_dataclass(cls) else set()
        found += [f"{_short(name)} has no {field}" for field in wanted if field not in known]
    return found


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


def _short(name: str) -> str:
    return name.partition(":")[2]
