"""Wall time and peak memory of whole commands, second run on: `python benchmarks/commands.py`.

The first run of each compiles or loads the numerical kernels and is reported apart. Run it on an
otherwise idle machine.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, Popen

COMMANDS = [
    "tune --profile a100-paper --N 4..16",
    "tune --profile a100 --N 4..16",
    "tune --profile a100-paper --N 32 --B0 1",
    "tune --profile a100 --N 32 --B0 1",
    "tune --profile a100-ensemble --N 4",
    "predict --profile a100 --N 16 --B 1,1",
    "profile list",
    "--help",
]


def measure(command: str) -> tuple[float, float]:
    """Return seconds of wall time and peak resident megabytes of one command."""
    program = Path(sys.executable).with_name("trmodel")
    started = time.perf_counter()
    child = Popen([program, *command.split()], stdout=DEVNULL, stderr=DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - started
    if status:
        sys.exit(f"trmodel {command} failed")
    return wall, usage.ru_maxrss / 1024  # kilobytes on Linux


def main() -> None:
    """Print a line for every command."""
    print(f"{'first s':>8} {'best of 3 s':>12} {'peak MB':>8}  command")
    for command in COMMANDS:
        first, _ = measure(command)
        runs = [measure(command) for _ in range(3)]
        best = min(wall for wall, _ in runs)
        print(f"{first:8.2f} {best:12.2f} {max(mb for _, mb in runs):8.0f}  trmodel {command}")


if __name__ == "__main__":
    main()
