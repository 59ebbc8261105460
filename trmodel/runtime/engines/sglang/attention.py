"""Attention on the CPU for many requests at once, and for no more than is new.

SGLang's plain backend goes through the requests of a batch one by one, and for n new tokens behind
L that are held it attends from all L + n positions to keep the last n. Here every new token of a
pass is a query of its own: token t at position p of its request attends to the p + 1 slots of the
request's row, so that decodes, extends and batches of both are one call. The results are the same.

Passes with many new tokens, such as long prompts, go request by request, as they would need a copy
of the keys for each token; these attend from the new positions alone as well.
"""

from __future__ import annotations

from typing import Any

NAME = "trmodel_cpu"
MOST_QUERIES, MOST_KEYS = 64, 1 << 17
"""New tokens of a pass, and their keys together, up to which each has a copy of its keys."""


def register() -> None:
    """Make the backend known to SGLang, by `NAME`."""
    import torch
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from torch.nn.functional import scaled_dot_product_attention

    class Backend(TorchNativeAttnBackend):
        def init_forward_metadata(self, forward_batch: Any) -> None:
            """Work out once for all layers where each query's keys are."""
            super().init_forward_metadata(forward_batch)
            self._keys: Any = None
            rows, lengths = forward_batch.req_pool_indices, forward_batch.seq_lens
            if not forward_batch.forward_mode.is_decode():
                lengths = forward_batch.positions + 1
                if len(lengths) > MOST_QUERIES:
                    return
                rows = rows.repeat_interleave(forward_batch.extend_seq_lens)
            longest = int(lengths.max())
            if len(lengths) * longest > MOST_KEYS:
                return
            slots = self.req_to_token_pool.req_to_token[rows, :longest]
            mask = torch.arange(longest, device=rows.device) < lengths.unsqueeze(1)
            self._keys = slots, mask[:, None, None, :]

        def _run_sdpa_forward_decode(
            self, query: Any, output: Any, k_cache: Any, v_cache: Any, *others: Any, **options: Any
        ) -> Any:
            arguments = query, output, k_cache, v_cache
            if self._keys is None or not _plain(others, options):
                return super()._run_sdpa_forward_decode(*arguments, *others, **options)
            return self._together(*arguments, options)

        def _run_sdpa_forward_extend(
            self, query: Any, output: Any, k_cache: Any, v_cache: Any, *others: Any, **options: Any
        ) -> Any:
            arguments = query, output, k_cache, v_cache
            if not options["causal"] or not _plain(others, options):
                return super()._run_sdpa_forward_extend(*arguments, *others, **options)
            if self._keys is None:
                return self._one_by_one(*arguments, others, options)
            return self._together(*arguments, options)

        def _together(
            self, query: Any, output: Any, k_cache: Any, v_cache: Any, options: Any
        ) -> Any:
            slots, mask = self._keys
            found = scaled_dot_product_attention(
                query.unsqueeze(2),
                k_cache[slots].to(query.dtype).transpose(1, 2),
                v_cache[slots].to(query.dtype).transpose(1, 2),
                attn_mask=mask,
                scale=options["scaling"],
                enable_gqa=options["enable_gqa"],
            )
            output[:] = found.squeeze(2)
            return output

        def _one_by_one(
            self, query: Any, output: Any, k_cache: Any, v_cache: Any, others: Any, options: Any
        ) -> Any:
            req_to_token, rows, lengths, _, added, _ = others
            start = 0
            for row, length, new in zip(
                rows.tolist(), lengths.tolist(), added.tolist(), strict=True
            ):
                slots, end = req_to_token[row, :length], start + new
                mask = None
                if 1 < new < length:
                    mask = torch.ones(new, length, dtype=torch.bool, device=query.device)
                    mask = mask.tril(length - new)
                found = scaled_dot_product_attention(
                    query[start:end].transpose(0, 1).unsqueeze(0),
                    k_cache[slots].to(query.dtype).transpose(0, 1).unsqueeze(0),
                    v_cache[slots].to(query.dtype).transpose(0, 1).unsqueeze(0),
                    attn_mask=mask,
                    is_causal=1 < new == length,
                    scale=options["scaling"],
                    enable_gqa=options["enable_gqa"],
                )
                output[start:end] = found.squeeze(0).transpose(0, 1)
                start = end
            return output

    register_attention_backend(NAME)(Backend)


def _plain(others: Any, options: Any) -> bool:
    """Whether each token attends to all before it in its own request, and to nothing else."""
    encoder_lens, window = others[-1], options["sliding_window_size"]
    return encoder_lens is None and not options["is_cross_attn"] and (window or -1) < 0
