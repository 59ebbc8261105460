"""What the commands that serve have in common."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from trmodel.errors import UsageError

if TYPE_CHECKING:
    from trmodel.runtime.config import ServerConfig

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The server's settings, in YAML or JSON. Default: those documented, for the "
        "profile a100.",
    ),
]
_NEEDED = ("msgspec", "zmq", "starlette", "uvicorn", "prometheus_client", "yaml")


def require_extra() -> None:
    """Refuse to serve without what only serving needs.

    Raises
    ------
    UsageError
        Saying how to install it.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"serving needs {', '.join(missing)}, not installed; pip install 'trmodel[serve]'"
        )


def read_config(path: str | None) -> ServerConfig:
    """Read the settings, or take the default ones.

    Policies of one's own are from then on found in the working directory too, as subservers do.
    """
    require_extra()
    if "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    from trmodel.runtime.config import ServerConfig, load_config

    return ServerConfig() if path is None else load_config(path)
