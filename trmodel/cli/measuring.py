"""``trmodel profile measure``: the step and handoff latencies of a running executor."""

from __future__ import annotations

from typing import Annotated

import typer

from trmodel.cli import options
from trmodel.cli.bench import (
    MEASURING,
    AdminKeyOption,
    ServerOption,
    UrlOption,
    WarmUpOption,
    server_settings,
)
from trmodel.cli.progress import progress_bar
from trmodel.errors import UsageError


def measure(
    url: UrlOption = None,
    config: ServerOption = None,
    largest: Annotated[
        int,
        typer.Option(
            "--largest",
            metavar="SIZE",
            min=1,
            help="Largest batch to measure; with --url at most the server's max_live.",
            rich_help_panel=MEASURING,
        ),
    ] = 16,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            min=0.1,
            help="Length of every setting; there are about three for each of 1, 2, 4, ...",
            rich_help_panel=MEASURING,
        ),
    ] = 3.0,
    warm_up: WarmUpOption = 1.0,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            metavar="NAME|FILE",
            help="Profile from which machine, memory and routing are taken. Default: that of "
            "--config.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option("--name", help="What to call the profile.", rich_help_panel=MEASURING),
    ] = "measured",
    admin_key: AdminKeyOption = None,
    file: options.FileOption = None,
    quiet: options.QuietOption = False,
) -> int:
    """Measure the steps of a running executor by batch size, and its handoffs, into a profile."""
    from trmodel.cli.options import Format
    from trmodel.cli.output import View, output

    out = output(Format.json, False, file, quiet)
    out.keep(config, like)
    settings = server_settings(url, config, largest)
    if settings is None and like is None:
        raise UsageError("--like: is needed with --url: a profile with the server's models")
    from trmodel.profile import load_profile
    from trmodel.profile.build import choose_routing
    from trmodel.runtime.bench.running import running
    from trmodel.runtime.bench.steps import measure_steps

    base = load_profile(like or settings.profile)  # type: ignore[union-attr]
    routing = None if settings is None else choose_routing(base, settings.routing)
    source = f"server at {url}" if settings is None else f"{settings.engine} engine, {base.origin}"
    with running(settings, url, admin_key) as target, progress_bar(quiet, "settings") as progress:
        found = measure_steps(target, largest, seconds=seconds, warm_up=warm_up, progress=progress)
    made = found.profile(base.profile, name, source, routing)
    out.emit(View(made.model_dump(mode="json", by_alias=True)))
    return 0
