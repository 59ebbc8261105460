"""SGLang against the model: `python benchmarks/sglang_grid.py MODELS`.

MODELS is a folder of `scripts/make_tiny_models.py`: a small and a large model, each on a core of
its own, with the routing of R2R at p = 0.35 (the policy `bernoulli`). Their engines and the
executor are measured into a profile (as by `trmodel profile measure --engine sglang`), and
throughput in closed loops at N = 1, 4, 8 under thresholds (1, 1), (1, N/2) and (1, N). Each is
compared with what the model predicts from that profile, at the routing frequencies and the context
of the run. The bar: the mean error is at most 8 %, and the advised thresholds give at most 2 % less
than the best measured.

The speed of a machine drifts within minutes. So profile and points are measured in rounds, every
second one backwards, and the settings of each in another order: what drifts does so under both.

It needs an environment of `make sglang-cpu`. Points and profile are kept with `-o` and `--profile`
and not measured again (points without their profile are refused); `--json` writes the comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from executor_grid import P, Setting, measured, report

from trmodel.profile import load_profile
from trmodel.runtime.bench.engine_profile import EngineMeasurements
from trmodel.runtime.bench.loop import PROMPT
from trmodel.runtime.bench.running import running
from trmodel.runtime.bench.validate import validate
from trmodel.runtime.config import ServerConfig

ERROR_BAR_PERCENT, REGRET_BAR_PERCENT = 8.0, 2.0
CONTEXTS = (96, 192, 480)
"""Of decode steps; runs have some hundreds of tokens, and extends are timed at the middle one."""
PROFILE_S = 2.5
"""Of every setting of the profile, in each round."""
WARM_UP_S = 1.0
LONGEST = 2048
"""Of the tiny models: replies go on through a whole window, so that prompts are read before it."""


def make_config(models: Path, largest: int) -> ServerConfig:
    """Return the server: each model on a core of its own, as far as there are some."""
    cores = sorted(os.sched_getaffinity(0))
    return ServerConfig.model_validate(
        {
            "engine": "sglang",
            "models": {
                name: {"path": str(models / name), "cores": (cores[i % len(cores)],)}
                for i, name in enumerate(("small", "large"))
            },
            "sglang": {"device": "cpu", "dtype": "float32"},
            "routing": "r2r",
            "p": P,
            "max_live": largest,
        }
    )


def main() -> None:
    """Measure, compare, and fail above a bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="folder of the models small and large")
    parser.add_argument("--N", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--seconds", type=float, default=8.0, help="of every point")
    parser.add_argument("--rounds", type=int, default=6, help="of profile and points")
    parser.add_argument("-o", type=Path, help="file of measured points")
    parser.add_argument("--profile", type=Path, help="file of the measured profile")
    parser.add_argument("--json", type=Path, help="file of the comparison")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds: must be at least 1")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    config = make_config(given.models, max(given.N))
    folder = Path(tempfile.mkdtemp())
    kept, file = given.profile or folder / "measured.json", given.o or folder / "points.jsonl"
    if file.exists() and not kept.exists():
        parser.error(f"{file}: the profile measured with its points is not there; remove it")
    own = None if kept.exists() else EngineMeasurements(config, max(given.N), CONTEXTS)
    settings: list[Setting] = [(N, (1, b)) for N in given.N for b in sorted({1, max(N // 2, 1), N})]
    points: list[dict[str, Any]] = []
    for number in range(1, given.rounds + 1):
        random.Random(number).shuffle(settings)
        forwards = number % 2 == 1
        if own is not None and forwards:
            own.time_engines(PROFILE_S)
        with running(config if own is None else own.config) as target:
            if own is not None and forwards:
                own.time_executor(target, PROFILE_S, WARM_UP_S)
            points = measured(target, settings, given.seconds, file, number, LONGEST - len(PROMPT))
            if own is not None and not forwards:
                own.time_executor(target, PROFILE_S, WARM_UP_S)
        if own is not None and not forwards:
            own.time_engines(PROFILE_S)
    if own is not None:
        made = own.profile("sglang-tiny")
        kept.write_text(made.model_dump_json(by_alias=True, indent=2) + "\n", encoding="utf-8")
    found = validate(points, load_profile(kept), context="run")
    report(found)
    if given.json is not None:
        given.json.write_text(json.dumps(found.to_dict(), indent=1) + "\n", encoding="utf-8")
    met = (
        found.mean_error_percent <= ERROR_BAR_PERCENT
        and (found.max_regret_percent or 0.0) <= REGRET_BAR_PERCENT
    )
    print("reached" if met else "missed")
    sys.exit(not met)


if __name__ == "__main__":
    main()
