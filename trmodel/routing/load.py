"""Load a routing from a file or by the name of a preset."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from trmodel.documents import (
    AnyDocument,
    StrPath,
    document_names,
    find_document,
    load_document,
    shown,
)
from trmodel.errors import InputError
from trmodel.routing.schema import ROUTING_SCHEMA, ROUTING_VERSION, Preset, Routing

PRESETS = Path(__file__).parent / "presets"


def routing_names() -> list[str]:
    """Return the names of the presets, sorted."""
    return document_names(PRESETS)


def load_routing(name_or_path: StrPath) -> Routing:
    """Load a routing from a JSON file, or a preset by its name (with or without ``.json``).

    A file that exists wins over a preset of the same name.

    Raises
    ------
    InputError
        If there is no such file or preset, or with every problem of the file.
    """
    path, _ = find_document(name_or_path, PRESETS, "routing")
    return load_preset(path.stem) if path.parent == PRESETS else _read(path, Routing)


@cache
def load_preset(name: str) -> Preset:
    """Load a preset by its exact name, whatever files lie around.

    Raises
    ------
    InputError
        If there is no preset of that name.
    """
    if name not in routing_names():
        raise InputError(
            f"{shown(name)}: no such routing preset; there are {', '.join(routing_names())}"
        )
    return _read(PRESETS / f"{name}.json", Preset)


def _read(path: Path, cls: type[AnyDocument]) -> AnyDocument:
    return load_document(cls, path, ROUTING_SCHEMA, ROUTING_VERSION)[0]
