"""A simulation that can be run on and on, in sections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trmodel.errors import InfeasibleError, InputError
from trmodel.launch import shown_vector
from trmodel.launch_table import LaunchTable
from trmodel.simulate.engine import DEADLOCK, UNKNOWN_STATE, advance
from trmodel.simulate.rules import Options, make_rules
from trmodel.simulate.state import Counts, initial_state, no_counts
from trmodel.system import RoutedSystem

_ENDLESS = np.iinfo(np.int64).max


class Simulator:
    """One system under one rule, and where its simulation stands.

    Two simulators with the same seed make the same routing decisions for each request, whatever
    their rules: what differs between them is the rule's doing. The same seed gives the same bytes.

    Parameters
    ----------
    system
        Any routed system.
    B
        One threshold vector, or B(1), B(2), ... for each number of live requests.
    options
        See `Options`.
    seed
        At least 0.
    table
        A launch rule by state, in place of thresholds; only on the grid.

    Raises
    ------
    UsageError, InfeasibleError
        If an argument makes no sense or the thresholds can deadlock.
    """

    def __init__(
        self,
        system: RoutedSystem,
        B: Sequence[int] | Sequence[Sequence[int]],
        options: Options = Options(),
        seed: int = 0,
        table: LaunchTable | None = None,
    ) -> None:
        self.system = system
        self.rules, self.unit_ms = make_rules(system, B, options, seed, table)
        self.state = initial_state(self.rules)

    @property
    def now_ms(self) -> float:
        """How much time has been simulated."""
        return float(self.state.now[0]) * self.unit_ms

    @property
    def lag_ms(self) -> float:
        """How long the next request to be admitted has been waiting outside."""
        return max(float(self.state.now[0] - self.state.next_arrival[0]), 0.0) * self.unit_ms

    def run_batches(self, batches: int, timeline: int = 0) -> Counts:
        """Run until so many batches have completed and return what was counted."""
        return self._run(batches, np.inf, timeline)

    def run_until(self, ms: float, timeline: int = 0) -> Counts:
        """Run up to the last event at or before a time and return what was counted."""
        return self._run(_ENDLESS, ms / self.unit_ms, timeline)

    def _run(self, batches: int, until: float, timeline: int) -> Counts:
        counts = no_counts(self.system.M, self.system.N, timeline)
        self.state.row[:] = -1
        end = advance(self.rules, self.state, counts, batches, until)
        if end == DEADLOCK:
            waiting = shown_vector(self.state.k.tolist())
            raise InfeasibleError(
                f"the simulation is deadlocked after {self.now_ms:.0f} ms, with {waiting} requests "
                "waiting and no model running"
            )
        if end == UNKNOWN_STATE:
            raise InputError(
                f"launch table: it has no entry for the state after {self.now_ms:.0f} ms (waiting "
                f"{self.state.k.tolist()}, running {self.state.b.tolist()}); was it made for "
                "another system?"
            )
        return counts
