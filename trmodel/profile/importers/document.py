"""From what an importer gathered to a profile, and to the text of its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from trmodel.documents import json_text, parse_document
from trmodel.profile.schema import PROFILE_SCHEMA, PROFILE_VERSION, Profile
from trmodel.profile.smooth import smoothed
from trmodel.profile.tables import DecodeTable, ExtendTable

DECIMALS = 3
"""Of milliseconds, in values that were smoothed: no step is timed to less than a microsecond."""

AnyTable = TypeVar("AnyTable", DecodeTable, ExtendTable)


def finished(fields: Mapping[str, Any], where: str = "imported profile") -> Profile:
    """Validate the fields of a profile, its header and empty fields aside, and smooth its tables.

    Parameters
    ----------
    fields
        As in the file; a field that is None is left out.
    where
        Begins the lines about what is wrong.

    Raises
    ------
    InputError
        With every problem of the fields.
    """
    header = {"schema": PROFILE_SCHEMA, "schema_version": PROFILE_VERSION}
    given = {name: value for name, value in fields.items() if value is not None}
    profile = parse_document(Profile, header | given, where)
    models = []
    for model in profile.models:
        tables: dict[str, Any] = {"decode": _smoothed(model.decode, model.name)}
        if model.extend is not None:
            tables["extend"] = _smoothed(model.extend, model.name)
        models.append(model.model_copy(update=tables))
    return profile.model_copy(update={"models": tuple(models)})


def profile_text(profile: Profile) -> str:
    """Return the JSON of a profile as it is kept in a file, a table's row on one line."""
    return json_text(profile.model_dump(mode="json", by_alias=True, exclude_unset=True)) + "\n"


def _smoothed(table: AnyTable, model: str) -> AnyTable:
    result = smoothed(table, model)
    if result is table:
        return table
    rows: Any = [[round(value, DECIMALS) for value in row] for row in result.rows]
    if not isinstance(result.latency_ms[0], tuple):
        (rows,) = rows
    return type(table).model_validate(result.model_dump(exclude_unset=True) | {"latency_ms": rows})
