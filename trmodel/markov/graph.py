"""Chains and routings as networkx graphs: for what is small and looked at.

The graphs carry plain attributes (numbers and text), so that ``networkx.write_graphml`` saves
them and ``networkx.draw`` shows them. Solving uses none of this; networkx is imported on first
use because most commands need no graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray
from scipy.sparse import csr_array

from trmodel.errors import LimitError
from trmodel.launch import shown_vector
from trmodel.markov.chain import Chain
from trmodel.markov.enumeration import Enumeration, Limits, enumerate_states
from trmodel.markov.transitions import split_table
from trmodel.system import RoutedSystem

if TYPE_CHECKING:
    import networkx as nx

MAX_STATES = 2_000
"""A larger graph is not looked at, and networkx is slow on it."""


class State(NamedTuple):
    """Waiting requests k and running ones b of each phase, remaining work r (grid units) by model.

    In a plain system phases are models. Of an idle model r is the work of waking it.
    """

    k: tuple[int, ...]
    b: tuple[int, ...]
    r: tuple[int, ...]

    def __str__(self) -> str:
        return f"k={shown_vector(self.k)} b={shown_vector(self.b)} r={shown_vector(self.r)}"


def states_of(enumeration: Enumeration) -> list[State]:
    """Return the states of an enumeration, in its order."""
    e = enumeration
    columns = (map(tuple, array.tolist()) for array in (e.waiting, e.running, e.r))
    return [State(*fields) for fields in zip(*columns, strict=True)]


def routing_graph(system: RoutedSystem) -> nx.DiGraph:
    """Draw the routing: phases (models, in a plain system), and an edge for every move.

    Returns
    -------
    networkx.DiGraph
        Nodes are names of phases with ``model``, ``entry`` and ``reached``; edges have
        ``probability`` p_ij and ``committed_tokens`` c_ij.
    """
    import networkx as nx

    graph = nx.DiGraph()
    for u, phase in enumerate(system.phases):
        graph.add_node(
            phase.name,
            model=system.models[phase.model],
            entry=u == system.entry,
            reached=u in system.reached_phases,
        )
    P, C = system.transition_probability.tolist(), system.committed_tokens.tolist()
    for i, source in enumerate(system.phases):
        for j, target in enumerate(system.phases):
            if P[i][j] > 0.0:
                graph.add_edge(
                    source.name, target.name, probability=P[i][j], committed_tokens=C[i][j]
                )
    return graph


def chain_graph(chain: Chain | Enumeration, *, max_states: int = MAX_STATES) -> nx.DiGraph:
    """Draw a chain: its states and transitions.

    Parameters
    ----------
    chain
        A solved chain, or states that were only enumerated.
    max_states
        Largest chain to draw.

    Returns
    -------
    networkx.DiGraph
        Nodes are the states' text, such as ``k=1,0 b=2,0 r=60,0``, in breadth-first order, with
        ``holding_units`` and, when solved, ``holding_ms`` and ``pi``; edges have
        ``probability``.

    Raises
    ------
    LimitError
        If the chain has more than ``max_states`` states.
    """
    import networkx as nx

    enumeration = chain.enumeration if isinstance(chain, Chain) else chain
    graph = _numbered_graph(enumeration.transition, max_states)
    attributes: dict[str, NDArray[Any]] = {"holding_units": enumeration.holding_units}
    if isinstance(chain, Chain):
        attributes |= {"holding_ms": chain.holding_ms, "pi": chain.pi}
    for name, values in attributes.items():
        nx.set_node_attributes(graph, dict(enumerate(values.tolist())), name)
    labels = dict(enumerate(map(str, states_of(enumeration))))
    return nx.relabel_nodes(graph, labels)


def condensation(T: csr_array, *, max_states: int = MAX_STATES) -> nx.DiGraph:
    """Contract the communicating classes of a chain to one node each.

    Returns
    -------
    networkx.DiGraph
        Acyclic; nodes have ``members``, the set of state numbers, and ``recurrent``, whether no
        transition leaves the class.

    Raises
    ------
    LimitError
        If the chain has more than ``max_states`` states.
    """
    import networkx as nx

    graph = nx.condensation(_numbered_graph(T, max_states))
    nx.set_node_attributes(graph, {c: out == 0 for c, out in graph.out_degree}, "recurrent")
    return graph


def deadlock_witness(
    system: RoutedSystem, B: Sequence[int], *, limits: Limits = Limits(states=100_000)
) -> list[State] | None:
    """Find how thresholds deadlock: the shortest way from the start to where nothing runs.

    Parameters
    ----------
    system
        Any system; states list all of its models.
    B
        One threshold for each model, live or not.
    limits
        Largest chain to explore.

    Returns
    -------
    list of State, or None
        States from the start to the deadlock, the last; None if no deadlock can be reached.

    Raises
    ------
    UsageError, LimitError
        For malformed thresholds, or a chain that outgrows ``limits``.
    """
    import networkx as nx

    e = enumerate_states(system, system.check_thresholds(B), split_table(system), limits)
    deadlocks = (e.holding_units == 0).nonzero()[0].tolist()
    if not deadlocks:
        return None
    graph = _numbered_graph(e.transition, limits.states)
    # One node behind all deadlocks: the shortest path to it passes the nearest of them.
    graph.add_edges_from((state, "stuck") for state in deadlocks)
    path = nx.shortest_path(graph, 0, "stuck")[:-1]
    states = states_of(e)
    return [states[s] for s in path]


def _numbered_graph(T: csr_array, max_states: int) -> nx.DiGraph:
    import networkx as nx

    if T.shape[0] > max_states:
        raise LimitError(
            f"a graph of {T.shape[0]:,} states is too large to look at, the limit is "
            f"{max_states:,}; use a smaller N or a coarser grid (grid_ms, --grid-ms)"
        )
    return nx.from_scipy_sparse_array(T, create_using=nx.DiGraph, edge_attribute="probability")
