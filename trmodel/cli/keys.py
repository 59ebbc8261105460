"""``trmodel keys``: who may take part in a server over TCP."""

from __future__ import annotations

from typing import Annotated

import typer

from trmodel.cli.serving import require_extra
from trmodel.cli.streams import say


def keys(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file.")],
) -> int:
    """Make a key pair for the processes of one server on several machines.

    Only its owner may read the file. Copy it to each machine, and name it in the server's
    settings under transport.keys.
    """
    require_extra()
    from trmodel.runtime.keys import make_keys

    make_keys(file)
    say(f"wrote {file}")
    return 0
