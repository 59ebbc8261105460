"""Stands in for SGLang's compiled kernels: of those for the CPU there are names, no others."""

from trmodel.runtime.engines.sglang.stand_in import Absent, absent


def __getattr__(name: str) -> Absent:
    if not name.endswith("_cpu"):
        raise AttributeError(name)
    return absent(name, __name__)
