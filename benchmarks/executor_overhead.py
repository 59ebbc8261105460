"""What the executor itself costs: `python benchmarks/executor_overhead.py`.

The replay engine takes no time (a microsecond), two subservers hand 64 requests to and fro after
every step, so that nothing but the executor's own work is left. The bar: 5,000 handoffs a second.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from trmodel.profile import load_profile
from trmodel.runtime.bench.point import measure_point
from trmodel.runtime.bench.running import running
from trmodel.runtime.config import ServerConfig

BAR = 5000.0
N = 64
STEP_MS = 0.001


def config(folder: Path, script: list[int]) -> ServerConfig:
    """Make a server whose steps take no time."""
    profile = load_profile("a100-paper").profile
    models = tuple(
        model.model_copy(
            update={
                "decode": model.decode.model_copy(
                    update={"batch": (1, 1024), "latency_ms": (STEP_MS, STEP_MS)}
                )
            }
        )
        for model in profile.models
    )
    file = folder / "instant.json"
    instant = profile.model_copy(update={"models": models, "grid_ms": STEP_MS})
    file.write_text(instant.model_dump_json(by_alias=True), encoding="utf-8")
    return ServerConfig(
        profile=str(file),
        policy="scripted",
        policy_options={"script": script},
        max_live=N,
        max_tokens=10**9,
    )


def main() -> None:
    """Measure, print, and fail below the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    ways = {"every step hands over": [1, 0], "one step in four": [0, 0, 1, 0]}
    rates = []
    for way, script in ways.items():
        with tempfile.TemporaryDirectory() as folder, running(config(Path(folder), script)) as it:
            point = measure_point(it, N, (1, 1), seconds=given.seconds, reply_tokens=4096)
        handoffs = steps = requests = 0.0
        for model in point["per_model"]:
            counted_s = model["counted_s"]
            sizes = {int(size): count for size, count in model["batches"].items()}
            steps += sum(sizes.values()) / counted_s
            requests += sum(size * count for size, count in sizes.items()) / counted_s
            handoffs += (
                sum(came["count"] + came["left_out"] for came in model["arrivals"]) / counted_s
            )
        busy_us = 1e6 * sum(model["busy_fraction"] for model in point["per_model"])
        print(
            f"{way}: {handoffs:,.0f} handoffs a second, {requests:,.0f} request-steps a second in "
            f"{steps:,.0f} batches a second; a batch takes {busy_us / steps:.0f} microseconds, "
            f"{busy_us / requests:.1f} for each request in it; "
            f"{point['throughput_tok_s']:,.0f} tokens a second come to the client"
        )
        rates.append(handoffs)
    met = rates[0] >= BAR
    print(f"{'reached' if met else 'missed'}: {BAR:,.0f} handoffs a second")
    sys.exit(not met)


if __name__ == "__main__":
    main()
