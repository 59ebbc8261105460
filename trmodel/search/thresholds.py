"""The threshold table that a server runs: one live vector for every number of live requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trmodel.errors import InputError, UsageError
from trmodel.launch import require_live


@dataclass(frozen=True)
class Thresholds:
    """Thresholds B(n) for n = 1, 2, ... requests that can run, each proved live.

    Parameters
    ----------
    models
        Names, in the order of the vectors' entries.
    vectors
        ``vectors[n - 1]`` is B(n).

    Raises
    ------
    InfeasibleError
        If some B(n) can deadlock at its n.
    InputError
        If the table is empty or a vector has the wrong length or an entry below 1.
    """

    models: tuple[str, ...]
    vectors: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.vectors:
            raise InputError("thresholds: at least one vector is needed")
        for n, B in enumerate(self.vectors, start=1):
            if len(B) != len(self.models) or min(B) < 1:
                raise InputError(
                    f"thresholds[{n - 1}]: must be {len(self.models)} whole numbers of at least "
                    f"1, got {list(B)}"
                )
            require_live(B, n)

    @property
    def max_n(self) -> int:
        """The last n that has a row of its own."""
        return len(self.vectors)

    def at(self, n: int) -> tuple[int, ...]:
        """Return B(n); above the last row that row, which stays live as n grows.

        Raises
        ------
        UsageError
            If n is below 1.
        """
        if n < 1:
            raise UsageError(f"n: must be at least 1, got {n}")
        return self.vectors[min(n, self.max_n) - 1]

    def of_model(self, i: int) -> Sequence[int]:
        """Return the thresholds of model i for n = 1, 2, ..., max_n."""
        return [B[i] for B in self.vectors]


def interpolated(
    n: int,
    below: tuple[int, Sequence[int]],
    above: tuple[int, Sequence[int]],
    fixed: Mapping[int, int],
) -> tuple[int, ...]:
    """Thresholds for n between two concurrencies with live ones: (n, B) of each.

    Each threshold lies on the line between its two values, rounded down. As liveness is a linear
    inequality in n and B, what is on the line is live, and rounding down keeps it so. Fixed
    thresholds are kept as far as they are live; the others then share what is left.
    """
    (low, first), (high, last) = below, above
    B = [
        1 + ((b - 1) * (high - n) + (c - 1) * (n - low)) // (high - low)
        for b, c in zip(first, last, strict=True)
    ]
    slack = n - 1
    for i in sorted(range(len(B)), key=lambda i: i not in fixed):
        B[i] = min(fixed.get(i, B[i]), slack + 1)
        slack -= B[i] - 1
    return tuple(B)
