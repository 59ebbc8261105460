"""Check parsed JSON against a schema and say in words what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trmodel.documents.read import read_json
from trmodel.documents.words import StrPath, scalar, shown
from trmodel.errors import InputError

MAX_PROBLEMS = 100
"""More lines than this help nobody; the rest are counted."""

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A short text on one line: names are printed inside one-line messages."""
Text = Annotated[str, Field(min_length=1, max_length=10_000)]
WholeNumber = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class Document(BaseModel):
    """Base of the parts of a document: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


AnyDocument = TypeVar("AnyDocument", bound=Document)


def load_document(
    cls: type[AnyDocument], path: StrPath, schema: str, version: int
) -> tuple[AnyDocument, str]:
    """Read a document of one kind; return it and the SHA-256 of its bytes, in hexadecimal.

    Raises
    ------
    InputError
        If it cannot be read or is of another kind or a newer version, or with every problem of it.
    """
    data, sha256 = read_json(path)
    where = shown(path)
    check_header(data, schema, version, where)
    return parse_document(cls, data, where), sha256


def check_header(data: Mapping[str, Any], schema: str, version: int, where: str) -> None:
    """Check that a document is of the kind and version that this release reads.

    To be called before anything else is validated, so that a newer file is reported as newer and
    not as one with unknown fields.

    Raises
    ------
    InputError
    """
    found = data.get("schema")
    if found != schema:
        was = f"is {scalar(found)}" if "schema" in data else "is missing"
        raise InputError(f'{where}: schema: {was}; a file of this kind has "schema": "{schema}"')
    given = data.get("schema_version")
    if isinstance(given, int) and given > version:
        raise InputError(
            f"{where}: schema_version: {scalar(given)} is newer than {version}, the newest that "
            "this trmodel reads; install a newer trmodel"
        )
    if type(given) is not int or given < 1:
        was = f"is {scalar(given)}" if "schema_version" in data else "is missing"
        raise InputError(f"{where}: schema_version: {was}; this trmodel reads {version}")


def parse_document(cls: type[AnyDocument], data: Mapping[str, Any], where: str) -> AnyDocument:
    """Validate parsed JSON as a document, every problem reported at once.

    Raises
    ------
    InputError
        One line for each problem, beginning with ``where``.
    """
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        raise InputError(validation_problems(error, where)) from None


def validation_problems(error: ValidationError, where: str) -> list[str]:
    """Put a pydantic error in words, one line a problem: ``where: models[0].name: ...``.

    A validator that finds several problems raises an InputError of them. One that starts with
    "." or "[" continues the path of the validated field. A tag of a union is written ``<tag>`` in
    the schema, so that it can be left out of the path.
    """
    lines = []
    for entry in error.errors(include_url=False):
        if entry["type"] == "too_short" and entry["input"]:
            continue  # pydantic counts the valid items of a tuple; the others have their own line
        path = ""
        for part in entry["loc"]:
            if isinstance(part, int):
                path += f"[{part}]"
            elif not (part.startswith("<") and part.endswith(">")):
                path += f".{part}"
        cause = entry.get("ctx", {}).get("error")
        problems = cause.problems if isinstance(cause, InputError) else [_in_words(entry)]
        for problem in problems:
            continues = problem.startswith((".", "["))
            line = f"{path}{problem}" if continues or not path else f"{path}: {problem}"
            lines.append(f"{where}: {shown(line.removeprefix('.'))}")
    if len(lines) > MAX_PROBLEMS:
        lines[MAX_PROBLEMS:] = [f"{where}: and {len(lines) - MAX_PROBLEMS} more problems"]
    return lines


def _in_words(entry: Mapping[str, Any]) -> str:
    """Word one pydantic error; ``entry`` is an item of ``ValidationError.errors()``."""
    context, got = entry.get("ctx", {}), f", got {scalar(entry['input'])}"
    match entry["type"]:
        case "missing":
            return "is missing; it is required"
        case "extra_forbidden":
            return "unknown field; check the spelling or remove it"
        case "value_error":
            return str(context["error"])
        case "tuple_type" | "list_type":
            return f"must be a list{got}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"must be an object{got}"
        case "int_type" | "int_from_float" | "int_parsing":
            return f"must be a whole number{got}"
        case "float_type":
            return f"must be a number{got}"
        case "string_type":
            return f"must be a text{got}"
        case "string_pattern_mismatch":
            return f"must be on one line, without control characters{got}"
        case "string_too_short" | "too_short":
            return "must not be empty"
        case "string_too_long" | "too_long":
            return f"must be no longer than {context['max_length']}"
        case "greater_than":
            return f"must be above {context['gt']:g}{got}"
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}{got}"
        case "less_than_equal":
            return f"must be at most {context['le']:g}{got}"
        case _:
            return str(entry["msg"]).replace("Input should be", "must be") + got
