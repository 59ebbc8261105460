"""``trmodel profile measure``: the latencies of a running executor, and of engines alone."""

from __future__ import annotations

from enum import StrEnum
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
from trmodel.cli.ranges import whole_numbers
from trmodel.errors import UsageError


class EngineName(StrEnum):
    """Engines of a server's file."""

    replay = "replay"
    sglang = "sglang"


def measure(
    url: UrlOption = None,
    config: ServerOption = None,
    engine: Annotated[
        EngineName | None,
        typer.Option(
            "--engine",
            help="Of --config, in place of the file's. With sglang engines are timed directly too.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
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
            help="Length of every setting; there are about three for each of 1, 2, 4, ... With "
            "sglang an entry of a table takes an eighth of it.",
            rich_help_panel=MEASURING,
        ),
    ] = 3.0,
    warm_up: WarmUpOption = 1.0,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            min=1,
            help="With sglang: how often all of it is measured, engines and executor in turns.",
            rich_help_panel=MEASURING,
        ),
    ] = 1,
    contexts: Annotated[
        str | None,
        typer.Option(
            "--contexts",
            metavar="RANGE",
            help="With sglang: contexts of decode steps, in tokens. Default: a few up to what the "
            "server has room for.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    new_tokens: Annotated[
        str | None,
        typer.Option(
            "--new-tokens",
            metavar="RANGE",
            help="With sglang: new tokens of extends. Default: 2, 4, 8 and 32.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
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
    """Measure the steps of a server's models, and its handoffs, into a profile."""
    from trmodel.cli.options import Format
    from trmodel.cli.output import View, output

    out = output(Format.json, False, file, quiet)
    out.keep(config, like)
    settings = server_settings(url, config, largest)
    if settings is None and engine is not None:
        raise UsageError("--engine: needs --config; a server behind a URL has its own")
    if settings is not None and engine is not None:
        settings = settings.model_copy(update={"engine": engine.value})
    direct = settings is not None and settings.engine == "sglang"
    if not direct and (contexts or new_tokens or rounds > 1):
        raise UsageError(
            "--contexts, --new-tokens, --rounds: only sglang engines are timed directly"
        )
    if direct and like:
        raise UsageError("--like: with sglang machine, memory and routing are those of --config")
    if settings is None and like is None:
        raise UsageError("--like: is needed with --url: a profile with the server's models")
    with progress_bar(quiet, "settings") as progress:
        if settings is not None and direct:
            from trmodel.runtime.bench.engine_profile import measure_engines

            made = measure_engines(
                settings,
                largest,
                contexts=whole_numbers(contexts, "--contexts") if contexts else None,
                new_tokens=whole_numbers(new_tokens, "--new-tokens") if new_tokens else None,
                seconds=seconds,
                warm_up=warm_up,
                rounds=rounds,
                name=name,
                progress=progress,
            )
        else:
            from trmodel.profile import load_profile
            from trmodel.profile.build import choose_routing
            from trmodel.runtime.bench.running import running
            from trmodel.runtime.bench.steps import measure_steps
            from trmodel.runtime.plan import base_profile

            base = base_profile(settings) if settings and not like else load_profile(like or "")
            routing = None if settings is None else choose_routing(base, settings.routing)
            with running(settings, url, admin_key) as target:
                found = measure_steps(
                    target, largest, seconds=seconds, warm_up=warm_up, progress=progress
                )
            source = f"server at {url}" if settings is None else f"replay engine, {base.origin}"
            made = found.profile(base.profile, name, source, routing)
    out.emit(View(made.model_dump(mode="json", by_alias=True)))
    return 0
