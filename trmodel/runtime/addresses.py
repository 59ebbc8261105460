"""Where the processes of a server find each other."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trmodel.errors import InputError
from trmodel.runtime.config import ServerConfig


def make_folder(config: ServerConfig, names: Sequence[str]) -> Path | None:
    """Make a folder for the sockets of this machine, if some address is left to be chosen.

    Raises
    ------
    InputError
        If a model is not known, or an address is left open that another machine must know.
    """
    transport = config.transport
    if unknown := sorted({*transport.models, *transport.remote} - set(names)):
        raise InputError(f"transport: no model is called {', '.join(unknown)}")
    left = [name for name in names if name not in transport.models]
    left += ["front"] if transport.front is None else []
    if left and transport.remote:
        raise InputError(
            "transport: a subserver on another machine must know where everybody is; give the "
            f"address of {', '.join(left)}"
        )
    if not left:
        return None
    folder = Path(tempfile.mkdtemp(prefix="trmodel-"))
    # The front end removes it when it stops; this is for servers that never start.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def addresses_of(
    config: ServerConfig, names: Sequence[str], folder: Path | None
) -> tuple[str, tuple[str, ...]]:
    """Return the address of the front end and those of the models.

    Raises
    ------
    InputError
        If one is none, lacks keys, or is given twice.
    """
    transport = config.transport
    addresses = tuple(
        transport.models.get(name, f"ipc://{folder}/{i}") for i, name in enumerate(names)
    )
    front = transport.front or f"ipc://{folder}/front"
    for address in (front, *addresses):
        if not address.startswith(("ipc://", "tcp://")):
            raise InputError(f"transport: {address} must begin with ipc:// or tcp://")
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        if address.startswith("tcp://") and not _is_port(port):
            raise InputError(f"transport: {address} must end in a port, from 1 to 65535")
        loopback = host in ("127.0.0.1", "localhost", "[::1]")
        if address.startswith("tcp://") and not loopback and transport.keys is None:
            raise InputError(
                f"transport: {address} is not on this machine, which needs keys; make some with "
                "'trmodel keys' and name the file under keys"
            )
    if len({front, *addresses}) <= len(addresses):
        raise InputError("transport: two addresses are the same; every process needs its own")
    return front, addresses


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 1 <= int(text) <= 65535
