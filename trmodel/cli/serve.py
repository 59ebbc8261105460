"""``trmodel serve``: serve with token-level routing behind an OpenAI-compatible interface."""

from __future__ import annotations

from typing import Annotated

import typer

from trmodel.cli.serving import ConfigOption, read_config
from trmodel.cli.streams import say


def serve(
    config: ConfigOption = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="NAME|FILE", help="Step latencies, in place of the file's."
        ),
    ] = None,
    thresholds: Annotated[
        str | None,
        typer.Option(
            "--thresholds",
            metavar="FILE",
            help="Written by 'trmodel tune -o', in place of the file's; 'tune' to tune at the "
            "start, 'eager' for none.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Take thresholds tuned for another profile or other models as well."
        ),
    ] = False,
    host: Annotated[
        str | None, typer.Option("--host", help="Where to listen, in place of the file's.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="In place of the file's; 0 for a free one."),
    ] = None,
) -> int:
    """Serve token-level routing over HTTP, as OpenAI does.

    Says on stderr where, once every model serves. SIGTERM or Ctrl-C lets the replies under way
    end; a second one does not.
    """
    settings = read_config(config)
    given = {
        "profile": profile,
        "thresholds": thresholds,
        "force_thresholds": force or None,
    }
    http = {"host": host, "port": port}
    from trmodel.runtime.log import log_to_stderr
    from trmodel.runtime.server.serve import serve as run

    settings = settings.model_copy(
        update={
            **{name: value for name, value in given.items() if value is not None},
            "http": settings.http.model_copy(
                update={name: value for name, value in http.items() if value is not None}
            ),
        }
    )
    log_to_stderr()
    run(settings, lambda url: say(f"serving at {url}"))
    return 0
