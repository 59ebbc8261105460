"""What an SGLang engine is told: the model's folder, the device, how much of it."""

from __future__ import annotations

from typing import Any

import msgspec

from trmodel.errors import InputError
from trmodel.runtime.engines.sglang import attention


class EngineOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model's engine.

    Attributes
    ----------
    path
        Folder of the weights.
    device
        ``cpu`` or ``cuda``.
    gpu, tp
        First GPU, and over how many the model is split.
    cores
        The process's cores; empty for all.
    vocabulary
        Tokens that there are: logits of those beyond, which only fill up the model's shape, are
        cut off. None for all.
    kv_tokens
        Tokens that the cache holds; None for what SGLang finds room for.
    cuda_graphs
        Whether decodes and extends replay graphs, on a GPU.
    extend_tokens
        New tokens of a batch up to which extends have graphs.
    arguments
        More of SGLang's own `ServerArgs`.
    """

    path: str
    device: str = "cpu"
    dtype: str = "auto"
    gpu: int = 0
    tp: int = 1
    cores: tuple[int, ...] = ()
    vocabulary: int | None = None
    kv_tokens: int | None = None
    max_batch: int = 32
    max_context: int = 4096
    cuda_graphs: bool = True
    extend_tokens: int = 512
    arguments: dict[str, Any] = {}

    def server_arguments(self, rows: int, *, hidden: bool) -> dict[str, Any]:
        """Return the arguments of `ServerArgs`.

        Raises
        ------
        InputError
            If ``arguments`` has one that the adapter depends on.
        """
        found: dict[str, Any] = {
            "model_path": self.path,
            "device": self.device,
            "dtype": self.dtype,
            "tp_size": self.tp,
            "base_gpu_id": self.gpu,
            "context_length": self.max_context,
            "max_running_requests": rows,
            "disable_radix_cache": True,
            "disable_overlap_schedule": True,
            "grammar_backend": "none",
            "skip_tokenizer_init": True,
            "page_size": 1,
            "random_seed": 0,
            "log_level": "error",
        }
        if self.kv_tokens is not None:
            # SGLang takes the smaller of this number and of what fits into the memory that is free
            # at this moment, less the other fraction of what was free when its process began. The
            # number leaves the workspace free already; taken off again, and off what the processes
            # of other models on this GPU have left of it, it would make the cache smaller.
            found |= {"max_total_tokens": self.kv_tokens, "mem_fraction_static": 1.0}
        if taken := sorted(found.keys() & self.arguments):
            raise InputError(f"sglang.arguments: {', '.join(taken)} cannot be changed there")
        if hidden:
            found["return_hidden_states_mode"] = "last"
        if self.device == "cpu":
            found |= {"attention_backend": attention.NAME, "sampling_backend": "pytorch"}
        if self.device == "cpu" or not self.cuda_graphs:
            found["disable_cuda_graph"] = True
        else:
            found["cuda_graph_bs_decode"] = sizes(self.max_batch)
            found["cuda_graph_bs_prefill"] = sizes(self.extend_tokens)
        return found | self.arguments


def sizes(largest: int) -> list[int]:
    """Return the sizes of graphs: all up to 8, then steps of an eighth or less.

    A batch is padded to the next size, which wastes at most an eighth of it.
    """
    found, size = [], 1
    while size < largest:
        found.append(size)
        size += max(size // 8, 1)
    return [*found, largest]
