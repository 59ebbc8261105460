"""Let the routing of a server change and see how soon its thresholds follow, and to what.

    python benchmarks/retuning.py

The replay engine with the profile `a100-paper` serves N = 8 requests in a closed loop; p goes from
0.1 to 0.5. Prints when thresholds came into force whose predicted throughput at p = 0.5 is within
1 % of the optimum (bar: 60 s), and the throughput measured under them beside what the server itself
predicts from its measured step times and routing (bar: 3 %).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from trmodel.markov import predict_chain
from trmodel.profile import build_system, load_profile
from trmodel.runtime.bench.loop import ClosedLoop
from trmodel.runtime.bench.target import InProcess
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.controller import Controller
from trmodel.runtime.front import Front
from trmodel.runtime.plan import make_plan
from trmodel.runtime.policies import Policy
from trmodel.runtime.policies.bernoulli import uniform
from trmodel.runtime.request import Batch, Request, StepResult
from trmodel.search import tune_system

N, BEFORE, AFTER = 8, 0.1, 0.5


class Shifting(Policy):
    """R2R at random, more often to the large model once a file is there."""

    def __init__(self, signal: str) -> None:
        self.signal = Path(signal)

    def route(self, batch: Batch, result: StepResult) -> Sequence[int]:
        if batch.model == 1:
            return [0] * len(batch)
        p = AFTER if self.signal.exists() else BEFORE
        return [int(uniform(r.sampling.seed, r.steps) < p) for r in batch.requests]

    def commit(
        self, request: Request, token_ids: list[int], source: int, destination: int
    ) -> list[int]:
        return [] if (source, destination) == (0, 1) else token_ids


def committed(front: Front) -> tuple[float, int]:
    """Tokens that the models have counted, and when the later of them did."""
    counts = [front.counted[i] for i in range(2)]
    return max(c["now_s"] for c in counts), sum(sum(c["committed"]) for c in counts)


def main() -> int:
    signal = Path(tempfile.mkdtemp()) / "signal"
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    sys.path.insert(0, here)
    settings = {
        "profile": "a100-paper",
        "p": BEFORE,
        "max_live": N,
        "policy": "retuning:Shifting",
        "policy_options": {"signal": str(signal)},
        "retune": {"mode": "on", "every_s": 15.0},
    }
    front = Front(make_plan(ServerConfig.model_validate(settings)))
    controller = Controller(front)
    front.start()
    front.wait_until_ready()
    controller.start()
    system = build_system(load_profile("a100-paper"), N, p=AFTER)
    best = tune_system(system, [N]).row(N)
    with ClosedLoop(InProcess(front), N) as loop:
        time.sleep(20.0)
        print(f"p = {BEFORE}: B = {front.desk.vectors[N - 1]}")
        signal.touch()
        changed = time.monotonic()
        while True:
            used = predict_chain(system, front.desk.vectors[N - 1]).throughput_tok_s
            if used > 0.99 * best.throughput_tok_s and front.desk.table_in_use:
                break
            time.sleep(0.1)
        took = time.monotonic() - changed
        print(
            f"p = {AFTER}: B = {front.desk.vectors[N - 1]} after {took:.1f} s; the offline tuner "
            f"has {best.B}, {100 * (best.throughput_tok_s / used - 1):.2f} % above it"
        )
        time.sleep(3.0)
        start, first = committed(front)
        time.sleep(45.0)
        loop.check()
        end, last = committed(front)
        predicted = [d.predicted_tok_s for d in controller.decisions if d.predicted_tok_s][-1]
    controller.stop()
    front.stop()
    measured = (last - first) / (end - start)
    error = 100.0 * (predicted / measured - 1.0)
    print(f"measured {measured:.1f} tok/s, predicted {predicted:.1f}: {error:+.2f} %")
    print(f"load average {os.getloadavg()[0]:.1f}")
    return 0 if took < 60.0 and abs(error) < 3.0 else 1


if __name__ == "__main__":
    sys.exit(main())
