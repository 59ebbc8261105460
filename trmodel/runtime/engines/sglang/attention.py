"""Attention of extends on the CPU without what SGLang's plain backend computes in vain.

For n new tokens behind L that are held, that backend attends from all L + n positions and keeps
the last n; here only these n are computed. An extend after a handoff has n of one to a few, so
that this is most of its time at any length. The result is the same.
"""

from __future__ import annotations

from typing import Any

NAME = "trmodel_cpu"


def register() -> None:
    """Make the backend known to SGLang, by `NAME`."""
    import torch
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from torch.nn.functional import scaled_dot_product_attention

    class Backend(TorchNativeAttnBackend):
        def _run_sdpa_forward_extend(
            self,
            query: Any,
            output: Any,
            k_cache: Any,
            v_cache: Any,
            req_to_token: Any,
            req_pool_indices: Any,
            seq_lens: Any,
            extend_prefix_lens: Any,
            extend_seq_lens: Any,
            encoder_lens: Any = None,
            scaling: float | None = None,
            enable_gqa: bool = False,
            causal: bool = False,
            is_cross_attn: bool = False,
            sliding_window_size: int | None = None,
        ) -> Any:
            if not causal or encoder_lens is not None or (sliding_window_size or 0) > 0:
                return super()._run_sdpa_forward_extend(
                    query,
                    output,
                    k_cache,
                    v_cache,
                    req_to_token,
                    req_pool_indices,
                    seq_lens,
                    extend_prefix_lens,
                    extend_seq_lens,
                    encoder_lens,
                    scaling=scaling,
                    enable_gqa=enable_gqa,
                    causal=causal,
                    is_cross_attn=is_cross_attn,
                    sliding_window_size=sliding_window_size,
                )
            start = 0
            for row, length, new in zip(
                req_pool_indices.tolist(), seq_lens.tolist(), extend_seq_lens.tolist(), strict=True
            ):
                slots, end = req_to_token[row, :length], start + new
                mask = None
                if 1 < new < length:
                    mask = torch.ones(new, length, dtype=torch.bool, device=query.device)
                    mask = mask.tril(length - new)
                found = scaled_dot_product_attention(
                    query[start:end].movedim(0, 1).unsqueeze(0),
                    k_cache[slots].to(query.dtype).movedim(0, 1).unsqueeze(0),
                    v_cache[slots].to(query.dtype).movedim(0, 1).unsqueeze(0),
                    attn_mask=mask,
                    is_causal=1 < new == length,
                    scale=scaling,
                    enable_gqa=enable_gqa,
                )
                output[start:end] = found.squeeze(0).movedim(1, 0)
                start = end
            return output

    register_attention_backend(NAME)(Backend)
