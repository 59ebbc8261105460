"""The result of tuning: one row for every concurrency, with what was chosen and what else was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trmodel.errors import UsageError
from trmodel.search.bound import Bound
from trmodel.search.choose import ALTERNATIVES, Candidate, Choice, notes
from trmodel.search.thresholds import Thresholds

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Row:
    """What tuning found at one concurrency N; ``bound`` only if it was asked for."""

    N: int
    choice: Choice
    extra_notes: tuple[str, ...] = ()
    bound: Bound | None = None

    @property
    def B(self) -> tuple[int, ...]:
        """The chosen thresholds."""
        return self.choice.best.B

    @property
    def throughput_tok_s(self) -> float:
        """Predicted throughput under them, in tokens per second."""
        return self.choice.best.throughput_tok_s

    @property
    def gain_percent(self) -> float:
        """Gain over eager launching."""
        return self.choice.gain_percent

    @property
    def notes(self) -> list[str]:
        """Whether it is worth it, what is as good, and what had to be changed."""
        unbounded = [self.bound.missing] if self.bound and self.bound.missing else []
        return [*notes(self.choice), *self.extra_notes, *unbounded]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every vector evaluated, best first."""
        return self.choice.ranked

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values, ready for JSON."""
        best, eager, second = self.choice.best, self.choice.eager, self.choice.runner_up
        return {
            "N": self.N,
            "B": list(best.B),
            "throughput_tok_s": best.throughput_tok_s,
            "request_speed_tok_s": best.throughput_tok_s / self.N,
            "eager_tok_s": eager.throughput_tok_s,
            "gain_percent": self.gain_percent,
            **({} if self.bound is None else self.bound.to_dict()),
            "runner_up": None
            if second is None
            else {
                "B": list(second.B),
                "throughput_tok_s": second.throughput_tok_s,
                "loss_percent": second.loss_percent,
            },
            "alternatives": [
                {"B": list(c.B), "throughput_tok_s": c.throughput_tok_s}
                for c in self.candidates[:ALTERNATIVES]
            ],
            "candidates": len(self.candidates),
            "states": best.states,
            "method": best.method,
            "solver": best.solver,
            "residual": best.residual,
            "notes": self.notes,
        }


@dataclass(frozen=True)
class ThresholdTable:
    """Rows for n = 1, 2, ..., the last one reached; `wanted` are those that were asked for.

    Attributes
    ----------
    stopped
        Why the search ended before the last row, or None.
    origin
        What it was made from: profile, routing, versions; plain values for the document.
    """

    models: tuple[str, ...]
    rows: tuple[Row, ...]
    wanted: tuple[int, ...]
    origin: dict[str, Any]
    warnings: tuple[str, ...] = ()
    stopped: str | None = None

    @property
    def wanted_rows(self) -> list[Row]:
        """The rows asked for, as far as the search came."""
        return [row for row in self.rows if row.N in self.wanted]

    @property
    def thresholds(self) -> Thresholds:
        """The live table for n = 1, 2, ... that a server can run."""
        return Thresholds(self.models, tuple(row.B for row in self.rows))

    def __iter__(self) -> Iterator[Row]:
        return iter(self.wanted_rows)

    def __len__(self) -> int:
        return len(self.wanted_rows)

    def row(self, N: int) -> Row:
        """Return the row of concurrency N.

        Raises
        ------
        UsageError
            If the table has none.
        """
        if not 1 <= N <= len(self.rows):
            raise UsageError(f"N: the table has rows for 1..{len(self.rows)}, got {N}")
        return self.rows[N - 1]

    def to_dict(self, every_row: bool = False) -> dict[str, Any]:
        """Return the table as plain values: the rows asked for, or every one from n = 1."""
        rows = self.rows if every_row else self.wanted_rows
        return {
            "schema": "trmodel/thresholds",
            "schema_version": 1,
            **self.origin,
            "models": list(self.models),
            "rows": [row.to_dict() for row in rows],
            "thresholds": [list(B) for B in self.thresholds.vectors],
            "warnings": list(self.warnings),
            "stopped": self.stopped,
        }

    def to_records(self, every_row: bool = False) -> list[dict[str, Any]]:
        """Return one flat record per N, with a field ``B_<model>`` per threshold."""
        records = []
        for row in self.rows if every_row else self.wanted_rows:
            plain = row.to_dict()
            second = plain["runner_up"] or {}
            records.append(
                {
                    "N": row.N,
                    **{f"B_{name}": b for name, b in zip(self.models, row.B, strict=True)},
                    **{
                        key: plain[key]
                        for key in (
                            "throughput_tok_s",
                            "request_speed_tok_s",
                            "eager_tok_s",
                            "gain_percent",
                        )
                    },
                    **({} if row.bound is None else row.bound.to_dict()),
                    "runner_up": ",".join(map(str, second.get("B", []))),
                    "runner_up_tok_s": second.get("throughput_tok_s"),
                    **{key: plain[key] for key in ("states", "method", "solver", "residual")},
                    "notes": "; ".join(plain["notes"]),
                }
            )
        return records

    def to_pandas(self, every_row: bool = False) -> pd.DataFrame:
        """Return the records as a data frame, one row per N."""
        import pandas as pd

        return pd.DataFrame.from_records(self.to_records(every_row))
