"""Which entries of an estimate rest on measured points, read from the package's own tables.

The package says nothing of it, and the layout of its tables is no interface: where they cannot be
understood the answer is "unknown", never a guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from trmodel.profile.importers.package import Model, Package

Status = Literal["measured", "interpolated", "extrapolated"]

ATTENTION_REACH = 1.1
"""The package averages decode attention over contexts from about 0.9 to 1.1 of the given one."""

DENSE = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}


@dataclass(frozen=True)
class MeasuredPoints:
    """The measured points that a dense bfloat16 model meets on one system.

    Parameters
    ----------
    gpu
        Name of the GPU that was measured.
    attention
        (batch, context) of the decode attention with this model's heads.
    tokens
        Tokens in a step for which matrix products were measured.
    products
        Whether the shape of each matrix product of a layer was measured, and of the output
        projection ("logits").
    """

    gpu: str
    attention: frozenset[tuple[int, int]]
    tokens: frozenset[int]
    products: dict[str, Status]

    def decode_status(self, batch: int, context: int) -> Status:
        """Say how well the measurements cover a decode step.

        measured: batch and context are points of the attention, the batch of the matrix products,
        and every product of a layer has a measured shape. interpolated: within the points.
        extrapolated: beyond them. The output projection, one product in a step, is left out.
        """
        batches = sorted({b for b, _ in self.attention})
        if not batches or not batches[0] <= batch <= batches[-1] or batch > max(self.tokens):
            return "extrapolated"
        near = (
            max(b for b in batches if b <= batch),
            min(b for b in batches if b >= batch),
        )
        for b in near:
            contexts = [c for other, c in self.attention if other == b]
            if not min(contexts) <= context <= max(contexts) / ATTENTION_REACH:
                return "extrapolated"
        shapes = {status for name, status in self.products.items() if name != "logits"}
        if "extrapolated" in shapes:
            return "extrapolated"
        exact = (batch, context) in self.attention and batch in self.tokens
        return "measured" if exact and shapes == {"measured"} else "interpolated"


def measured_points(
    package: Package, system: str, backend: str, version: str, model: Model, tensor_parallel: int
) -> MeasuredPoints | None:
    """Read the points from the package's tables; None where they cannot be understood."""
    try:
        return _read(package, system, backend, version, model.config, tensor_parallel)
    except Exception:  # the layout of the tables is no interface: anything can go wrong
        return None


def _read(
    package: Package, system: str, backend: str, version: str, config: dict[str, Any], tp: int
) -> MeasuredPoints:
    import pandas as pd

    if not DENSE.intersection(config["architectures"]) or config.get("quantization_config"):
        raise ValueError("only dense bfloat16 models have points that are understood")
    data = package.folder / "systems" / "data" / system
    attention = pd.read_parquet(
        data / "attention" / backend / version / "generation_attention_perf.parquet"
    )
    products = pd.read_parquet(data / "gemm" / backend / version / "gemm_perf.parquet")

    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv_heads = math.ceil(config["num_key_value_heads"] / tp)
    own = (
        (attention["num_heads"] == heads // tp)
        & (attention["num_key_value_heads"] == kv_heads)
        & (attention["head_dim"] == head_dim)
        & (attention["attn_dtype"] == "bfloat16")
        & (attention["kv_cache_dtype"] == "bfloat16")
    )
    if "window_size" in attention:
        own &= attention["window_size"].fillna(0) <= 0
    kernels = set(attention["kernel_source"])
    if len(kernels) > 1:
        own &= attention["kernel_source"] == _default_kernel(package, system, kernels)
    attention = attention[own]
    products = products[products["gemm_dtype"] == "bfloat16"]
    (gpu,) = set(products["device"])
    contexts = attention["isl"] + attention["step"]
    return MeasuredPoints(
        gpu=str(gpu),
        attention=frozenset(zip(attention["batch_size"].tolist(), contexts.tolist(), strict=True)),
        tokens=frozenset(products["m"].tolist()),
        products=_shapes(
            _product_shapes(config, head_dim, kv_heads, tp),
            set(zip(products["n"].tolist(), products["k"].tolist(), strict=True)),
        ),
    )


def _default_kernel(package: Package, system: str, kernels: set[str]) -> str:
    """Return the kernel that the package reads on this GPU, of several measured ones."""
    if package.database.load_system_spec(system)["gpu"]["sm_version"] == 90 and "fa3" in kernels:
        return "fa3"
    raise ValueError("several attention kernels, and the one used is unknown")


def _product_shapes(
    config: dict[str, Any], head_dim: int, kv_heads: int, tp: int
) -> dict[str, tuple[int, int]]:
    """Return (n, k) of the matrix products that one GPU does: m tokens times k by n."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    inner = config["intermediate_size"] // tp
    return {
        "qkv": (heads * head_dim // tp + 2 * kv_heads * head_dim, hidden),
        "attention output": (hidden, heads * head_dim // tp),
        "gate and up": (2 * inner, hidden),
        "down": (hidden, inner),
        "logits": (config["vocab_size"] // tp, hidden),
    }


def _shapes(
    wanted: dict[str, tuple[int, int]], measured: set[tuple[int, int]]
) -> dict[str, Status]:
    widest, deepest = max(n for n, _ in measured), max(k for _, k in measured)

    def status(n: int, k: int) -> Status:
        if (n, k) in measured:
            return "measured"
        return "extrapolated" if n > widest or k > deepest else "interpolated"

    return {name: status(*shape) for name, shape in wanted.items()}
