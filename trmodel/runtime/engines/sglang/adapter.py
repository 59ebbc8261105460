"""The one place that touches SGLang's internals: a model, its KV pools, and forward passes.

SGLang's parts are used as its own one-batch benchmark uses them: `ServerArgs` resolved and
published, a `ModelRunner`, and for every pass a `ScheduleBatch` of `Req`s. What it has no call for
is done here with its pools: a request *held* keeps its row and slots while others run; it goes on
by a decode (one new token) or an extend over what it holds (several); it is cut back, or freed.

Its internals move every few releases: `check_signatures` refuses what it was not written for.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trmodel.errors import InputError
from trmodel.runtime.engines.sglang import attention
from trmodel.runtime.engines.sglang.options import EngineOptions
from trmodel.runtime.engines.sglang.signatures import check_signatures

_MOST_ROWS, _SPARED = 6, 4e6
"""Short extends as decodes, on the CPU: up to so many new tokens on average, and so much more work.

A decode reads every new token's context by itself, which for a few is what an extend takes as well,
and computes the logits of every place. The work is in products of numbers: what an extend takes
longer otherwise, 0.4 ms or so, at what a core does.
"""


@dataclass(slots=True, eq=False)
class Held:
    """A request's place in the KV pools.

    Attributes
    ----------
    token_ids
        What has been read: their keys and values are in the pool.
    """

    req: Any
    token_ids: array[int]

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Pass:
    """What a forward pass gave.

    Attributes
    ----------
    logits
        Of the next token, [batch, vocabulary].
    hidden
        Last hidden states, [batch, width]; None if they were not asked for.
    """

    logits: Any
    hidden: Any


class Runner:
    """One model on one device.

    Parameters
    ----------
    options
        What to load and where.
    rows
        The most requests that hold a cache at a time.
    hidden
        Whether passes give hidden states.
    rank, port
        Place among ``options.tp`` processes, and the port at which they meet.

    Raises
    ------
    InputError
        If the installed SGLang is not the one that this was written for.
    """

    def __init__(
        self, options: EngineOptions, rows: int, *, hidden: bool, rank: int = 0, port: int = 0
    ) -> None:
        check_signatures()
        import torch
        from sglang.benchmark.one_batch import TreeCacheNamespace
        from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
        from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch
        from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
        from sglang.srt.sampling.sampling_params import SamplingParams
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        self.torch, self.rows, self._Req = torch, rows, Req
        self._ScheduleBatch, self._ForwardBatch = ScheduleBatch, ForwardBatch
        self._SamplingBatchInfo = SamplingBatchInfo
        self._none = SpeculativeAlgorithm.NONE
        # Tokens are chosen by the engine; these are here because a batch must have some.
        self._sampling = SamplingParams(temperature=0, max_new_tokens=1)
        self._capture = CaptureHiddenMode.LAST if hidden else CaptureHiddenMode.NULL
        self._sampling_infos: dict[int, Any] = {}
        self._model = _load(options, rows, hidden, rank, port)
        self.device = self._model.device
        types = {self._model.dtype, self._model.kv_cache_dtype}
        by_rows = options.device == "cpu" and types == {torch.float32}
        self._most_rows = _MOST_ROWS if by_rows else 1
        self._most_spared = _SPARED / (self.vocabulary * self._model.model_config.hidden_size)
        self._pool = self._model.req_to_token_pool
        self._slots = self._model.token_to_kv_pool_allocator
        self._tree = TreeCacheNamespace(
            page_size=1, device=self.device, token_to_kv_pool_allocator=self._slots
        )

    @property
    def capacity(self) -> int:
        """Tokens that the pool has room for."""
        return int(self._model.max_total_num_tokens)

    @property
    def free_tokens(self) -> int:
        """Tokens that it has room for now."""
        return int(self._slots.available_size())

    @property
    def free_rows(self) -> int:
        """Requests that may come to hold something, besides those that do."""
        return int(self._pool.available_size())

    @property
    def vocabulary(self) -> int:
        """Width of the logits."""
        return int(self._model.model_config.vocab_size)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of the pool for one token."""
        slots = self.capacity + 1  # one is for what padding writes
        return float(self._model.token_to_kv_pool.mem_usage * 2**30 / slots)

    def new(self, name: str) -> Held:
        """Make a request that holds nothing yet."""
        req = self._Req(
            rid=name,
            origin_input_text="",
            origin_input_ids=array("q", [0]),
            sampling_params=self._sampling,
        )
        req.logprob_start_len = -1
        return Held(req, array("q"))

    def forward(self, helds: Sequence[Held], unseen: Sequence[Sequence[int]]) -> Pass:
        """Let each request read its unseen tokens, at least one, and give what comes next.

        One token each for requests that hold something is a decode, and so may be a few; all else
        is an extend.
        """
        with self.torch.inference_mode():
            if all(map(len, helds)) and self._few(len(helds), sum(map(len, unseen))):
                batch = self._decode(helds, unseen)
            else:
                batch = self._extend(helds, unseen)
            forward_batch = self._ForwardBatch.init_new(
                batch,
                self._model,
                capture_hidden_mode=self._capture,
                return_hidden_states_before_norm=False,
            )
            output = self._model.forward(forward_batch).logits_output
            logits, states = output.next_token_logits, output.hidden_states
            if len(logits) > len(helds):
                last = self.torch.tensor(list(map(len, unseen))).cumsum(0) - 1
                logits, states = logits[last], None if states is None else states[last]
        for held, ids in zip(helds, unseen, strict=True):
            held.token_ids.extend(ids)
        return Pass(logits, states)

    def _few(self, requests: int, new: int) -> bool:
        more = new - requests
        return not more or (new <= self._most_rows * requests and more <= self._most_spared)

    def occupy(self, helds: Sequence[Held], unseen: Sequence[Sequence[int]]) -> None:
        """Hold tokens without reading them: what their slots have is left over, or nothing.

        A pass takes as long behind them as behind tokens that were read.
        """
        with self.torch.inference_mode():
            self._extend(helds, unseen)
        for held, ids in zip(helds, unseen, strict=True):
            held.token_ids.extend(ids)

    def _batch(self, helds: Sequence[Held]) -> Any:
        return self._ScheduleBatch.init_new(
            reqs=[held.req for held in helds],
            req_to_token_pool=self._pool,
            token_to_kv_pool_allocator=self._slots,
            tree_cache=self._tree,
            model_config=self._model.model_config,
            enable_overlap=False,
            spec_algorithm=self._none,
        )

    def _extend(self, helds: Sequence[Held], unseen: Sequence[Sequence[int]]) -> Any:
        for held, ids in zip(helds, unseen, strict=True):
            held.req.prefix_len = len(held)
            held.req.full_untruncated_fill_ids = held.token_ids + array("q", ids)
            held.req.extend_end = len(held) + len(ids)
        batch = self._batch(helds)
        batch.prepare_for_extend()
        batch.input_ids = batch.prefill_input_ids_cpu.to(self.device, non_blocking=True)
        batch.prefill_input_ids_cpu = None
        return batch

    def _decode(self, helds: Sequence[Held], unseen: Sequence[Sequence[int]]) -> Any:
        """Make a batch with a place for each new token, behind those before it."""
        torch = self.torch
        places = [
            (held, len(held) + i, token)
            for held, ids in zip(helds, unseen, strict=True)
            for i, token in enumerate(ids)
        ]
        batch = self._batch([held for held, _, _ in places])
        rows = torch.tensor([held.req.kv.req_pool_idx for held, _, _ in places])
        lengths = torch.tensor([length for _, length, _ in places])
        batch.req_pool_indices_cpu, batch.seq_lens_cpu = rows, lengths
        batch.req_pool_indices = rows.to(self.device, non_blocking=True)
        batch.seq_lens = lengths.to(self.device, non_blocking=True)
        batch.orig_seq_lens = batch.seq_lens.to(torch.int32)
        ids = torch.tensor([token for _, _, token in places])
        batch.input_ids = ids.to(self.device, non_blocking=True)
        size = len(places)
        if size not in self._sampling_infos:
            self._sampling_infos[size] = self._SamplingBatchInfo.from_schedule_batch(
                batch, self.vocabulary
            )
        batch.sampling_info = self._sampling_infos[size]
        batch.prepare_for_decode()
        return batch

    def cut(self, held: Held, length: int) -> None:
        """Forget what a request holds beyond a length."""
        kv = held.req.kv
        end = kv.kv_allocated_len  # beyond what was read, after a pass that failed
        if length < end:
            row = self._pool.req_to_token[kv.req_pool_idx, length:end]
            self._slots.free(row.to(self.torch.int64))
            kv.kv_allocated_len = kv.kv_committed_len = length
            del held.token_ids[length:]
        if length == 0 and kv.holds_kv:
            self._pool.free(held.req)

    def embedding(self, token_ids: Any) -> Any:
        """Input embeddings of tokens, [tokens, width]."""
        return self._model.model.get_input_embeddings()(token_ids)


def _load(options: EngineOptions, rows: int, hidden: bool, rank: int, port: int) -> Any:
    from sglang.benchmark.one_batch import _init_process_global_configs
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed import bootstrap
    from sglang.srt.entrypoints.engine import _set_envs_and_config
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.runtime_context import SpawnRanks, get_device, publish, spawn_world_rank
    from sglang.srt.server_args import PortArgs, ServerArgs

    if options.device == "cpu":
        attention.register()
        os.environ["SGLANG_EAGER_INPUT_NO_COPY"] = "1"  # copies into fixed places are for graphs
    arguments = ServerArgs(**options.server_arguments(rows, hidden=hidden))
    arguments.resolve_once()
    _set_envs_and_config(arguments)
    ports = PortArgs.init_new(arguments)
    port = port or ports.nccl_port
    gpu = options.gpu + rank
    ranks = SpawnRanks(world_rank=spawn_world_rank(arguments, tp_rank=rank, pp_rank=0), gpu_id=gpu)
    publish(arguments, role="scheduler", ranks=ranks)
    _init_process_global_configs()
    config = ModelConfig.from_server_args(arguments)
    bootstrap.init_parallel_runtime(
        server_args=arguments, device=get_device().device, dist_port=port
    )
    bootstrap.init_layer_runtime(model_config=config)
    runner = ModelRunner(
        model_config=config,
        mem_fraction_static=arguments.mem_fraction_static,
        gpu_id=gpu,
        nccl_port=port,
        server_args=arguments,
    )
    runner.alloc_memory_pool()
    if options.device == "cuda" and runner.max_total_num_tokens < (options.kv_tokens or 0):
        # Nothing would be left for graphs and activations.
        raise InputError(
            f"{options.path}: GPU {gpu} has room for {runner.max_total_num_tokens} tokens, not the "
            f"{options.kv_tokens} planned: something else has its memory; or give fewer kv_tokens"
        )
    runner.init_attention_backends()
    runner.init_cuda_graphs()  # without graphs this still makes the eager runner
    return runner
