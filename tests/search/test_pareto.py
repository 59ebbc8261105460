"""The front of throughput against a delay."""

import pytest

import trmodel
from trmodel.errors import UsageError
from trmodel.search import tune_system
from trmodel.search.choose import Candidate
from trmodel.search.objectives import parse_delay
from trmodel.search.pareto import Place, Point, pareto_of_row, placed
from trmodel.simulate import Estimate, simulate
from trmodel.system import RoutedSystem


@pytest.fixture(scope="module")
def pareto():
    return trmodel.pareto("a100", 5, batches=50_000)


def point(throughput, delay, half=0.0, B=(1, 1)):
    return Point(
        Candidate(B, throughput, 1, "exact", "gth", 0.0),
        Estimate(delay, delay - half, delay + half),
    )


def test_every_live_vector_is_there_once(pareto):
    table = trmodel.tune("a100", N=5)
    assert {p.candidate.B for p in pareto.points} == {c.B for c in table.row(5).candidates}
    assert len(pareto.points) == 15
    assert pareto.chosen == table.row(5).B
    assert pareto.eager == (1, 1)
    assert pareto.at((1, 1)).throughput_tok_s == table.row(5).choice.eager.throughput_tok_s


def test_nothing_dominates_the_front_and_something_all_the_rest(pareto):
    for p in pareto.points:
        better = [
            q
            for q in pareto.points
            if q.throughput_tok_s >= p.throughput_tok_s
            and q.delay_ms.value <= p.delay_ms.value
            and (q.throughput_tok_s, q.delay_ms.value) != (p.throughput_tok_s, p.delay_ms.value)
        ]
        assert bool(better) is (p.place is not Place.front)
    delays = [p.delay_ms.value for p in pareto.front]
    assert delays == sorted(delays, reverse=True)
    assert len(pareto.front) > 2


def test_delays_are_those_of_a_simulation_with_other_random_numbers(pareto):
    from trmodel.profile import build_system, load_profile

    system = build_system(load_profile("a100"), 5)
    for p in pareto.points[::4]:
        other = simulate(system, p.candidate.B, seed=8).inter_token_ms.p99
        assert p.delay_ms.low * 0.98 <= other.value <= p.delay_ms.high * 1.02


def test_a_point_that_nothing_is_better_than_for_sure_ties():
    front, by_chance, clear = point(100, 50, 1), point(99.95, 50.5, 1), point(99.95, 60, 1)
    slower, level = point(98, 50, 1), point(100, 50, 1)
    places = {id(p.candidate): p.place for p in placed([front, by_chance, clear, slower, level])}
    assert places == {
        id(front.candidate): Place.front,
        id(level.candidate): Place.front,
        id(by_chance.candidate): Place.tie,
        id(clear.candidate): Place.dominated,
        id(slower.candidate): Place.dominated,
    }


def test_other_delays_can_be_set_against_throughput(pareto):
    admission = trmodel.pareto("a100", 3, delay="mean-admission-ms:Qwen3-32B", batches=20_000)
    assert admission.delay == "mean-admission-ms:Qwen3-32B"
    exact = trmodel.predict("a100", N=3, B=(1, 2)).per_model[1].admission_delay_ms
    found = admission.at((1, 2)).delay_ms
    assert found.value == pytest.approx(exact, rel=0.03)
    with pytest.raises(UsageError, match="min-request-speed is no delay"):
        trmodel.pareto("a100", 3, delay="min-request-speed")


def test_records_and_document_agree(pareto):
    records, document = pareto.to_records(), pareto.to_dict()
    assert [r["throughput_tok_s"] for r in records] == [
        r["throughput_tok_s"] for r in document["rows"]
    ]
    assert [r["B"] for r in records if r["chosen"]] == ["2,4"]
    assert document["schema"] == "trmodel/pareto"
    assert document["profile"]["name"] == "a100"


def test_it_is_said_when_not_every_live_vector_was_tried():
    some = trmodel.pareto("a100-paper", 60, batches=2_000, method="simulated")
    (warning,) = [w for w in some.warnings if "live vectors are set side by side" in w]
    assert f"only {len(some.points)} of 1,830 live vectors" in warning


def test_with_handoffs_both_axes_have_them():
    system = RoutedSystem(
        ["small", "large"],
        [6.0, 27.9],
        [[0.65, 0.35], [1.0, 0.0]],
        [[1, 0], [1, 0]],
        3,
        handoff_ms=[[0.0, 20.0], [20.0, 0.0]],
    )
    row = tune_system(system, [3]).row(3)
    delay = parse_delay("p99-itl-ms", system, False)
    found = pareto_of_row(system, row, system.models, delay, batches=20_000)
    assert {p.candidate.method for p in found.points} == {"simulated"}
    assert found.at((1, 1)).throughput_tok_s < 0.9 * row.choice.eager.throughput_tok_s
