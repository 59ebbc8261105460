"""Four strategies on the same routing decisions: closed forms, and intervals of paired gains."""

import math
from dataclasses import replace

import pytest

from trmodel.errors import UsageError
from trmodel.markov import predict_chain
from trmodel.profile import build_system, load_profile
from trmodel.simulate import Options, Strategy
from trmodel.simulate.paired import Case, simulate_paired
from trmodel.simulate.strategies import STRATEGIES, compare_strategies, strategy_case

P, SMALL_MS, LARGE_MS = 0.35, 6.0, 27.9


def paper(N):
    return build_system(load_profile("a100-paper"), N)


def step_sync_tok_s(N):
    return 1000.0 * N / (SMALL_MS + LARGE_MS * (1.0 - (1.0 - P) ** N))


def model_sync_tok_s(N):
    longest = sum(1.0 - (1.0 - (1.0 - P) ** k) ** N for k in range(2000))
    return 1000.0 * N / P / (longest * SMALL_MS + LARGE_MS)


@pytest.fixture(scope="module", params=[2, 8])
def compared(request):
    N = request.param
    B = (1, N - 2) if N > 2 else (1, 2)
    return compare_strategies(paper(N), B, confidence=0.999, batches=300_000)


@pytest.mark.parametrize(
    ("name", "closed_form"), [("step-sync", step_sync_tok_s), ("model-sync", model_sync_tok_s)]
)
def test_closed_forms_of_the_strategies_that_take_turns(compared, name, closed_form):
    found = compared.simulations[name]
    assert found.throughput_tok_s.low < closed_form(found.N) < found.throughput_tok_s.high
    assert found.throughput_tok_s.half_width < 0.01 * found.throughput_tok_s.value
    assert found.strategy == name


def test_models_that_take_turns_are_woken_for_each():
    N, wakes = 4, (1.3, 2.9)
    woken = replace(paper(N), wake_ms=wakes)
    found = compare_strategies(woken, (1, 3), confidence=0.999, batches=300_000).simulations
    handed_over = 1.0 - (1.0 - P) ** N
    step_ms = 1000.0 * N / step_sync_tok_s(N) + handed_over * sum(wakes)
    # A round of step-sync commits N tokens; one of model-sync a run of every request, N / P.
    run_ms = 1000.0 * N / P / model_sync_tok_s(N) + sum(wakes)
    for name, expected in (("step-sync", N / step_ms), ("model-sync", N / P / run_ms)):
        T = found[name].throughput_tok_s
        assert T.low < 1000.0 * expected < T.high
        assert T.half_width < 0.01 * T.value
    for name, B in (("eager", (1, 1)), ("delayed", (1, 3))):
        T = found[name].throughput_tok_s
        assert T.low < predict_chain(woken, B).throughput_tok_s < T.high


def test_the_others_agree_with_the_exact_chain(compared):
    for name in ("eager", "delayed"):
        found = compared.simulations[name]
        exact = predict_chain(paper(found.N), found.B).throughput_tok_s
        assert found.throughput_tok_s.low < exact < found.throughput_tok_s.high


def test_all_make_the_same_decisions(compared):
    shares = [s.per_model[1].step_share for s in compared.simulations.values()]
    # Those of independent runs are some 3e-4 apart.
    assert max(shares) - min(shares) < 1e-4


def test_gains_are_those_of_the_throughputs(compared):
    T = {name: found.throughput_tok_s for name, found in compared.simulations.items()}
    assert list(T) == list(STRATEGIES)
    assert set(compared.gain_percent) == set(STRATEGIES) - {"delayed"}
    for name, gain in compared.gain_percent.items():
        ratio = T["delayed"].value / T[name].value
        assert gain.value == pytest.approx(100.0 * (ratio - 1.0), rel=1e-9)
        assert gain.low <= gain.value <= gain.high
        apart = math.hypot(
            T["delayed"].half_width / T["delayed"].value, T[name].half_width / T[name].value
        )
        closer = 0.75 if name == "eager" else 0.95
        assert gain.half_width < closer * 100.0 * ratio * apart


def test_intervals_of_gains_hold_the_exact_gain():
    system = paper(4)
    exact = predict_chain(system, (1, 3)), predict_chain(system, (1, 1))
    truth = 100.0 * (exact[0].throughput_tok_s / exact[1].throughput_tok_s - 1.0)
    cases = {name: strategy_case(name, system, (1, 3)) for name in ("eager", "delayed")}
    held = 0
    for seed in range(40):
        found = simulate_paired(cases, "delayed", seed=seed, batches=20_000, confidence=0.9)
        gain = found.gain_percent["eager"]
        held += gain.low <= truth <= gain.high
    assert 30 <= held <= 40  # 36 +- 1.9


def test_precision_is_reached_or_its_lack_is_told():
    cases = {"eager": strategy_case("eager", paper(4))}
    short = simulate_paired(cases, "eager", batches=5000).simulations["eager"]
    found = simulate_paired(cases, "eager", batches=5000, precision_percent=0.5)
    speed = found.simulations["eager"].throughput_tok_s
    assert speed.half_width <= 0.005 * speed.value
    assert found.simulations["eager"].batches > 1.9 * short.batches
    missed = simulate_paired(cases, "eager", batches=64, precision_percent=0.01)
    assert "precision of 0.01 % was not reached" in missed.simulations["eager"].warnings[-1]


def test_one_seed_gives_the_same_answer_and_progress_is_told():
    calls = []
    first = compare_strategies(paper(3), (1, 2), batches=6400, progress=lambda *c: calls.append(c))
    second = compare_strategies(paper(3), (1, 2), batches=6400)
    assert repr(first) == repr(second)  # nan is not nan
    assert calls == [(n + 1, 256) for n in range(256)]


def test_a_hold_is_of_delayed_batching_only():
    options = Options(hold_ms=20.0)
    case = strategy_case("model-sync", paper(4), options=options)
    assert case.options == Options(strategy=Strategy.model_sync)
    assert strategy_case("delayed", paper(4), (1, 3), options).options == options
    with pytest.raises(UsageError, match="hold_ms"):
        Options(strategy=Strategy.step_sync, hold_ms=20.0)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(UsageError, match="strategy: must be one of"):
        strategy_case("lazy", paper(4))
    with pytest.raises(UsageError, match="B: delayed batching needs"):
        strategy_case("delayed", paper(4))
    case = {"eager": Case(paper(4), (1, 1))}
    with pytest.raises(UsageError, match="reference"):
        simulate_paired(case, "delayed")
    with pytest.raises(UsageError, match="batches"):
        simulate_paired(case, "eager", batches=3)


def test_a_system_against_itself_gains_nothing():
    system = paper(4)
    cases = {"a": Case(system, (1, 2)), "b": Case(replace(system), (1, 2))}
    gain = simulate_paired(cases, "a", batches=6400).gain_percent["b"]
    assert (gain.value, gain.low, gain.high) == (0.0, 0.0, 0.0)
