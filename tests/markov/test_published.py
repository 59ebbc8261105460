"""The numbers that others have printed or computed."""

import pytest
from chain_systems import r2r

from trmodel.markov import solve_chain
from trmodel.system import RoutedSystem

WITHIN = 0.1
"""Tokens per second: the precision of the published numbers."""


def check(rows, build):
    assert rows
    for row in rows:
        chain = solve_chain(build(row["N"]), row["B"])
        expected = row["predicted"] if "predicted" in row else row["throughput"]
        assert chain.throughput_tok_s == pytest.approx(expected, abs=WITHIN), row
        assert chain.states == row.get("states", chain.states), row


def test_the_system_of_these_tests_is_the_published_one(published):
    ours, theirs = r2r(2), published["r2r"]
    assert ours.latency_ms[:, 0].tolist() == theirs["latency_ms"]
    assert ours.transition_probability.tolist() == theirs["transition_probability"]
    assert ours.committed_tokens.tolist() == theirs["committed_tokens"]
    assert ours.grid_ms == theirs["grid_ms"]


def test_predictions_of_figure_10(published):
    assert len(published["figure10"]) == 9
    check(published["figure10"], r2r)


def test_the_prediction_known_to_more_digits(published):
    (row,) = [row for row in published["figure10"] if "predicted_exact" in row]
    chain = solve_chain(r2r(row["N"]), row["B"])
    assert chain.throughput_tok_s == pytest.approx(row["predicted_exact"], abs=1e-3)


def test_the_optima_of_figure_10(published):
    for N in (2, 3, 4):
        of_N = [row for row in published["figure10"] if row["N"] == N]
        best = max(of_N, key=lambda row: solve_chain(r2r(N), row["B"]).throughput_tok_s)
        assert best.get("optimum"), N


def test_state_counts(published):
    for N, counts in published["computed"]["r2r_states"].items():
        ours = [solve_chain(r2r(int(N)), (1, b)).states for b in range(1, int(N) + 1)]
        assert ours == counts


def test_further_thresholds_of_the_published_system(published):
    check(published["computed"]["r2r_throughput"], r2r)


@pytest.mark.parametrize("name", ["ensemble_three_models", "r_stitch_like"])
def test_other_routings(published, name):
    data = published["computed"][name]

    def build(N):
        return RoutedSystem(
            [f"m{i}" for i in range(len(data["latency_ms"]))],
            data["latency_ms"],
            data["transition_probability"],
            data["committed_tokens"],
            N,
        )

    check(data["throughput"], build)
