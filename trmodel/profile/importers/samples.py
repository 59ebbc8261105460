"""Many timings of steps of several sizes to one latency for each size.

The median stands for a size: a few slow iterations (a pause, another process) do not move it. The
spread is the interquartile range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trmodel.arrays import FloatArray

Size = tuple[int, int]
"""Requests in the step, and new tokens of each."""


@dataclass
class Samples:
    """Timings by the size of the step, in milliseconds, and cached tokens per request.

    Parameters
    ----------
    sizes
        The timings of each size.
    cached
        Cached tokens per request of each timing, all sizes together.
    few
        Sizes that were left out for having too few timings, with how many they have.
    """

    sizes: dict[Size, list[float]] = field(default_factory=dict)
    cached: dict[Size, list[float]] = field(default_factory=dict)
    few: Mapping[Size, int] = field(default_factory=dict)

    def add(self, batch: int, new_tokens: int, latency_ms: float, cached_tokens: float) -> None:
        """Add one timing."""
        self.sizes.setdefault((batch, new_tokens), []).append(latency_ms)
        self.cached.setdefault((batch, new_tokens), []).append(cached_tokens)

    def enough(self, min_samples: int) -> Samples:
        """Return the sizes with at least ``min_samples`` timings, the others named as few."""
        kept = sorted(size for size, timings in self.sizes.items() if len(timings) >= min_samples)
        return Samples(
            {size: self.sizes[size] for size in kept},
            {size: self.cached[size] for size in kept},
            {size: len(self.sizes[size]) for size in sorted(self.sizes) if size not in kept},
        )

    @property
    def context(self) -> int | None:
        """Median cached tokens per request; None without timings."""
        if not self.cached:
            return None
        return round(float(np.median(np.concatenate(list(self.cached.values())))))

    def latency_ms(self, size: Size) -> float:
        """Return the median latency of a size, to a microsecond."""
        return round(float(np.median(self.sizes[size])), 3)


def decode_table(samples: Samples) -> dict[str, Any]:
    """Return the fields of a decode table; sizes (batch, 1), of which (1, 1) is there."""
    return {
        "batch": [batch for batch, _ in samples.sizes],
        "context_tokens": samples.context,
        "latency_ms": [samples.latency_ms(size) for size in samples.sizes],
    }


def extend_table(samples: Samples) -> dict[str, Any]:
    """Return the fields of an extend table: every batch seen by every number of new tokens seen.

    A size that was not seen is interpolated between the new tokens that its batch was seen with.
    Beyond those it gets a bound from above, marked extrapolated: as long as with the fewest tokens
    seen, or as much longer than with the most tokens seen as it has tokens more.
    """
    batches = sorted({batch for batch, _ in samples.sizes})
    new_tokens = sorted({new for _, new in samples.sizes})
    columns, statuses = [], []
    for batch in batches:
        seen = [new for new in new_tokens if (batch, new) in samples.sizes]
        latencies = [samples.latency_ms((batch, new)) for new in seen]
        scale = np.maximum(1.0, np.array(new_tokens) / seen[-1])
        columns.append(np.interp(new_tokens, seen, latencies) * scale)
        statuses.append([_status(new, seen) for new in new_tokens])
    rows: FloatArray = np.round(np.array(columns).T, 3)
    return {
        "batch": batches,
        "new_tokens": new_tokens,
        "latency_ms": rows.tolist(),
        "context_tokens": samples.context,
        "status": [list(row) for row in zip(*statuses, strict=True)],
    }


def _status(new: int, seen: list[int]) -> str:
    if new in seen:
        return "measured"
    return "interpolated" if seen[0] < new < seen[-1] else "extrapolated"


def spread_note(samples: Samples) -> str:
    """Say how many timings there are, how much they and their contexts spread, and what is few."""
    counts = [len(timings) for timings in samples.sizes.values()]
    spreads = {size: _relative_iqr(timings) for size, timings in samples.sizes.items()}
    widest = max(spreads, key=lambda size: spreads[size])
    cached = np.concatenate(list(samples.cached.values()))
    low, high = np.percentile(cached, [10, 90])
    extend = any(new != 1 for _, new in [*samples.sizes, *samples.few])
    note = (
        f"Medians of {sum(counts)} samples, at least {min(counts)} for each size; interquartile "
        f"range at most {spreads[widest]:.1%} of the median ({_label(widest, extend)}); "
        f"{low:.0f} to {high:.0f} cached tokens per request (10th to 90th percentile)."
    )
    if samples.few:
        named = [f"{_label(size, extend)} ({count})" for size, count in samples.few.items()]
        more = f" and {len(named) - 20} more" if len(named) > 20 else ""
        note += f" Too few samples, left out: {', '.join(named[:20])}{more}."
    return note


def _relative_iqr(timings: list[float]) -> float:
    low, middle, high = np.percentile(timings, [25, 50, 75])
    return float((high - low) / middle)


def _label(size: Size, extend: bool) -> str:
    batch, new = size
    return f"batch {batch} with {new} new tokens" if extend else f"batch {batch}"
