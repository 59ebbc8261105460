"""The thresholds in force, while tables and the number of live requests change.

Two models that hold different tables could together wait for more requests than there are. A new
table therefore comes in two steps: once a model has it, the smaller of both thresholds applies;
once every model has it, it alone does. At each moment the thresholds used by all models are then
at most those of one live table, and live themselves (`trmodel.launch`).
"""

from __future__ import annotations

from trmodel.launch import require_live

Vectors = tuple[tuple[int, ...], ...]


def check_vectors(vectors: Vectors) -> None:
    """Refuse a table of which some B(n) can deadlock.

    Raises
    ------
    InfeasibleError
        Naming the n.
    """
    for n, B in enumerate(vectors, start=1):
        require_live(B, n)


class TableInForce:
    """What one model goes by.

    Parameters
    ----------
    vectors
        B(1), B(2), ...; above the last n its vector holds.
    version
        Of the table; higher is newer.
    """

    def __init__(self, vectors: Vectors, version: int = 0) -> None:
        check_vectors(vectors)
        self.version = version
        self._current = vectors
        self._next: tuple[int, Vectors] | None = None

    @property
    def newest(self) -> int:
        """Version of the newest table held."""
        return self.version if self._next is None else self._next[0]

    def hold(self, version: int, vectors: Vectors) -> None:
        """Take a newer table: from now on the smaller thresholds apply."""
        if version <= self.newest:
            return
        check_vectors(vectors)
        if self._next is not None:
            # A table that was never used by all may be in use by some: stay below it as well.
            self._current = _smaller(self._current, self._next[1])
        self._next = (version, vectors)

    def use(self, version: int) -> None:
        """Every model holds this version: it alone applies."""
        if self._next is not None and self._next[0] == version:
            self.version, self._current = self._next
            self._next = None

    def threshold(self, model: int, n: int) -> int:
        """B_i that applies with n live requests."""
        current = _at(self._current, n)[model]
        return current if self._next is None else min(current, _at(self._next[1], n)[model])


def _at(vectors: Vectors, n: int) -> tuple[int, ...]:
    return vectors[min(max(n, 1), len(vectors)) - 1]


def _smaller(first: Vectors, second: Vectors) -> Vectors:
    rows = max(len(first), len(second))
    return tuple(tuple(map(min, _at(first, n), _at(second, n))) for n in range(1, rows + 1))
