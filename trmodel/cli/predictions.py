"""How predictions, sweeps of them and symbolic throughputs are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trmodel.cli.output import Grid, View, context_in_words, grid_in_words
from trmodel.launch import shown_vector
from trmodel.markov import Prediction

if TYPE_CHECKING:
    from trmodel.calibrate import GridCheck
    from trmodel.cli.symbolic import Symbolic
    from trmodel.simulate import Estimate

LEDGER = ("forward_ms", "threshold_wait_ms", "batch_wait_ms")
FIGURES = ("throughput_tok_s", "request_speed_tok_s", "no_waiting_tok_s", "no_waiting_percent")
SOLUTION = ("states", "method", "solver", "residual")
SHIFT_CONFIDENCE = 0.95
"""Of the interval of the shift that handoff latency makes."""
PER_MODEL = ("busy_fraction", "mean_batch", "step_share", "admission_delay_ms")


def prediction_view(
    prediction: Prediction,
    origin: Mapping[str, Any],
    symbolic: Symbolic | None,
    check: GridCheck | None,
    shift: Estimate | None = None,
) -> View:
    """Show one prediction, with its throughput as a function and on finer grids if asked for."""
    head = {"schema": "trmodel/prediction", "schema_version": 1, **origin}
    document = head | prediction.to_dict() | _shift(shift)
    record = _record(prediction) | _shift_record([shift], shift)
    blocks = [*_headline(prediction, origin), _models(prediction), _ledger(prediction)]
    if prediction.replies_per_s is not None:
        blocks.append(_replies(prediction.replies_per_s))
    blocks.append(_how([prediction], origin))
    if shift is not None:
        T = prediction.throughput_tok_s * (1.0 + shift.value / 100.0)
        blocks.append(
            f"handoff latency: shifts throughput by {_shift_in_words(shift)} to {T:.1f} tok/s "
            f"(paired simulation, {100 * SHIFT_CONFIDENCE:g} % interval)"
        )
    if symbolic is not None:
        document["symbolic"] = symbolic.to_dict()
        record["symbolic"] = str(symbolic.to_dict()["expression"])
        blocks.append("\n".join(symbolic.lines(prediction.throughput_tok_s)))
    if check is not None:
        document["grid_check"] = check.to_dict()
        record["grid_error_tok_s_percent"] = check.error_percent
        stopped = f"\nno finer grid: {check.stopped}" if check.stopped and check.steps[1:] else ""
        blocks.append(check.summary() + stopped)
    return View(document, [record], blocks, warnings=prediction.warnings)


def prediction_sweep_view(
    values: Sequence[float],
    predictions: Sequence[Prediction],
    origin: Mapping[str, Any],
    shifts: Sequence[Estimate | None],
) -> View:
    """Show the predictions of one threshold vector at several p."""
    first = predictions[0]
    system = dict(origin["system"])
    del system["transition_probability"]
    warnings = list(dict.fromkeys(w for found in predictions for w in found.warnings))
    document = {
        "schema": "trmodel/prediction-sweep",
        "schema_version": 1,
        **origin,
        "system": system,
        "models": list(first.models),
        "N": first.N,
        "B": list(first.B),
        "rows": [
            {"p": p} | found.to_dict() | _shift(shift)
            for p, found, shift in zip(values, predictions, shifts, strict=True)
        ],
        "warnings": warnings,
    }
    rows = [
        (
            f"{p:g}",
            f"{found.throughput_tok_s:.1f}",
            f"{found.request_speed_tok_s:.1f}",
            f"{found.no_waiting_percent:.1f}",
            *(f"{part:.2f}" for part in _parts(found.ledger)),
            " ".join(f"{model.busy_fraction:.0%}" for model in found.per_model),
            *([_shift_in_words(shift)] if any(shifts) else []),
        )
        for p, found, shift in zip(values, predictions, shifts, strict=True)
    ]
    headings = ("p", "tok/s", "per request", "% of bound")
    blocks: list[str | Grid] = [
        _title(first, origin),
        Grid(
            (
                *headings,
                *("forward", "for B", "for batch", "total", "busy"),
                *(["handoff shift"] if any(shifts) else []),
            ),
            rows,
            ("busy",),
        ),
        "forward, waiting for the threshold B or for a running batch: ms per token",
        _how(predictions, origin),
    ]
    records = [
        {"p": p} | _record(found) | _shift_record(shifts, shift)
        for p, found, shift in zip(values, predictions, shifts, strict=True)
    ]
    return View(document, records, blocks, warnings=warnings)


def _record(found: Prediction) -> dict[str, Any]:
    """Return the prediction as one flat record; what a model lacks (never reached) is empty."""
    models = {model.name: model for model in found.per_model}
    return {
        "N": found.N,
        **{f"B_{name}": b for name, b in zip(found.models, found.B, strict=True)},
        **{key: getattr(found, key) for key in FIGURES},
        **({} if found.replies_per_s is None else {"replies_per_s": found.replies_per_s}),
        **{key: getattr(found.ledger, key) for key in LEDGER},
        **{
            f"{key}_{name}": getattr(models.get(name), key, None)
            for name in found.models
            for key in PER_MODEL
        },
        **{key: getattr(found, key) for key in SOLUTION},
    }


def _shift(shift: Estimate | None) -> dict[str, Any]:
    """Return what handoff latency does, for JSON; null where the system has none."""
    plain = None if shift is None else {"value": shift.value, "low": shift.low, "high": shift.high}
    return {"handoff_shift_percent": plain}


def _shift_record(shifts: Sequence[Estimate | None], shift: Estimate | None) -> dict[str, Any]:
    """Return the same for CSV; no columns where none of the rows has any."""
    if not any(shifts):
        return {}
    parts = (None, None, None) if shift is None else (shift.value, shift.low, shift.high)
    names = ("", "_low", "_high")
    return {f"handoff_shift_percent{n}": v for n, v in zip(names, parts, strict=True)}


def _shift_in_words(shift: Estimate | None) -> str:
    return "" if shift is None else f"{shift.value:+.2f} ± {shift.half_width:.2f} %"


def _title(found: Prediction, origin: Mapping[str, Any]) -> str:
    return (
        f"{origin['profile']['name']}: {', '.join(found.models)} at N = {found.N}, "
        f"B = {shown_vector(found.B)}"
    )


def _headline(found: Prediction, origin: Mapping[str, Any]) -> list[str | Grid]:
    return [
        f"{_title(found, origin)}\n\n"
        f"{found.throughput_tok_s:.1f} tok/s, {found.request_speed_tok_s:.1f} per request; "
        f"{found.no_waiting_percent:.1f} % of the {found.no_waiting_tok_s:.1f} tok/s "
        "without waiting"
    ]


def _replies(per_s: float) -> str:
    return f"{per_s:.3g} replies completed per second"


def _models(found: Prediction) -> Grid:
    rows = [
        (
            model.name,
            str(model.threshold),
            f"{model.busy_fraction:.1%}",
            f"{model.mean_batch:.2f}",
            f"{model.step_share:.1%}",
            f"{model.admission_delay_ms:.2f}",
        )
        for model in found.per_model
    ]
    return Grid(
        ("model", "B", "busy", "mean batch", "share of steps", "admission delay ms"),
        rows,
        ("model",),
    )


def _ledger(found: Prediction) -> Grid:
    parts = [(model.name, model.ledger) for model in found.per_model]
    rows = [
        (name, *(f"{part:.3f}" for part in _parts(ledger)))
        for name, ledger in [*parts, ("all = N/T", found.ledger)]
    ]
    return Grid(
        ("ms per token", "forward", "waiting for threshold", "waiting for batch", "total"),
        rows,
        ("ms per token",),
    )


def _parts(ledger: Any) -> list[float]:
    return [*(getattr(ledger, part) for part in LEDGER), ledger.total_ms]


def _how(predictions: Sequence[Prediction], origin: Mapping[str, Any]) -> str:
    """Say how the figures were obtained and how far to trust the arithmetic."""
    first = predictions[0]
    solvers = ", ".join(dict.fromkeys(found.solver for found in predictions))
    return (
        f"{first.method}: {max(found.states for found in predictions):,} states, "
        f"{max(found.transitions for found in predictions):,} transitions, solver {solvers}, "
        f"residual {max(found.residual for found in predictions):.0e};\n"
        + context_in_words(origin["system"]["context_tokens"])
        + grid_in_words(first.grid_ms, first.grid_error_percent)
    )
