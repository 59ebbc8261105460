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

    def to_records(self, every_row: bool = False) -> list[dict[str, Any]]:
        """Return the tables' records under each other, each with its p."""
        return [{"p": p} | record for p, table in self for record in table.to_records(every_row)]

    def to_pandas(self, every_row: bool = False) -> pd.DataFrame:
        """Return the records as a data frame with a first column ``p``."""
        import pandas as pd

        return pd.DataFrame.from_records(self.to_records(every_row))

    def to_dict(self, every_row: bool = False) -> dict[str, Any]:
        """Return the sweep as plain values: the rows of every table, each with its p."""
        shared = self.tables[0].to_dict()
        del shared["thresholds"]
        if "system" in shared:
            P = shared["system"]["transition_probability"]
            shared["system"] = shared["system"] | {
                "transition_probability": [None, *P[1:]]  # the first row is what is swept
            }
        return shared | {
            "schema": "trmodel/sweep",
            "rows": [{"p": p} | row for p, t in self for row in t.to_dict(every_row)["rows"]],
            "warnings": list(dict.fromkeys(w for table in self.tables for w in table.warnings)),
            "stopped": self.stopped,
        }
