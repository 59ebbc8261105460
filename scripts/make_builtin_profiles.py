#!/usr/bin/env python3
"""Make the built-in profiles that are derived with aiconfigurator-core.

    pip install '.[aiconfigurator]'
    python scripts/make_builtin_profiles.py

It writes a100-imported, h100 and h200 to the package's built-in profiles. Nothing is downloaded
and no GPU is needed; it takes a few seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trmodel.documents import write_text_atomically
from trmodel.profile.importers import import_aiconfigurator, profile_text
from trmodel.profile.load import BUILTIN

MODELS = (
    "Qwen/Qwen3-0.6B:tp1",
    "Qwen/Qwen3-1.7B:tp1",
    "Qwen/Qwen3-4B:tp1",
    "Qwen/Qwen3-8B:tp1",
    "Qwen/Qwen3-32B:tp2",
)
SYSTEMS = {"a100-imported": "a100_sxm", "h100": "h100_sxm", "h200": "h200_sxm"}


def make(name: str) -> str:
    """Return the text of one built-in profile."""
    gpu = SYSTEMS[name].partition("_")[0].upper()
    profile = import_aiconfigurator(
        SYSTEMS[name],
        MODELS,
        name=name,
        description=f"Qwen3 0.6B to 32B on {gpu} SXM: the forward pass only, derived from NVIDIA's "
        "measurements of SGLang's operators. Overhead per step and contention of co-located "
        "models are unknown and must be measured or fitted.",
        routing="r2r",
    )
    return profile_text(profile)


def main() -> None:
    """Write the profiles, or those named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SYSTEMS))
    parser.add_argument("--folder", type=Path, default=BUILTIN, help="where to write them")
    options = parser.parse_args()
    for name in options.names or SYSTEMS:
        if name not in SYSTEMS:
            parser.error(f"unknown profile {name}; there are {', '.join(SYSTEMS)}")
        path = options.folder / f"{name}.json"
        write_text_atomically(path, make(name))
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
