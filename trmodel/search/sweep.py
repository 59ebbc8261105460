"""Tuning over a range of routing probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trmodel.search.table import ThresholdTable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Sweep:
    """One threshold table for each probability p that the first of two models hands over.

    Attributes
    ----------
    values
        The p that were reached, in the order given.
    stopped
        Why the sweep ended early, or None.
    """

    values: tuple[float, ...]
    tables: tuple[ThresholdTable, ...]
    stopped: str | None = None

    def __iter__(self) -> Iterator[tuple[float, ThresholdTable]]:
        return iter(zip(self.values, self.tables, strict=True))

    def to_pandas(self) -> pd.DataFrame:
        """Return the tables' rows under each other, with a first column ``p``."""
        import pandas as pd

        frames = [table.to_pandas().assign(p=p) for p, table in self]
        frame = pd.concat(frames, ignore_index=True)
        return frame[["p", *(name for name in frame.columns if name != "p")]]

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as plain values: the rows of every table, each with its p."""
        first = self.tables[0].to_dict()
        del first["thresholds"], first["system"]["transition_probability"]
        return first | {
            "schema": "trmodel/sweep",
            "rows": [{"p": p} | row.to_dict() for p, table in self for row in table],
            "warnings": list(dict.fromkeys(w for table in self.tables for w in table.warnings)),
            "stopped": self.stopped,
        }
