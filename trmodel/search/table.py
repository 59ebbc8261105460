"""The result of tuning: rows of what was chosen and what else was, and a live table of thresholds.

A row is *searched*: of all live vectors (``exhaustive``) or by ``racing``. Where not every n was
searched, the thresholds in between are *interpolated*; no throughput is claimed for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trmodel.errors import UsageError
from trmodel.search.bound import Bound
from trmodel.search.choose import ALTERNATIVES, Candidate, Choice, notes
from trmodel.search.thresholds import Thresholds, interpolated

if TYPE_CHECKING:
    import pandas as pd

FIGURES = (
    "throughput_tok_s",
    "throughput_low_tok_s",
    "throughput_high_tok_s",
    "request_speed_tok_s",
    "eager_tok_s",
    "gain_percent",
)


@dataclass(frozen=True)
class Row:
    """What tuning found at one concurrency N.

    Attributes
    ----------
    extra_notes
        Beside those that the choice gives.
    bound
        How far it is from the best launch rule; only if that was asked for.
    search
        ``exhaustive`` or ``racing``.
    read
        Of a row read back from a document, which holds the best candidates only: how many there
        were, and the notes.
    """

    N: int
    choice: Choice
    extra_notes: tuple[str, ...] = ()
    bound: Bound | None = None
    search: str = "exhaustive"
    read: tuple[int, tuple[str, ...]] | None = None

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
        """Whether it is worth it, what is as good, how it was found, what had to be changed."""
        found = self.read[1] if self.read else (*notes(self.choice), *self.extra_notes)
        missing = self.bound.missing if self.bound else None
        return [*found] if missing is None or missing in found else [*found, missing]

    @property
    def evaluated(self) -> int:
        """How many vectors were evaluated."""
        return self.read[0] if self.read else len(self.choice.ranked)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every vector evaluated, best first; of a row read back only the best."""
        return self.choice.ranked

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values, ready for JSON."""
        best, eager, second = self.choice.best, self.choice.eager, self.choice.runner_up
        return {
            "N": self.N,
            "B": list(best.B),
            "throughput_tok_s": best.throughput_tok_s,
            "throughput_low_tok_s": best.throughput_low_tok_s,
            "throughput_high_tok_s": best.throughput_high_tok_s,
            "request_speed_tok_s": best.throughput_tok_s / self.N,
            "eager_tok_s": eager.throughput_tok_s,
            "gain_percent": self.gain_percent,
            **({} if self.bound is None else self.bound.to_dict(self.throughput_tok_s)),
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
            "search": self.search,
            "candidates": self.evaluated,
            "states": best.states,
            "method": best.method,
            "solver": best.solver,
            "residual": best.residual,
            "notes": self.notes,
        }


@dataclass(frozen=True)
class ThresholdTable:
    """Rows of the concurrencies searched, ascending; `wanted` are those that were asked for.

    Attributes
    ----------
    stopped
        Why the search ended before the last row, or None.
    origin
        What it was made from: profile, routing, versions; plain values for the document.
    search
        How it was searched: method, fixed thresholds, seed; plain values for the document.
    """

    models: tuple[str, ...]
    rows: tuple[Row, ...]
    wanted: tuple[int, ...]
    origin: dict[str, Any]
    warnings: tuple[str, ...] = ()
    stopped: str | None = None
    search: dict[str, Any] = field(default_factory=dict)

    @property
    def wanted_rows(self) -> list[Row]:
        """The rows asked for, as far as the search came."""
        return [row for row in self.rows if row.N in self.wanted]

    @cached_property
    def by_N(self) -> dict[int, Row]:
        """The rows searched, by their concurrency."""
        return {row.N: row for row in self.rows}

    @cached_property
    def thresholds(self) -> Thresholds:
        """The live table for n = 1, 2, ... that a server can run, interpolated between rows."""
        fixed = {int(i): b for i, b in self.search.get("fixed", {}).items()}
        below = (1, self.rows[0].B if self.rows[0].N == 1 else (1,) * len(self.models))
        vectors = [below[1]]
        for row in self.rows:
            above = (row.N, row.B)
            vectors += [interpolated(n, below, above, fixed) for n in range(below[0] + 1, row.N)]
            vectors += [row.B] if row.N > 1 else []
            below = above
        return Thresholds(self.models, tuple(vectors))

    def __iter__(self) -> Iterator[Row]:
        return iter(self.wanted_rows)

    def __len__(self) -> int:
        return len(self.wanted_rows)

    def row(self, N: int) -> Row:
        """Return the row of concurrency N.

        Raises
        ------
        UsageError
            If N was not searched.
        """
        if N not in self.by_N:
            last = max(self.by_N)
            shown = f"1..{last}" if len(self.rows) == last else ", ".join(map(str, self.by_N))
            raise UsageError(f"N: the table has rows for {shown}, got {N}")
        return self.by_N[N]

    def to_dict(self, every_row: bool = False) -> dict[str, Any]:
        """Return the table as plain values: the rows asked for, or every one from n = 1."""
        return {
            "schema": "trmodel/thresholds",
            "schema_version": 1,
            **self.origin,
            "search": dict(self.search),
            "models": list(self.models),
            "rows": self._plain_rows(every_row),
            "thresholds": [list(B) for B in self.thresholds.vectors],
            "warnings": list(self.warnings),
            "stopped": self.stopped,
        }

    def _plain_rows(self, every_row: bool) -> list[dict[str, Any]]:
        if not every_row:
            return [row.to_dict() for row in self.wanted_rows]
        return [
            self.by_N[n].to_dict() if n in self.by_N else self._between(n, B)
            for n, B in enumerate(self.thresholds.vectors, start=1)
        ]

    def _between(self, n: int, B: tuple[int, ...]) -> dict[str, Any]:
        """A row that was not searched, with the same fields: thresholds and no figure."""
        empty = dict.fromkeys(self.rows[0].to_dict())
        note = "interpolated: this n was not searched"
        return empty | {
            "N": n,
            "B": list(B),
            "alternatives": [],
            "search": "interpolated",
            "candidates": 0,
            "notes": [note],
        }

    def to_records(self, every_row: bool = False) -> list[dict[str, Any]]:
        """Return one flat record per N, with a field ``B_<model>`` per threshold."""
        return [self._record(plain) for plain in self._plain_rows(every_row)]

    def _record(self, plain: dict[str, Any]) -> dict[str, Any]:
        second = plain["runner_up"] or {}
        bounded = [key for key in ("bound_tok_s", "gap_percent") if key in plain]
        return {
            "N": plain["N"],
            **{f"B_{name}": b for name, b in zip(self.models, plain["B"], strict=True)},
            **{key: plain[key] for key in (*FIGURES, *bounded)},
            "runner_up": ",".join(map(str, second.get("B", []))),
            "runner_up_tok_s": second.get("throughput_tok_s"),
            **{key: plain[key] for key in ("search", "states", "method", "solver", "residual")},
            "notes": "; ".join(plain["notes"]),
        }

    def to_pandas(self, every_row: bool = False) -> pd.DataFrame:
        """Return the records as a data frame, one row per N."""
        import pandas as pd

        return pd.DataFrame.from_records(self.to_records(every_row))
