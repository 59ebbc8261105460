"""Attention on the CPU: SGLang's plain backend, made faster where token-level routing spends time.

That backend gathers every request's whole cache at each decode, which `attend` reads in place. In
an extend of n new tokens behind L that are held it attends from all L + n positions and keeps the
last n; here only these n are computed. The result is the same up to rounding.
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

    from trmodel.runtime.engines.sglang.attention_kernel import attend

    def in_place(*arguments: Any) -> None:
        *tensors, scale = arguments
        given: Any = (*(one.numpy() for one in tensors), scale)
        attend(*given)

    class Backend(TorchNativeAttnBackend):
        def _run_sdpa_forward_decode(self, *tensors: Any, **how: Any) -> Any:
            query, *arrays, encoder_lens = tensors
            single = all(one.dtype == torch.float32 for one in tensors[:4])
            if not single or not _is_common(encoder_lens, how):
                return super()._run_sdpa_forward_decode(*tensors, **how)
            in_place(query.contiguous(), *arrays, how["scaling"])
            return arrays[0]

        def _run_sdpa_forward_extend(self, *tensors: Any, **how: Any) -> Any:
            *arrays, _, extend_seq_lens, encoder_lens = tensors
            if not how["causal"] or not _is_common(encoder_lens, how):
                return super()._run_sdpa_forward_extend(*tensors, **how)
            query, output, k_cache, v_cache, req_to_token, rows, lengths = arrays
            start = 0
            for row, length, new in zip(
                rows.tolist(), lengths.tolist(), extend_seq_lens.tolist(), strict=True
            ):
                slots, end = req_to_token[row, :length], start + new
                mask = None
                if 1 < new < length:
                    mask = torch.ones(new, length, dtype=torch.bool).tril(length - new)
                found = scaled_dot_product_attention(
                    query[start:end].movedim(0, 1).unsqueeze(0),
                    k_cache[slots].to(query.dtype).movedim(0, 1).unsqueeze(0),
                    v_cache[slots].to(query.dtype).movedim(0, 1).unsqueeze(0),
                    attn_mask=mask,
                    is_causal=1 < new == length,
                    scale=how["scaling"],
                    enable_gqa=how["enable_gqa"],
                )
                output[start:end] = found.squeeze(0).movedim(1, 0)
                start = end
            return output

    register_attention_backend(NAME)(Backend)
    # What is compiled is compiled now, not at the first request.
    one, row = torch.zeros(1, 1, 1), torch.zeros(1, dtype=torch.int64)
    in_place(one, one, one, one, torch.zeros(1, 1, dtype=torch.int32), row, row + 1, 1.0)


def _is_common(encoder_lens: Any, how: dict[str, Any]) -> bool:
    """Whether tokens attend to those of their own request, and to all of them up to themselves."""
    return encoder_lens is None and (how["sliding_window_size"] or 0) <= 0
