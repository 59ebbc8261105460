"""How far chosen thresholds are from the best possible launch rule."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from trmodel.errors import LimitError, NotConvergedError
from trmodel.markov import best_launch_rule
from trmodel.system import RoutedSystem


@dataclass(frozen=True)
class Bound:
    """The throughput that no launch rule exceeds, or why there is none.

    Attributes
    ----------
    bound_tok_s
        None if it is out of reach; see `trmodel.markov.best_launch_rule`.
    gap_percent
        What the best rule would gain over the thresholds.
    missing
        Why there is no bound; None if there is one.
    """

    bound_tok_s: float | None
    gap_percent: float | None
    missing: str | None = None

    def to_dict(self) -> dict[str, float | None]:
        """Return the two figures as plain values."""
        return {"bound_tok_s": self.bound_tok_s, "gap_percent": self.gap_percent}


def bounds(
    chosen: Iterable[tuple[RoutedSystem, tuple[int, ...], float]], deadline: float | None = None
) -> list[Bound]:
    """Bound the throughput of systems of growing concurrency.

    Parameters
    ----------
    chosen
        Systems, their thresholds and the throughput under these.
    deadline
        When to stop, as `time.monotonic` tells it.

    Raises
    ------
    UsageError, InputError
        If a system is one for which no single best rule is computed.
    """
    found: list[Bound] = []
    missing = None
    for system, B, throughput in chosen:
        if missing is None and deadline is not None and time.monotonic() > deadline:
            missing = "no bound: the time limit was reached"
        if missing is not None:  # a larger N would outgrow the limits as well
            found.append(Bound(None, None, missing))
            continue
        try:
            rule = best_launch_rule(system, B)
        except LimitError as error:
            missing = f"no bound: {error}"
            found.append(Bound(None, None, missing))
        except NotConvergedError as error:
            found.append(Bound(None, None, f"no bound: {error}"))
        else:
            found.append(Bound(rule.bound_tok_s, rule.gap_percent(throughput)))
    return found
