"""Calibration results as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trmodel.launch import shown_vector

if TYPE_CHECKING:
    from trmodel.calibrate.result import Fit
    from trmodel.calibrate.uncertainty import Uncertainty


def fit_text(fit: Fit) -> str:
    """Say what a fit found: parameters, errors, picks."""
    document = fit.measurements.document
    lines = [f"{fit.profile.profile.name} fitted to {document.name} ({document.source})", ""]
    rows = [["parameter", "estimate", "95 % interval", "", "remark"]]
    for e in fit.estimates:
        interval = "-" if e.interval is None else f"{e.interval[0]:.2f} to {e.interval[1]:.2f}"
        value = f"{e.value:.2f} {e.parameter.unit}".rstrip()
        rows.append([e.parameter.name, value, interval, e.status, e.remark])
    lines += [*table(rows), ""]
    rows = [["N", "B", "GPUs", "measured", "fitted", "error %", "left out %"]]
    for p in fit.points:
        left_out = p.left_out_error_percent
        rows.append(
            [
                str(p.N),
                shown_vector(p.B),
                p.placement,
                f"{p.measured_tok_s:.1f}",
                f"{p.fitted_tok_s:.1f}",
                f"{p.error_percent:+.1f}",
                "-" if left_out is None else f"{left_out:+.1f}",
            ]
        )
    lines += [*table(rows), ""]
    left_out = fit.left_out_mean_error_percent
    lines.append(
        f"mean absolute error {fit.mean_error_percent:.1f} %, "
        f"largest {fit.max_error_percent:.1f} %"
        + ("" if left_out is None else f"; left out, mean {left_out:.1f} %")
    )
    if fit.spread.sigma is not None:
        noise = document.noise_percent
        stated = "" if noise is None else f"; stated noise of the measurements {noise:g} %"
        lines.append(f"residual standard deviation {100 * fit.spread.sigma:.1f} %{stated}")
    for pick in fit.picks:
        at = f"N = {pick.N} ({pick.placement}): the model picks B = {shown_vector(pick.picked)}"
        if pick.differs:
            lines.append(
                f"{at}, the measured optimum is {shown_vector(pick.best)}: "
                f"{pick.regret_percent:.1f} % of measured throughput lost"
            )
        else:
            lines.append(f"{at}, the measured optimum")
    lines.append(f"{fit.agreeing} of {fit.starts} starts ended at an optimum as good as this one")
    lines += [f"warning: {warning}" for warning in fit.warnings]
    return "\n".join(lines)


def uncertainty_text(result: Uncertainty) -> str:
    """Say how uncertain throughput and the best thresholds are."""
    lines = [
        f"N = {result.N}, {result.samples} samples: {result.spreads}",
        f"candidates: {result.rule}; eager launching for comparison",
        "",
    ]
    rows = [["B", "best", "regret %", "mean tok/s", "5 % to 95 %", "gain over eager %"]]
    rows += [
        [
            shown_vector(c.B),
            f"{c.probability_best:.0%}",
            f"{c.regret_percent:.2f}",
            f"{c.mean_tok_s:.1f}",
            f"{c.low_tok_s:.1f} to {c.high_tok_s:.1f}",
            f"{c.gain_low_percent:+.1f} to {c.gain_high_percent:+.1f}",
        ]
        for c in result.candidates
    ]
    lines += [*table(rows), ""]
    if result.stopped:
        lines.append(result.stopped)
    safest = min(result.candidates, key=lambda c: c.regret_percent)
    first = result.candidates[0]
    lines.append(
        f"B = {shown_vector(first.B)} is the best with probability {first.probability_best:.0%}; "
        f"B = {shown_vector(safest.B)} loses least on average, {safest.regret_percent:.2f} %"
    )
    return "\n".join(lines)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows of cells in columns, the first row being their heads."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
