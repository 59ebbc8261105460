"""``trmodel subserver``: one model of a server, on another machine than its front end."""

from __future__ import annotations

from typing import Annotated

import typer

from trmodel.cli.serving import read_config
from trmodel.cli.streams import say


def subserver(
    config: Annotated[
        str,
        typer.Option("--config", metavar="FILE", help="The server's settings, the same file."),
    ],
    model: Annotated[
        str,
        typer.Option("--model", metavar="NAME", help="One of those under transport.remote."),
    ],
) -> int:
    """Run one model for a front end that 'trmodel serve' runs elsewhere.

    It may be started before the front end or after, and goes on when the front end is started
    anew. SIGTERM or Ctrl-C ends it after the running step, or after three seconds.
    """
    settings = read_config(config)
    from trmodel.runtime.log import log_to_stderr
    from trmodel.runtime.plan import make_remote_spec
    from trmodel.runtime.subserver import run_remote

    log_to_stderr()
    spec = make_remote_spec(settings, model)
    say(f"{model} at {spec.addresses[spec.model]}")
    run_remote(spec)
    return 0
