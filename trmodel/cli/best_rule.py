"""``trmodel best-rule``: the best possible launch rule, a bound on what thresholds can do."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trmodel.cli import options
from trmodel.cli.output import (
    DOCUMENT_FORMATS,
    Grid,
    View,
    context_in_words,
    grid_in_words,
    output,
)
from trmodel.cli.progress import progress_bar
from trmodel.cli.ranges import context_of, vector, whole_number
from trmodel.launch import shown_vector

if TYPE_CHECKING:
    from trmodel.markov import BestRule
    from trmodel.markov.best_rule import LaunchPoint

MAX_POINTS = 8
"""Situations to show of each model; the document has all."""


class ActionsName(StrEnum):
    """The names of `trmodel.markov.decisions.Actions`, not imported because that takes long."""

    all = "all"
    part = "part"


def best_rule(
    N: Annotated[str, typer.Option("--N", metavar="N", help="Concurrent requests.")],
    B: Annotated[
        str | None,
        typer.Option(
            "--B",
            metavar="B0,B1,...",
            help="The thresholds to compare with. Default: those that tune chooses.",
        ),
    ] = None,
    profile: options.ProfileOption = "a100",
    routing: options.RoutingOption = None,
    p: options.POption = None,
    context: options.ContextOption = None,
    max_batch: options.MaxBatchOption = None,
    grid_ms: options.GridOption = None,
    actions: Annotated[
        ActionsName,
        typer.Option(
            "--actions",
            help="What an idle model may do: hold or launch all that wait, or also a part of them.",
            rich_help_panel=options.SYSTEM,
        ),
    ] = ActionsName.all,
    format: options.FormatOption = None,
    json: options.JsonOption = False,
    file: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the launch rule, a table of all its states, to FILE (JSON).",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    quiet: options.QuietOption = False,
) -> int:
    """Find the best launch rule there can be, and how far thresholds are from it.

    The rule sees the whole state whenever a batch completes. stdout gets what it is worth, -o the
    rule.
    """
    out, written = output(format, json, None, quiet), output(None, True, file, quiet)
    out.require(DOCUMENT_FORMATS, "holds thresholds, not a launch rule")
    concurrency = whole_number(N, "--N")
    thresholds = None if B is None else vector(B, "--B")
    tokens = context_of(context)
    written.keep(profile, routing)
    from trmodel import api
    from trmodel.profile import build_system, load_profile

    loaded = load_profile(profile)
    out.note(f"profile: {loaded.origin}")
    given: dict[str, Any] = {
        "routing": routing,
        "p": p,
        "context": tokens,
        "max_batch": max_batch,
        "grid_ms": grid_ms,
    }
    with progress_bar(quiet) as progress:
        rule = api.best_rule(
            loaded, N=concurrency, B=thresholds, actions=actions.value, progress=progress, **given
        )
    system = build_system(loaded, concurrency, **given)
    about = api.origin_of(loaded, system, tokens) | rule.to_dict()
    out.emit(_view(rule, about))
    if file is not None:
        written.emit_text(rule.table.to_json(about))
    return 0


def _view(rule: BestRule, about: dict[str, Any]) -> View:
    document = {"schema": "trmodel/best-rule", "schema_version": 1, **about}
    plain = ("models", "B", "launch_points", "trmodel_version", "profile", "system")
    record = {key: value for key, value in about.items() if key not in plain}
    for name, b in zip(about["models"], about["B"], strict=True):
        record[f"B_{name}"] = b
    blocks: list[str | Grid] = [_headline(about), _points(rule), _how(rule, about)]
    return View(document, [record], blocks, warnings=rule.system.warnings)


def _headline(about: dict[str, Any]) -> str:
    what = {"all": "all that wait or none", "part": "any part of what waits"}[about["actions"]]
    return (
        f"{about['profile']['name']}: the best launch rule of {', '.join(about['models'])} at "
        f"N = {about['N']}\n\n"
        f"{about['bound_tok_s']:.1f} tok/s: no rule that launches {what} gives more\n"
        f"{about['throughput_tok_s']:.1f} tok/s with thresholds B = {shown_vector(about['B'])}; "
        f"the best rule gains {abs(about['gap_percent']):.2f} %\n"
        f"{about['differing_percent']:.1f} % of the time follows decisions in which the two differ"
    )


def _points(rule: BestRule) -> Grid:
    """Show from how many requests on each model launches, by what else runs."""
    rows: list[tuple[str, ...]] = []
    for i, name in enumerate(rule.system.models):
        points = [point for point in rule.launch_points() if point.model == i]
        rows += [_row(name, i, point) for point in points[:MAX_POINTS]]
    headings = ("idle model", "others run", "launches from", "if ms remain", "of decisions %")
    return Grid(headings, rows, ("idle model", "others run"))


def _row(name: str, i: int, point: LaunchPoint) -> tuple[str, ...]:
    others = [b for j, b in enumerate(point.running) if j != i]
    return (
        name,
        shown_vector(others) if any(others) else "nothing",
        "holds" if point.smallest is None else str(point.smallest),
        "" if point.remaining_ms is None else f"{point.remaining_ms:.1f}",
        f"{point.decisions_percent:.1f}",
    )


def _how(rule: BestRule, about: dict[str, Any]) -> str:
    width = 100.0 * (rule.bound_tok_s - rule.lower_tok_s) / rule.bound_tok_s
    return (
        f"exact: {about['decision_states']:,} decision states, of which the rule visits "
        f"{about['visited_states']:,}; bound proved to {max(width, 0.0):.0e} %;\n"
        + context_in_words(about["system"]["context_tokens"])
        + grid_in_words(about["system"]["grid_ms"], about["system"]["grid_error_percent"])
    )
