"""How far chosen thresholds are from the best possible launch rule."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from trmodel.errors import LimitError, NotConvergedError
from trmodel.markov import Limits, best_launch_rule
from trmodel.markov.best_rule import BEST_RULE_LIMITS
from trmodel.system import RoutedSystem

CHEAP = Limits(states=50_000, transitions=1_000_000)
"""Decision processes up to this size take about half a second."""


@dataclass(frozen=True)
class Bound:
    """The throughput that no launch rule exceeds, or why there is none.

    Attributes
    ----------
    bound_tok_s
        None if it is out of reach; see `trmodel.markov.best_launch_rule`.
    missing
        Why there is no bound; None if there is one.
    """

    bound_tok_s: float | None
    missing: str | None = None

    def to_dict(self, throughput_tok_s: float) -> dict[str, float | None]:
        """Return the bound, and what the best rule would gain over a throughput, in percent."""
        bound = self.bound_tok_s
        gap = None if bound is None else 100.0 * (bound / throughput_tok_s - 1.0)
        return {"bound_tok_s": bound, "gap_percent": gap}


def bounds(
    chosen: Iterable[tuple[RoutedSystem, tuple[int, ...]]],
    deadline: float | None = None,
    *,
    cheap: bool = False,
) -> list[Bound]:
    """Bound the throughput of systems of growing concurrency.

    Parameters
    ----------
    chosen
        Systems and their thresholds.
    deadline
        When to stop, as `time.monotonic` tells it.
    cheap
        Leave out what takes longer than a second or so.

    Raises
    ------
    UsageError, InputError
        If a system is one for which no single best rule is computed.
    """
    found: list[Bound] = []
    missing = None
    for system, B in chosen:
        if missing is None and deadline is not None and time.monotonic() > deadline:
            missing = "no bound: the time limit was reached"
        if missing is not None:  # a larger N would outgrow the limits as well
            found.append(Bound(None, missing))
            continue
        try:
            rule = best_launch_rule(system, B, limits=CHEAP if cheap else BEST_RULE_LIMITS)
        except LimitError as error:
            missing = "no bound: it would take a while (--bound)" if cheap else f"no bound: {error}"
            found.append(Bound(None, missing))
        except NotConvergedError as error:
            found.append(Bound(None, f"no bound: {error}"))
        else:
            found.append(Bound(rule.bound_tok_s))
    return found
