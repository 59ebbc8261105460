"""Start an SGLang engine in this process: cores, threads and stand-ins first, then the model."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING

from trmodel.errors import InputError
from trmodel.runtime.engines.sglang.gpus import VISIBLE, visible_gpus
from trmodel.runtime.engines.sglang.options import EngineOptions

if TYPE_CHECKING:
    from trmodel.runtime.engines.sglang.engine import SglangEngine

log = logging.getLogger(__name__)

SPARE_ROWS = 2
"""Places for requests that are over but not yet freed."""


def start_engine(
    model: int, options: EngineOptions, requests: int, needs: Collection[str] = ()
) -> SglangEngine:
    """Load a model and return its `SglangEngine`.

    Parameters
    ----------
    model
        Its place.
    options
        What to load and where.
    requests
        The most that are live at a time.
    needs
        What the policy wants of each step.

    Raises
    ------
    InputError
        If SGLang or the model cannot be loaded.
    """
    prepare(options)
    from trmodel.runtime.engines.sglang.adapter import Runner
    from trmodel.runtime.engines.sglang.engine import SglangEngine
    from trmodel.runtime.engines.sglang.ranks import SplitRunner

    kind = SplitRunner if options.tp > 1 else Runner
    try:
        runner = kind(options, requests + SPARE_ROWS, hidden="hidden" in needs)
    except InputError:
        raise
    except Exception as error:
        log.debug("%s cannot be loaded", options.path, exc_info=error)
        raise InputError(
            f"{options.path}: cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if runner.capacity < (options.kv_tokens or 0):
        log.warning(
            "%s: the cache has room for %d tokens, not %d: caches of requests that wait may be "
            "dropped and read again",
            options.path,
            runner.capacity,
            options.kv_tokens,
        )
    return SglangEngine(model, runner, needs, options.vocabulary)


def prepare(options: EngineOptions) -> None:
    """Set cores, threads and environment, before anything of SGLang is imported.

    Raises
    ------
    InputError
        If torch is not installed.
    """
    if options.cores:
        os.sched_setaffinity(0, options.cores)  # they are there: the plan says
    if options.device == "cuda":
        # Numbers of GPUs are those of nvidia-smi, by which the memory was planned; SGLang takes
        # them for numbers where it looks whether GPUs reach each other.
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        if VISIBLE in os.environ:
            os.environ[VISIBLE] = ",".join(gpu.index for gpu in visible_gpus())
    else:
        from trmodel.runtime.engines.sglang.environment import prepare_cpu

        prepare_cpu()
        if options.tp > 1:
            cores = sorted(os.sched_getaffinity(0))
            each = [str(cores[rank % len(cores)]) for rank in range(options.tp)]
            os.environ["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(each)
    # Models that share GPUs fill them unevenly, which the plan has taken into account.
    os.environ.setdefault("SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", "0")
    # What SGLang cannot import it tells of, model family by family; what is needed raises.
    warnings.filterwarnings("ignore", module="sglang")
    logging.getLogger("sglang").setLevel(logging.ERROR)
    logging.getLogger("sglang.srt.models.registry").setLevel(logging.CRITICAL)
    try:
        import torch
    except ImportError as error:
        raise InputError(
            f"engine: sglang needs torch and sglang ({error}); install trmodel[sglang], or "
            "'make sglang-cpu' without a GPU"
        ) from None
    if options.device == "cpu":
        torch.set_num_threads(max(len(options.cores), 1))
