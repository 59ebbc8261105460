"""Which GPUs this process has, by nvidia-smi and by what CUDA may show of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from trmodel.documents import shown
from trmodel.errors import InputError

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Gpu:
    """One GPU of the machine."""

    index: str
    uuid: str
    name: str
    memory_bytes: int


def visible_gpus() -> list[Gpu]:
    """Return the GPUs that CUDA shows to this process, in the order of its numbers.

    Raises
    ------
    InputError
        If nvidia-smi does not list them, or ``CUDA_VISIBLE_DEVICES`` names one that is not there.
    """
    gpus = _all_gpus()
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return gpus
    names = [name.strip() for name in visible.split(",")]
    # By CUDA's rules nothing, or a negative number, hides all that come after it.
    chosen = [_named(name, gpus) for name in takewhile(_shows, names)]
    if len(set(chosen)) < len(chosen):
        raise InputError(f"{VISIBLE}: {shown(visible)}: names a GPU twice")
    return chosen


def _shows(name: str) -> bool:
    return name != "" and not name.startswith("-")


def _named(name: str, gpus: Sequence[Gpu]) -> Gpu:
    """Find a GPU by its index, or by as much of its UUID as tells it from others."""
    found = [
        gpu
        for gpu in gpus
        if gpu.index == name or (name.startswith("GPU-") and gpu.uuid.startswith(name))
    ]
    if len(found) != 1:
        why = "fits several GPUs" if found else "is no GPU that nvidia-smi lists"
        raise InputError(f"{VISIBLE}: {shown(name)} {why}")
    return found[0]


def _all_gpus() -> list[Gpu]:
    fields = "index,uuid,name,memory.total"
    try:
        listed = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60.0,
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(
            f"sglang: device cuda: nvidia-smi finds no GPU ({error}); without one, device: cpu"
        ) from None
    try:
        return [_gpu(*map(str.strip, line.split(","))) for line in listed]
    except (TypeError, ValueError):
        raise InputError("sglang: nvidia-smi does not tell the memory of the GPUs") from None


def _gpu(index: str, uuid: str, name: str, mib: str) -> Gpu:
    return Gpu(index, uuid, name, int(mib) * 2**20)
