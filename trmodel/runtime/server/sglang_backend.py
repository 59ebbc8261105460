"""SGLang's own command starts this server: ``sglang serve --model-type trmodel --config FILE``.

SGLang finds `backend` by the entry point ``trmodel`` of the group ``sglang.serve_backends``. What
follows ``--model-type trmodel`` is the command line of ``trmodel serve``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.cli.serve_backends import ServeBackend, ServeRequest

API_VERSION = 1
"""Of SGLang's interface, that this is written for; SGLang refuses another in one line."""


def backend() -> ServeBackend:
    """Return what SGLang needs to know: how to run, and that models are named in a file."""
    from sglang.cli.serve_backends import ServeBackend

    return ServeBackend(API_VERSION, run, requires_model_path=False)


def run(request: ServeRequest) -> None:
    """Serve until told to end, or show the help.

    Raises
    ------
    SystemExit
        With the exit code of ``trmodel serve``, if it is not 0.
    """
    from trmodel.cli.main import main
    from trmodel.cli.streams import complain
    from trmodel.errors import UsageError

    if request.model_path is not None:
        complain(
            f"{request.model_path}: is a model's path; the server's models are named in its "
            "settings, --config FILE"
        )
        sys.exit(UsageError.exit_code)
    if code := main(["serve", *request.argv]):
        sys.exit(code)
