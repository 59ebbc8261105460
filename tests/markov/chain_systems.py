"""Systems to test the chain on: the published one, and random ones for hypothesis."""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from trmodel.system import RoutedSystem


def r2r(N, p=0.35, **changes):
    """The published two-model system, arXiv:2610.12242, appendix D."""
    values = {
        "models": ["small", "large"],
        "latency_ms": [6.0, 27.9],
        "transition_probability": [[1.0 - p, p], [1.0, 0.0]],
        "committed_tokens": [[1, 0], [1, 0]],
    }
    return RoutedSystem(**(values | changes), N=N)


@dataclass(frozen=True)
class Case:
    """A random system in plain numbers, with live thresholds."""

    latency: list[list[int]]
    P: np.ndarray
    C: np.ndarray
    N: int
    max_batch: list[int]
    entry: int
    B: tuple[int, ...]
    grid_ms: float = 1.0
    wake: tuple[int, ...] = ()

    @property
    def M(self):
        return len(self.B)

    @property
    def system(self):
        latency_ms = [np.array(row) * self.grid_ms for row in self.latency]
        return RoutedSystem(
            [f"m{i}" for i in range(self.M)],
            latency_ms,
            self.P,
            self.C,
            self.N,
            max_batch=self.max_batch,
            entry=self.entry,
            grid_ms=self.grid_ms,
            wake_ms=[units * self.grid_ms for units in self.wake] or None,
        )

    def relabelled(self, order):
        """The same system with model order[i] in place i."""
        return replace(
            self,
            latency=[self.latency[i] for i in order],
            P=self.P[np.ix_(order, order)],
            C=self.C[np.ix_(order, order)],
            max_batch=[self.max_batch[i] for i in order],
            entry=list(order).index(self.entry),
            B=tuple(self.B[i] for i in order),
            wake=tuple(self.wake[i] for i in order) if self.wake else (),
        )


@st.composite
def cases(draw, max_M=3, max_N=4, max_units=4, connected=True, max_wake=0):
    """Random cases; in a connected one every model routes to the entry and is reached from it."""
    M = draw(st.integers(1, max_M))
    N = draw(st.integers(1, max_N))
    entry = draw(st.integers(0, M - 1))
    numbers = st.lists(st.integers(0, 4), min_size=M, max_size=M)
    weights = np.array([draw(numbers) for _ in range(M)])
    if connected:
        weights[entry] += 1
        weights[:, entry] += 1
    weights[weights.sum(axis=1) == 0, entry] = 1
    # Half of the latency rows do not depend on the batch.
    rows = st.one_of(
        st.integers(1, max_units).map(lambda units: [units] * N),
        st.lists(st.integers(1, max_units), min_size=N, max_size=N),
    )
    spare, B = N - 1, []
    for _ in range(M):
        B.append(1 + draw(st.integers(0, spare)))
        spare -= B[-1] - 1
    return Case(
        latency=[draw(rows) for _ in range(M)],
        P=weights / weights.sum(axis=1, keepdims=True),
        C=np.array([draw(numbers) for _ in range(M)], dtype=float),
        N=N,
        max_batch=[draw(st.integers(1, N)) for _ in range(M)],
        entry=entry,
        B=tuple(draw(st.permutations(B))),
        wake=tuple(draw(st.integers(0, max_wake)) for _ in range(M)) if max_wake else (),
    )
