"""Simulation as Python functions: what ``trmodel simulate`` and ``trmodel compare`` do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trmodel.api.common import DEFAULT_PROFILE, AnyProfile
from trmodel.api.tuning import tune
from trmodel.documents import StrPath
from trmodel.errors import UsageError
from trmodel.markov import Prediction, predict_chain
from trmodel.profile import Context, LoadedProfile, build_system, load_profile
from trmodel.routing import Routing
from trmodel.simulate import Options, Simulation, Strategy, simulate
from trmodel.simulate import strategies as four
from trmodel.simulate.comparators import (
    DEFAULT_REPLY_TOKENS,
    DEFAULT_SHARE_PERCENT,
    one_model_only,
    request_level,
    small_and_large,
    token_shares,
)
from trmodel.simulate.paired import Case, Comparison, simulate_paired
from trmodel.simulate.strategies import strategy_case
from trmodel.system import RoutedSystem


def simulate_profile(
    profile: AnyProfile = DEFAULT_PROFILE,
    *,
    N: int,
    B: Sequence[int] | None = None,
    strategy: str = "delayed",
    routing: StrPath | Routing | None = None,
    p: float | None = None,
    context: Context | None = None,
    max_batch: int | None = None,
    grid_ms: float | None = None,
    options: Options = Options(),
    **run: Any,
) -> Simulation:
    """Simulate a profile's system under one strategy.

    Parameters
    ----------
    profile, N, routing, p, context, max_batch, grid_ms
        See `trmodel.predict`.
    B
        A threshold for each model; only delayed batching has them.
    strategy
        ``delayed``, ``eager``, ``step-sync`` or ``model-sync``.
    options
        Arrivals, lengths of replies and the like; its own strategy is not used.
    run
        seed, batches, precision_percent, confidence, progress of `trmodel.simulate.simulate`.

    Raises
    ------
    TrmodelError
        One of its subclasses; see `trmodel.errors`.

    Examples
    --------
    >>> found = simulate_profile("a100-paper", N=4, B=(1, 3), on_grid=True)
    >>> found.throughput_tok_s.low < 208.0 < found.throughput_tok_s.high
    True
    """
    system = build_system(
        load_profile(profile),
        N,
        routing,
        p=p,
        max_batch=max_batch,
        grid_ms=grid_ms,
        context=context,
    )
    case = strategy_case(strategy, system, B, options)
    return simulate(case.system, case.B, case.options, **run)


def compare_strategies(
    profile: AnyProfile = DEFAULT_PROFILE,
    *,
    N: int,
    B: Sequence[int],
    routing: StrPath | Routing | None = None,
    p: float | None = None,
    context: Context | None = None,
    max_batch: int | None = None,
    grid_ms: float | None = None,
    options: Options = Options(),
    **run: Any,
) -> Comparison:
    """Simulate the four strategies on the same routing decisions; gains are those of B.

    Parameters are those of `simulate_profile`; ``run`` is that of
    `trmodel.simulate.paired.simulate_paired`.

    Raises
    ------
    TrmodelError
        One of its subclasses; see `trmodel.errors`.
    """
    system = build_system(
        load_profile(profile),
        N,
        routing,
        p=p,
        max_batch=max_batch,
        grid_ms=grid_ms,
        context=context,
    )
    return four.compare_strategies(system, B, options, **run)


def exact_counterpart(case: Case) -> Prediction:
    """Solve the exact chain of what a case simulates.

    Raises
    ------
    UsageError
        If the case has something that the chain does not.
    LimitError, InfeasibleError, InputError
        See `trmodel.markov.predict_chain`.
    """
    options = case.options
    lacking = {
        f"strategy {options.strategy.name.replace('_', '-')}": options.strategy
        is not Strategy.delayed,
        "hold_ms": options.hold_ms is not None,
        "arrivals_per_s": options.arrivals_per_s is not None,
        "reply_tokens": options.reply_tokens is not None,
        "handoff latency": bool(case.system.handoffs_ms.any()),
    }
    if found := [what for what, there in lacking.items() if there]:
        raise UsageError(f"exact: the exact chain does not have: {', '.join(found)}")
    return predict_chain(case.system, case.system.check_thresholds(case.B))  # type: ignore[arg-type]


@dataclass(frozen=True)
class SystemComparison:
    """Token-level routing beside what else could serve the same requests.

    Attributes
    ----------
    comparison
        Simulations by system; gains are those of delayed batching.
    large_token_percent
        By system: share of the tokens that the large model commits.
    B
        Of delayed batching.
    notes
        What to know about the comparison.
    """

    comparison: Comparison
    large_token_percent: Mapping[str, float]
    small: str
    large: str
    B: tuple[int, ...]
    notes: tuple[str, ...]


def compare_systems(
    profile: AnyProfile = DEFAULT_PROFILE,
    *,
    N: int,
    B: Sequence[int] | None = None,
    routing: StrPath | Routing | None = None,
    p: float | None = None,
    context: Context | None = None,
    max_batch: int | None = None,
    grid_ms: float | None = None,
    share_percent: float = DEFAULT_SHARE_PERCENT,
    reply_tokens: float = DEFAULT_REPLY_TOKENS,
    keep_overhead: bool = False,
    **run: Any,
) -> SystemComparison:
    """Compare delayed batching with eager launching, request-level routing and single models.

    Parameters
    ----------
    profile, N, routing, p, context, max_batch, grid_ms
        See `trmodel.predict`.
    B
        Of delayed batching; None to tune it.
    share_percent, reply_tokens
        Of request-level routing: questions that the large model answers, mean length of a reply.
    keep_overhead
        Leave the profile's overhead in the steps of the systems without token-level routing.
    run
        seed, batches, precision_percent, confidence, progress of
        `trmodel.simulate.paired.simulate_paired`.

    Raises
    ------
    TrmodelError
        One of its subclasses; see `trmodel.errors`.
    """
    loaded = load_profile(profile)
    given: dict[str, Any] = {
        "routing": routing,
        "p": p,
        "max_batch": max_batch,
        "grid_ms": grid_ms,
        "context": context,
    }
    system = build_system(loaded, N, **given)
    plain = build_system(_without_routing(loaded, keep_overhead), N, **given)
    small, large = small_and_large(plain)
    if B is None:
        B = tune(loaded, N, **given).row(N).B
    cases = {
        "delayed": strategy_case("delayed", system, B),
        "eager": strategy_case("eager", system),
        "request-level": request_level(plain, share_percent, reply_tokens),
        "large only": one_model_only(plain, large),
        "small only": one_model_only(plain, small),
    }
    routed = 100.0 * token_shares(system)[large]
    return SystemComparison(
        simulate_paired(cases, "delayed", **run),
        dict(zip(cases, (routed, routed, share_percent, 100.0, 0.0), strict=True)),
        system.models[small],
        system.models[large],
        system.check_thresholds(B),
        tuple(_notes(loaded, system, plain, keep_overhead)),
    )


def _without_routing(loaded: LoadedProfile, keep_overhead: bool) -> LoadedProfile:
    """Return a profile whose steps are decode steps, with no router and no handoff."""
    models = [model.model_copy(update={"extend": None}) for model in loaded.profile.models]
    if not keep_overhead:
        # Not left out, which would mean that it is unknown.
        models = [
            model.model_copy(
                update={"overhead": model.overhead.model_copy(update={"value_ms": 0.0})}
            )
            if model.overhead
            else model
            for model in models
        ]
    profile = loaded.profile.model_copy(update={"models": tuple(models), "handoff": None})
    return replace(loaded, profile=profile)


def _notes(
    loaded: LoadedProfile, system: RoutedSystem, plain: RoutedSystem, kept: bool
) -> list[str]:
    notes = [_overhead_note(loaded, system, kept)]
    if system.added_ms.any():
        notes.append("what phases add to a step, such as prefill, is in token-level routing only")
    return notes + [warning for warning in plain.warnings if warning not in system.warnings]


def _overhead_note(loaded: LoadedProfile, system: RoutedSystem, kept: bool) -> str:
    overheads = {
        model.name: model.overhead.value_ms
        for model in loaded.profile.models
        if model.overhead is not None and model.name in system.models
    }
    if not overheads:
        return (
            "the profile gives no overhead apart from the step: whatever its steps hold of the "
            "router is in those of all systems"
        )
    named = ", ".join(f"{name} {ms:g} ms" for name, ms in overheads.items())
    if kept:
        return f"steps of all systems have the profile's overhead ({named}), router included"
    return (
        f"overhead ({named}) is in the steps of token-level routing only; what of it is scheduling "
        "a plain server has too (--keep-overhead: all have it)"
    )
