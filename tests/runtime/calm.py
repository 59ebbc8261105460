"""Measuring on a machine that others use too."""

from trmodel.runtime.bench.point import measure_point

CALM = 0.02
"""Part of a window that may go to others."""


def measure_calmly(target, N, B, *, tries=3, **options):
    """Return the first point with little else on the machine, or the calmest of some."""
    points = []
    for seed in range(tries):
        points.append(measure_point(target, N, B, seed=seed, **options))
        if held_up(points[-1]) < CALM:
            break
    return min(points, key=held_up)


def held_up(point):
    """The part of a window that something else on the machine took, which is no step's doing."""
    return sum(model["held_up_percent"] for model in point["per_model"]) / 100.0


def as_predicted(point, found, within=0.03):
    """Whether the throughput is what the model makes of the run's own steps and handoffs.

    Steps that were held up are not in those: by so much it may be lower.
    """
    ratio = found.measured_tok_s / found.own_tok_s
    return 1.0 - within - held_up(point) < ratio < 1.0 + within
