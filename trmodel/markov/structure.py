"""Communicating and recurrent classes of a finite Markov chain.

Two states *communicate* if each can be reached from the other. A communicating class is
*recurrent* if no transition leaves it; all other states are *transient*: the chain leaves them
for good. From its start a chain ends in one recurrent class, and only there is its long run
defined; with several, which one is a matter of chance (the *absorption probabilities*).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.sparse.linalg import splu

from trmodel.arrays import FloatArray


def recurrent_classes(T: csr_array) -> list[NDArray[np.int32]]:
    """Find the recurrent classes of a chain all of whose states are reachable from state 0.

    Returns
    -------
    list of arrays
        The states of each class in breadth-first order from its first state, the order in which
        Gauss-Seidel sweeps converge; classes ordered by their first state.
    """
    count, label = connected_components(T, directed=True, connection="strong")
    if count == 1:
        return [np.arange(T.shape[0], dtype=np.int32)]
    rows = np.repeat(np.arange(T.shape[0]), np.diff(T.indptr))
    leaving = label[rows] != label[T.indices]
    closed = np.ones(count, dtype=bool)
    closed[label[rows[leaving]]] = False
    members = [np.flatnonzero(label == c) for c in np.flatnonzero(closed)]
    members.sort(key=lambda states: int(states[0]))
    return [_breadth_first(T, states) for states in members]


def _breadth_first(T: csr_array, states: NDArray[np.intp]) -> NDArray[np.int32]:
    order = breadth_first_order(T[states][:, states], 0, return_predecessors=False)
    return states[order].astype(np.int32)


def absorption_probabilities(T: csr_array, classes: list[NDArray[np.int32]]) -> FloatArray:
    """Probability of ending in each recurrent class when starting in state 0; sums to one."""
    if len(classes) == 1:
        return np.ones(1)
    start = [bool(np.any(states == 0)) for states in classes]
    if any(start):
        return np.array(start, dtype=np.float64)
    transient = np.setdiff1d(np.arange(T.shape[0]), np.concatenate(classes))
    # Expected visits to each transient state from state 0, the first of them.
    A = (eye_array(len(transient)) - T[transient][:, transient]).T
    first = np.zeros(len(transient))
    first[0] = 1.0
    visits = splu(A.tocsc()).solve(first)
    absorbed = np.array([(visits @ T[transient][:, states]).sum() for states in classes])
    return np.asarray(absorbed / absorbed.sum())
