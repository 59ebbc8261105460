"""How often the intervals of a fit hold the truth, on simulated measurements.

    python benchmarks/interval_coverage.py [DATA_SETS]

Each data set has the throughputs that the model itself gives with known overheads and slow-downs,
times log-normal noise of 2 %; it is fitted as measurements are.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from trmodel.calibrate import Measurements
from trmodel.calibrate.intervals import spread_and_estimates
from trmodel.calibrate.problem import Problem
from trmodel.calibrate.solve import best_of_starts, free_parameters
from trmodel.profile import load_profile

TRUTH = np.array([3.1, 1.7, 1.42, 1.19])
NOISE = 0.02
DESIGN = [
    (1, (1, 1)), (2, (1, 1)), (2, (1, 2)), (3, (1, 2)), (3, (1, 3)), (3, (2, 2)),
    (4, (1, 2)), (4, (1, 4)), (4, (2, 2)), (4, (2, 3)), (4, (3, 1)),
]  # fmt: skip


def document(throughputs: np.ndarray) -> Measurements:
    return Measurements.model_validate(
        {
            "schema": "trmodel/measurements",
            "schema_version": 1,
            "name": "simulated",
            "source": "the model itself",
            "models": ["Qwen3-0.6B", "Qwen3-32B"],
            "measurements": [
                {"N": N, "B": B, "throughput_tok_s": float(T)}
                for (N, B), T in zip(DESIGN, throughputs, strict=True)
            ],
        }
    )


def main(data_sets: int) -> None:
    loaded = load_profile("a100")
    held, widths = [], []
    with ThreadPoolExecutor() as pool:
        exact = Problem(loaded, document(np.ones(len(DESIGN))), pool).log_throughput(TRUTH)
        for seed in range(data_sets):
            noise = NOISE * np.random.default_rng(seed).standard_normal(len(DESIGN))
            problem = Problem(loaded, document(np.exp(exact + noise)), pool)
            free = free_parameters(problem)
            theta = best_of_starts(problem, free, 0, lambda: None).theta
            _, estimates = spread_and_estimates(problem, theta, free, None)
            low, high = np.array([e.interval or (np.nan, np.nan) for e in estimates]).T
            held.append((low <= TRUTH) & (high >= TRUTH))
            widths.append(high - low)
    for k, parameter in enumerate(problem.parameters):
        count, width = np.sum(held, axis=0)[k], np.nanmedian(widths, axis=0)[k]
        print(f"{parameter.name}: {count} of {data_sets}, median width {width:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
