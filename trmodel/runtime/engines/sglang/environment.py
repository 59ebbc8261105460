"""What SGLang needs around it to run on the CPU, before anything of it is imported."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from trmodel.errors import InputError

STAND_INS = ("sgl_kernel", "torchvision", "triton")
"""Packages that SGLang imports everywhere and calls on GPUs only."""
_FOLDER = Path(__file__).parent / "stubs"


def prepare_cpu() -> None:
    """Get this process and those that it starts ready for SGLang on the CPU.

    Of the packages that SGLang imports and does not use there, those that are not installed get
    stand-ins, at the end of the path, so that real ones win. SGLang is told to use the CPU, the hub
    is left alone and there is one thread for each process, unless the environment says otherwise:
    with as many threads as cores, two models wait for each other at every operation.

    Raises
    ------
    InputError
        If SGLang is not installed, or such a package is missing on a machine with a GPU, where
        stand-ins have no place.
    RuntimeError
        If SGLang was imported before, without all this.
    """
    if not _installed("sglang"):
        raise InputError(
            "engine: SGLang is not installed; for a GPU: pip install 'trmodel[sglang]'; for the "
            "CPU, in a checkout of trmodel: make sglang-cpu"
        )
    if "sglang" in sys.modules and os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        raise RuntimeError("prepare_cpu: to be called before SGLang is imported")
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # What SGLang has compiled by torch is small, and would want a compiler or triton.
    os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
    absent = [name for name in STAND_INS if not _installed(name)]
    if absent and _has_gpu():
        raise InputError(
            f"engine: {', '.join(absent)} is not installed, and stand-ins are for machines "
            "without a GPU; install SGLang as a whole: pip install 'trmodel[sglang]'"
        )
    for name in absent:
        folder = str(_FOLDER / name)
        if folder not in sys.path:
            sys.path.append(folder)
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        if folder not in paths:
            os.environ["PYTHONPATH"] = os.pathsep.join([*paths, folder])


def _installed(name: str) -> bool:
    """Whether there is a real package; a folder that happens to have its name is none."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None and _FOLDER not in Path(spec.origin).parents


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())
