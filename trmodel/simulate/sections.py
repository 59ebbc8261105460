"""A simulation cut into sections of equal simulated time, and made longer as long as it must be."""

from __future__ import annotations

from collections.abc import Callable

from trmodel.simulate.result import merge
from trmodel.simulate.simulator import Simulator
from trmodel.simulate.state import Counts

SECTIONS = 64
WARM_UP = 0.1
"""Share of the batches that is simulated before and not counted."""

Progress = Callable[[int, int], None]
"""Called with sections done and sections in all, as far as is known."""


class Sections:
    """The counted part of a run, as `SECTIONS` sections.

    Attributes
    ----------
    counts
        What was counted in each section.
    lags_ms
        How long the next request to be admitted had been waiting outside at the end of each.
    """

    def __init__(self, run: Simulator, section_ms: float) -> None:
        self.run, self.section_ms = run, section_ms
        self.counts: list[Counts] = []
        self.lags_ms: list[float] = []
        self._start = run.now_ms

    @classmethod
    def after_warm_up(cls, run: Simulator, batches: int) -> Sections:
        """Warm up, and prepare sections in which about so many batches complete together."""
        warm_up = max(int(WARM_UP * batches), 1)
        run.run_batches(warm_up)
        return cls(run, run.now_ms / warm_up * batches / SECTIONS)

    def lengthen(self, progress: Progress | None = None) -> None:
        """Simulate the sections, or if there are some, as much again in sections twice as long."""
        done = len(self.counts)
        total = done + (done or SECTIONS)
        while done < total:
            done += 1
            self.counts.append(self.run.run_until(self._start + done * self.section_ms))
            self.lags_ms.append(self.run.lag_ms)
            if progress:
                progress(done, total)
        if total > SECTIONS:
            pairs = zip(self.counts[::2], self.counts[1::2], strict=True)
            self.counts = [merge(first, second) for first, second in pairs]
            self.lags_ms = self.lags_ms[1::2]
            self.section_ms *= 2.0

    @property
    def batches(self) -> int:
        """Batches completed in all sections."""
        return int(sum(counts.batches.sum() for counts in self.counts))
