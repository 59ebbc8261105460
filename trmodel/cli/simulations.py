"""How simulations and comparisons of them are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from trmodel.cli.output import Grid, View, context_in_words
from trmodel.launch import shown_vector
from trmodel.ledger import CostLedger
from trmodel.simulate import Delays, Estimate, Simulation

if TYPE_CHECKING:
    from trmodel.api.simulating import SystemComparison
    from trmodel.markov import Prediction
    from trmodel.simulate.paired import Comparison

DELAYS = {
    "inter_token_ms": "between tokens",
    "admission_delay_ms": "admission to a batch",
    "first_token_ms": "first token",
    "reply_ms": "whole reply",
}
LEDGER = ("forward_ms", "threshold_wait_ms", "batch_wait_ms", "handoff_ms")
QUANTILES = ("mean", "p50", "p90", "p99")


def shown(found: Estimate, digits: int) -> str:
    """Write an estimate with its half width, such as ``366.5 ± 0.4``."""
    if not isfinite(found.half_width):
        return f"{found.value:.{digits}f}"
    return f"{found.value:.{digits}f} ± {found.half_width:.{digits}f}"


def simulation_view(
    found: Simulation, origin: Mapping[str, Any], strategy: str, exact: Prediction | None
) -> View:
    """Show one simulation, beside the exact chain's throughput if that was solved."""
    head = {"schema": "trmodel/simulation", "schema_version": 1, **origin}
    document = head | found.to_dict() | {"strategy": strategy}
    record = {"strategy": strategy} | _record(found)
    blocks: list[str | Grid] = [
        _headline(found, origin, strategy),
        _delays(found),
        _models(found),
        _ledger(found),
        _how(found, origin),
    ]
    if exact is not None:
        document["exact"] = _exact(found, exact)
        record["exact_tok_s"] = exact.throughput_tok_s
        blocks.append(_exact_in_words(found, exact))
    return View(document, [record], blocks, warnings=found.warnings)


def strategies_view(
    comparison: Comparison, origin: Mapping[str, Any], exact: Mapping[str, Prediction]
) -> View:
    """Show the four strategies, and what delayed batching gains over each."""
    simulations = comparison.simulations
    first = next(iter(simulations.values()))
    rows, plain, records = [], [], []
    for name, found in simulations.items():
        gain = comparison.gain_percent.get(name)
        rows.append(
            (
                name,
                shown_vector(found.B) if name in ("eager", "delayed") else "",
                shown(found.throughput_tok_s, 1),
                "" if gain is None else shown(gain, 2),
                f"{found.request_speed_tok_s:.1f}",
                shown(found.inter_token_ms.mean, 1),
                shown(found.inter_token_ms.p99, 1),
                " ".join(f"{model.busy_fraction:.0%}" for model in found.per_model),
            )
        )
        solved = exact.get(name)
        plain.append(
            found.to_dict()
            | {"strategy": name, "gain_percent": _plain(gain)}
            | ({} if solved is None else {"exact": _exact(found, solved)})
        )
        records.append({"strategy": name, **_gain_record(gain), **_record(found)})
    headings = ("strategy", "B", "tok/s", "gain of delayed %", "per request")
    tokens = ("between tokens ms", "p99 ms", "busy")
    blocks: list[str | Grid] = [
        f"{origin['profile']['name']}: {', '.join(first.models)} at N = {first.N}, the same "
        "routing decisions under each strategy",
        Grid((*headings, *tokens), rows, ("strategy", "B", "busy")),
        _how(first, origin) + "\ngains: of paired runs, in their own intervals",
    ]
    blocks += [f"{n}: {_exact_in_words(simulations[n], solved)}" for n, solved in exact.items()]
    document = {
        "schema": "trmodel/strategies",
        "schema_version": 1,
        **origin,
        "rows": plain,
        "confidence": comparison.confidence,
        "seed": first.seed,
        "warnings": _warnings(simulations.values()),
    }
    return View(document, records, blocks, warnings=document["warnings"])


def systems_view(found: SystemComparison, origin: Mapping[str, Any]) -> View:
    """Show token-level routing beside request-level routing and single models."""
    comparison = found.comparison
    first = next(iter(comparison.simulations.values()))
    rows, plain, records = [], [], []
    for name, simulation in comparison.simulations.items():
        gain, large = comparison.gain_percent.get(name), found.large_token_percent[name]
        rows.append(
            (
                f"{name}, B = {shown_vector(found.B)}" if name == "delayed" else name,
                shown(simulation.throughput_tok_s, 1),
                f"{simulation.request_speed_tok_s:.1f}",
                shown(simulation.inter_token_ms.p99, 1),
                f"{large:.1f}",
                "" if gain is None else shown(gain, 1),
            )
        )
        plain.append(
            {"system": name, "large_token_percent": large, "gain_percent": _plain(gain)}
            | simulation.to_dict()
        )
        tokens = simulation.throughput_tok_s
        records.append(
            {
                "system": name,
                "throughput_tok_s": tokens.value,
                "throughput_low": tokens.low,
                "throughput_high": tokens.high,
                "request_speed_tok_s": simulation.request_speed_tok_s,
                "inter_token_ms_p99": simulation.inter_token_ms.p99.value,
                "large_token_percent": large,
                **_gain_record(gain),
            }
        )
    headings = ("system", "tok/s", "per request", "between tokens p99 ms", "tokens by large %")
    blocks: list[str | Grid] = [
        f"{origin['profile']['name']}: {found.small} (small) and {found.large} (large) at "
        f"N = {first.N}",
        Grid((*headings, "gain of delayed %"), rows, ("system",)),
        "\n".join([*found.notes, _how(first, origin)]),
    ]
    document = {
        "schema": "trmodel/comparison",
        "schema_version": 1,
        **origin,
        "N": first.N,
        "B": list(found.B),
        "small": found.small,
        "large": found.large,
        "rows": plain,
        "confidence": comparison.confidence,
        "seed": first.seed,
        "notes": list(found.notes),
        "warnings": _warnings(comparison.simulations.values()),
    }
    return View(document, records, blocks, warnings=document["warnings"])


def _warnings(simulations: Any) -> list[str]:
    return list(dict.fromkeys(w for found in simulations for w in found.warnings))


def _plain(found: Estimate | None) -> dict[str, float] | None:
    return None if found is None else {"value": found.value, "low": found.low, "high": found.high}


def _gain_record(gain: Estimate | None) -> dict[str, float | None]:
    parts = (None, None, None) if gain is None else (gain.value, gain.low, gain.high)
    names = ("gain_percent", "gain_percent_low", "gain_percent_high")
    return dict(zip(names, parts, strict=True))


def _record(found: Simulation) -> dict[str, Any]:
    """Return a simulation as one flat record."""
    speed = found.throughput_tok_s
    return {
        "N": found.N,
        **{f"B_{name}": b for name, b in zip(found.models, found.B, strict=True)},
        "throughput_tok_s": speed.value,
        "throughput_low": speed.low,
        "throughput_high": speed.high,
        "request_speed_tok_s": found.request_speed_tok_s,
        "replies_per_s": found.replies_per_s.value,
        "mean_live": found.mean_live,
        **{
            f"{kind}_{q}": getattr(getattr(found, kind), q).value
            for kind in DELAYS
            for q in QUANTILES
        },
        **{key: getattr(found.ledger, key) for key in LEDGER},
        **{
            f"{key}_{model.name}": getattr(model, key)
            for model in found.per_model
            for key in ("busy_fraction", "mean_batch", "step_share")
        },
        **{
            f"admission_delay_ms_{model.name}": model.admission_delay_ms.mean.value
            for model in found.per_model
        },
        "method": found.method,
        "confidence": found.confidence,
        "batches": found.batches,
        "seed": found.seed,
    }


def _headline(found: Simulation, origin: Mapping[str, Any], strategy: str) -> str:
    thresholds = f" B = {shown_vector(found.B)}" if strategy == "delayed" else ""
    live = "" if abs(found.mean_live - found.N) < 1e-6 else f"; {found.mean_live:.2f} live"
    replies = found.replies_per_s
    ended = f"; {shown(replies, 3)} replies/s" if replies.value > 0.0 else ""
    return (
        f"{origin['profile']['name']}: {', '.join(found.models)} at N = {found.N}, "
        f"{strategy}{thresholds}\n\n"
        f"{shown(found.throughput_tok_s, 1)} tok/s, {found.request_speed_tok_s:.1f} per request"
        f"{live}{ended}"
    )


def _delays(found: Simulation) -> Grid:
    rows = [
        (words, *_delay_cells(getattr(found, kind)))
        for kind, words in DELAYS.items()
        if getattr(found, kind).count
    ]
    return Grid(("ms", *QUANTILES), rows, ("ms",))


def _delay_cells(delays: Delays) -> Sequence[str]:
    return [shown(getattr(delays, q), 2) for q in QUANTILES]


def _models(found: Simulation) -> Grid:
    rows = [
        (
            model.name,
            f"{model.busy_fraction:.1%}",
            f"{model.mean_batch:.2f}",
            f"{model.step_share:.1%}",
            shown(model.admission_delay_ms.mean, 2),
            f"{model.admission_delay_ms.p99.value:.2f}",
        )
        for model in found.per_model
    ]
    headings = ("model", "busy", "mean batch", "share of steps", "admission delay ms", "its p99")
    return Grid(headings, rows, ("model",))


def _ledger(found: Simulation) -> Grid:
    def cells(ledger: CostLedger) -> list[str]:
        return [f"{part:.3f}" for part in (*(getattr(ledger, k) for k in LEDGER), ledger.total_ms)]

    rows = [(model.name, *cells(model.ledger)) for model in found.per_model]
    rows.append(("all", *cells(found.ledger)))
    headings = ("forward", "waiting for threshold", "waiting for batch", "handoff", "total")
    return Grid(("ms per token", *headings), rows, ("ms per token",))


def _how(found: Simulation, origin: Mapping[str, Any]) -> str:
    """Say how the figures were obtained."""
    grid = "" if found.grid_ms is None else f"latencies on a grid of {found.grid_ms:g} ms;\n"
    return (
        f"{found.method}: {found.batches:,} batches, {found.simulated_ms / 1000.0:,.0f} s of the "
        f"server in {found.sections} sections;\n"
        + context_in_words(origin["system"]["context_tokens"])
        + grid
        + f"±: intervals of {100.0 * found.confidence:g} %; seed {found.seed}"
    )


def _inside(T: float, speed: Estimate) -> bool:
    """Say so but for rounding: where nothing is random the interval is a point."""
    return speed.low * (1.0 - 1e-9) <= T <= speed.high * (1.0 + 1e-9)


def _exact(found: Simulation, exact: Prediction) -> dict[str, Any]:
    return {
        "throughput_tok_s": exact.throughput_tok_s,
        "states": exact.states,
        "residual": exact.residual,
        "grid_ms": exact.grid_ms,
        "grid_error_percent": exact.grid_error_percent,
        "within_interval": _inside(exact.throughput_tok_s, found.throughput_tok_s),
    }


def _exact_in_words(found: Simulation, exact: Prediction) -> str:
    speed = found.throughput_tok_s
    T = exact.throughput_tok_s
    where = "inside" if _inside(T, speed) else "outside"
    rounding = (
        ""
        if found.grid_ms is not None or exact.grid_error_percent < 1e-6
        else f"; its grid changes latencies by up to {exact.grid_error_percent:.2g} %"
    )
    return (
        f"exact: {T:.1f} tok/s, {exact.states:,} states; simulated "
        f"{100.0 * (speed.value / T - 1.0):+.2f} %, {where} the interval{rounding}"
    )
