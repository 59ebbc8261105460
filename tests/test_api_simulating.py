"""Simulation and comparisons as Python functions."""

import pytest

import trmodel
from trmodel.api.simulating import exact_counterpart
from trmodel.errors import InfeasibleError, UsageError
from trmodel.profile import LoadedProfile, build_system, load_profile
from trmodel.simulate import Options
from trmodel.simulate.strategies import strategy_case


@pytest.fixture(scope="module")
def compared():
    return trmodel.compare_systems("a100", N=4, B=(2, 3), batches=20_000)


@pytest.mark.parametrize("profile", ["a100-paper", "a100"])
def test_simulation_on_the_grid_agrees_with_the_exact_chain(profile):
    found = trmodel.simulate_profile(
        profile, N=6, B=(2, 4), options=Options(on_grid=True), confidence=0.999
    )
    exact = trmodel.predict(profile, N=6, B=(2, 4))
    assert found.throughput_tok_s.low < exact.throughput_tok_s < found.throughput_tok_s.high


def test_arguments_of_the_system_are_used():
    found = trmodel.simulate_profile(
        "a100-paper", N=1, B=(1, 1), p=0.0, context=512, max_batch=1, batches=640
    )
    assert found.throughput_tok_s.value == pytest.approx(1000.0 / 6.0)
    with pytest.raises(InfeasibleError, match="can deadlock"):
        trmodel.simulate_profile("a100-paper", N=4, B=(1, 9))


def test_compared_systems(compared):
    assert list(compared.comparison.simulations) == [
        "delayed",
        "eager",
        "request-level",
        "large only",
        "small only",
    ]
    shares = list(compared.large_token_percent.values())
    assert shares == pytest.approx([35.0, 35.0, 40.0, 100.0, 0.0])
    assert (compared.small, compared.large) == ("Qwen3-0.6B", "Qwen3-32B")
    assert compared.B == (2, 3)
    large = compared.comparison.simulations["large only"]
    # Decode steps without the overhead, which is 0 for this model: the profile's own at batch 4.
    system = build_system(load_profile("a100"), 4, p=0.0)
    assert large.throughput_tok_s.value == pytest.approx(4000.0 / system.latency_ms[1, 3])


def test_overhead_is_left_out_or_kept(compared):
    small = compared.comparison.simulations["small only"].throughput_tok_s.value
    kept = trmodel.compare_systems("a100", N=4, B=(2, 3), batches=640, keep_overhead=True)
    slower = kept.comparison.simulations["small only"].throughput_tok_s.value
    assert 4000.0 / slower - 4000.0 / small == pytest.approx(3.0277)
    assert "Qwen3-0.6B 3.0277 ms" in compared.notes[0]
    assert "is in the steps of token-level routing only" in compared.notes[0]
    assert "router included" in kept.notes[0]
    paper = trmodel.compare_systems("a100-paper", N=2, B=(1, 2), batches=640)
    assert "no overhead apart from the step" in paper.notes[0]


def test_thresholds_are_tuned_where_none_are_given():
    found = trmodel.compare_systems("a100-paper", N=4, batches=640, share_percent=26.0)
    assert found.B == (1, 3)
    assert found.large_token_percent["request-level"] == 26.0


def test_three_models_are_compared_by_their_fastest_and_slowest():
    found = trmodel.compare_systems("a100-ensemble", N=2, B=(1, 1, 1), batches=640)
    assert (found.small, found.large) == ("Qwen3-0.6B", "Qwen3-32B")
    assert found.large_token_percent["delayed"] == pytest.approx(20.0)


def test_the_chain_of_a_case_or_why_there_is_none():
    system = build_system(load_profile("a100-paper"), 4)
    assert exact_counterpart(strategy_case("delayed", system, (1, 3))).B == (1, 3)
    options = Options(hold_ms=5.0, arrivals_per_s=1.0, reply_tokens=(100.0,))
    with pytest.raises(UsageError, match="hold_ms, arrivals_per_s, reply_tokens"):
        exact_counterpart(strategy_case("delayed", system, (1, 3), options))
    with pytest.raises(UsageError, match="strategy step-sync"):
        exact_counterpart(strategy_case("step-sync", system))


def test_handoffs_are_not_in_the_systems_without_routing():
    loaded = load_profile("a100")
    provenance = loaded.profile.models[0].decode.provenance.model_dump()
    document = loaded.profile.model_dump(by_alias=True) | {
        "handoff": {"latency_ms": 5.0, "provenance": provenance}
    }
    slow = LoadedProfile(trmodel.Profile.model_validate(document), "mine", "0")
    with_handoff = trmodel.compare_systems(slow, N=4, B=(2, 3), batches=20_000).comparison
    without = trmodel.compare_systems(loaded, N=4, B=(2, 3), batches=20_000).comparison
    for name in ("request-level", "large only", "small only"):
        speeds = [c.simulations[name].throughput_tok_s.value for c in (with_handoff, without)]
        assert speeds[0] == pytest.approx(speeds[1], rel=0.05)
        assert with_handoff.simulations[name].ledger.handoff_ms == 0.0
    slower = with_handoff.simulations["delayed"]
    assert slower.throughput_tok_s.high < without.simulations["delayed"].throughput_tok_s.low
    assert slower.ledger.handoff_ms == pytest.approx(2 * 5.0 * 0.35, rel=0.02)
