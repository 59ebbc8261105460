"""Runs: how many steps in a row a model makes, and whether that is geometric.

The *age* of a step is its place in its run, from 1. Of n_d steps of age d after which the request
was seen again, l_d left the model. A run is geometric exactly if the probability of leaving does
not depend on age. So the test compares l_d with n_d h, h being the overall rate, in bins of ages
with at least five expected to leave and five to stay:

    X^2 = sum over bins of (l - n h)^2 / (n h (1 - h)),

which is chi-square with one degree of freedom less than there are bins if runs are geometric. This
is the usual test of fit of run lengths, written so that runs which the end of the trace cuts short
count as far as they were seen.

Where it fails, the steps of age 1, 2, ..., D - 1 become phases of their own and those of age D and
more one last phase; D is the least for which the rest passes. Runs that all have K steps give K
phases, each left for the next with certainty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from trmodel.arrays import IntArray
from trmodel.routing.trace import Trace

EXPECTED = 5.0
"""Fewest expected in each cell of a chi-square test."""


@dataclass(frozen=True)
class Runs:
    """The runs of one model.

    Attributes
    ----------
    model
        Index of the model.
    complete
        Runs that ended by leaving the model.
    mean_steps
        Mean length, cut runs counted as far as seen: steps per leaving; None if none left.
    fixed
        Length of every complete run, if all are of one length above 1 that no other run exceeds.
    p_value
        Of the test that runs are geometric; None if there is nothing to test.
    phases
        How many phases the model gets, D.
    rest_p_value
        Of the same test for ages of D and more.
    """

    model: int
    complete: int
    mean_steps: float | None
    fixed: int | None
    p_value: float | None
    phases: int
    rest_p_value: float | None


def ages(trace: Trace) -> IntArray:
    """Place of every step in its run, from 1; (R,)."""
    steps = np.arange(len(trace.model))
    new = np.ones(len(steps), dtype=bool)
    new[1:] = (trace.request[1:] != trace.request[:-1]) | (trace.model[1:] != trace.model[:-1])
    return steps - np.maximum.accumulate(np.where(new, steps, 0)) + 1


def runs_of(trace: Trace, model: int, level: float, max_phases: int) -> Runs:
    """Describe the runs of a model and choose its number of phases.

    Parameters
    ----------
    trace
        In which the model makes at least one step that is followed by another.
    model
        Its index.
    level
        A p-value below this rejects geometric runs.
    max_phases
        Most phases.
    """
    age = ages(trace)
    at = trace.followed
    at = at[trace.model[at] == model]
    left = trace.model[at + 1] != model
    seen = np.bincount(age[at])[1:]
    leaving = np.bincount(age[at], left)[1:].astype(np.int64)
    complete = int(leaving.sum())
    lengths = np.flatnonzero(leaving) + 1
    longest = int(age[trace.model == model].max())
    fixed = len(lengths) == 1 and lengths[0] > 1 and longest <= lengths[0]
    tests = [constant_hazard(seen, leaving)]
    while len(tests) < max_phases and tests[-1] is not None and tests[-1] < level:
        tests.append(constant_hazard(seen[len(tests) :], leaving[len(tests) :]))
    return Runs(
        model=model,
        complete=complete,
        mean_steps=len(at) / complete if complete else None,
        fixed=int(lengths[0]) if fixed else None,
        p_value=tests[0],
        phases=len(tests),
        rest_p_value=tests[-1],
    )


def constant_hazard(seen: IntArray, leaving: IntArray) -> float | None:
    """p-value of the chi-square test that the probability of leaving is the same at every age.

    Parameters
    ----------
    seen, leaving
        Steps of each age, and those of them that left the model.

    Returns
    -------
    float or None
        None if all or none leave, or the data suffice for fewer than two bins.
    """
    total, left = int(seen.sum()), int(leaving.sum())
    if left in (0, total):
        return None
    h = left / total
    needed = EXPECTED / min(h, 1.0 - h)
    bins: list[list[int]] = []
    room = total
    for n, found in zip(seen.tolist(), leaving.tolist(), strict=True):
        # What is left over at the end joins the last bin.
        if not bins or (bins[-1][0] >= needed and room >= needed):
            bins.append([0, 0])
        bins[-1][0] += n
        bins[-1][1] += found
        room -= n
    if len(bins) < 2:
        return None
    n, found = np.array(bins, dtype=np.float64).T
    statistic = float((((found - n * h) ** 2) / (n * h * (1.0 - h))).sum())
    return float(chdtrc(len(bins) - 1, statistic))
