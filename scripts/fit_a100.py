#!/usr/bin/env python3
"""Make the built-in profile a100: imported tables, fitted to the ten published measurements.

    python scripts/fit_a100.py

The tables are those of the built-in profile a100-imported (scripts/make_builtin_profiles.py). Its
two models that were measured are kept, without their extend tables: what a suffix of some three
tokens costs beyond a decode step is within the noise of the measurements, and the extend rows
after cached tokens are a formula, not measurements. Takes half a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trmodel.calibrate import fit_profile
from trmodel.documents import write_text_atomically
from trmodel.profile import Profile, load_profile
from trmodel.profile.importers import profile_text
from trmodel.profile.load import BUILTIN

MODELS = ("Qwen3-0.6B", "Qwen3-32B")


def make() -> str:
    """Return the text of the profile."""
    imported = load_profile("a100-imported").profile
    pair = imported.model_copy(
        update={
            "description": "Qwen3-0.6B and Qwen3-32B sharing two A100s: decode steps derived from "
            "NVIDIA's measurements of SGLang's operators.",
            "models": tuple(
                model.model_copy(update={"extend": None})
                for model in imported.models
                if model.name in MODELS
            ),
        }
    )
    fit = fit_profile(Profile.model_validate(pair.model_dump(by_alias=True)), "paper-figure10")
    print(fit.summary())
    return profile_text(fit.to_profile("a100"))


def main() -> None:
    """Write the profile."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=BUILTIN, help="where to write it")
    path = parser.parse_args().folder / "a100.json"
    write_text_atomically(path, make())
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
