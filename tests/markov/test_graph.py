"""Chains and routings as networkx graphs."""

import networkx as nx
import numpy as np
import pytest
from chain_systems import r2r
from scipy.sparse import csr_array

from trmodel.errors import LimitError, UsageError
from trmodel.markov import Limits, solve_chain
from trmodel.markov.graph import (
    State,
    chain_graph,
    condensation,
    deadlock_witness,
    routing_graph,
    states_of,
)


def test_routing_graph():
    graph = routing_graph(r2r(2))
    assert dict(graph.nodes(data=True)) == {
        "small": {"model": "small", "entry": True, "reached": True},
        "large": {"model": "large", "entry": False, "reached": True},
    }
    assert list(graph.edges(data=True)) == [
        ("small", "small", {"probability": 0.65, "committed_tokens": 1.0}),
        ("small", "large", {"probability": 0.35, "committed_tokens": 0.0}),
        ("large", "small", {"probability": 1.0, "committed_tokens": 1.0}),
    ]
    unreached = routing_graph(r2r(2, p=0.0))
    assert not unreached.nodes["large"]["reached"]
    assert not unreached.has_edge("small", "large")


def test_chain_graph_of_a_solved_chain(tmp_path):
    chain = solve_chain(r2r(2), (1, 2))
    graph = chain_graph(chain)
    # Both run at the small model; both run at the large one; one waits there for the other.
    assert list(graph) == ["k=0,0 b=2,0 r=60,0", "k=0,0 b=0,2 r=0,279", "k=0,1 b=1,0 r=60,0"]
    alone = graph.nodes["k=0,1 b=1,0 r=60,0"]
    assert alone["holding_units"] == 60
    assert alone["holding_ms"] == pytest.approx(6.0)
    assert alone["pi"] == chain.pi[2]
    edge = graph.edges["k=0,0 b=2,0 r=60,0", "k=0,1 b=1,0 r=60,0"]
    assert edge["probability"] == pytest.approx(2 * 0.35 * 0.65)
    nx.write_graphml(graph, tmp_path / "chain.graphml")
    assert set(nx.read_graphml(tmp_path / "chain.graphml")) == set(graph)


def test_chain_graph_of_an_enumeration_has_the_same_transitions():
    chain = solve_chain(r2r(3), (1, 1))
    graph = chain_graph(chain.enumeration)
    assert "pi" not in graph.nodes[str(states_of(chain.enumeration)[0])]
    T = nx.to_scipy_sparse_array(graph, weight="probability")
    assert (T != chain.transition).nnz == 0
    assert graph.number_of_nodes() == chain.states


def test_a_chain_too_large_to_look_at():
    chain = solve_chain(r2r(3), (1, 1))
    with pytest.raises(LimitError, match=r"308 states .* limit is 307; use a smaller N"):
        chain_graph(chain, max_states=307)
    with pytest.raises(LimitError, match="308 states"):
        condensation(chain.transition, max_states=307)


def test_condensation_marks_what_the_chain_does_not_leave():
    T = csr_array(
        np.array(
            [
                [0.5, 0.2, 0.3, 0, 0],
                [0, 0.5, 0, 0.5, 0],
                [0, 0, 1, 0, 0],
                [0, 0, 0, 0, 1],
                [0, 0, 0, 1, 0],
            ]
        )
    )
    graph = condensation(T)
    classes = {frozenset(data["members"]): data["recurrent"] for _, data in graph.nodes(data=True)}
    assert classes == {
        frozenset({0}): False,
        frozenset({1}): False,
        frozenset({2}): True,
        frozenset({3, 4}): True,
    }


def test_condensation_of_a_chain_agrees_with_the_solver():
    P = [[0.9, 0.1], [0, 1]]
    chain = solve_chain(r2r(3, transition_probability=P), (1, 2))
    graph = condensation(chain.transition)
    recurrent = [data["members"] for _, data in graph.nodes(data=True) if data["recurrent"]]
    assert recurrent == [set(np.flatnonzero(chain.pi).tolist())]


def test_the_way_into_a_deadlock():
    path = deadlock_witness(r2r(4), (3, 3))
    assert path == [State((0, 0), (4, 0), (60, 0)), State((2, 2), (0, 0), (0, 0))]


def test_a_start_that_is_a_deadlock():
    assert deadlock_witness(r2r(2), (3, 1)) == [State((2, 0), (0, 0), (0, 0))]


def test_no_way_into_a_deadlock():
    assert deadlock_witness(r2r(4), (1, 4)) is None
    cycle = r2r(4, transition_probability=[[0, 1], [1, 0]])
    assert deadlock_witness(cycle, (4, 4)) is None


def test_states_of_a_witness_have_all_models():
    path = deadlock_witness(r2r(2, p=0.0), (3, 1))
    assert path is not None
    assert len(path[-1].k) == 2


def test_what_a_witness_refuses():
    with pytest.raises(UsageError, match="2 thresholds are needed"):
        deadlock_witness(r2r(4), (3,))
    with pytest.raises(LimitError, match="limit of 2,000 states"):
        deadlock_witness(r2r(10), (1, 1), limits=Limits(states=2_000))
