"""JSON documents on disk: found by name, read with suspicion, checked, and written whole.

Every refusal is an :class:`~trmodel.errors.InputError` of lines that say where (the path of the
file, then the field as in ``models[0].decode.latency_ms[2]``), what is wrong and what to do.
"""

from trmodel.documents.find import document_names, find_document
from trmodel.documents.read import MAX_DOCUMENT_BYTES, parse_json, read_json, read_text
from trmodel.documents.validate import (
    AnyDocument,
    Document,
    Name,
    Number,
    Text,
    WholeNumber,
    check_header,
    load_document,
    parse_document,
    validation_problems,
)
from trmodel.documents.words import StrPath, shown
from trmodel.documents.write import (
    check_writable,
    json_text,
    write_bytes_atomically,
    write_text_atomically,
)

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "AnyDocument",
    "Document",
    "Name",
    "Number",
    "StrPath",
    "Text",
    "WholeNumber",
    "check_header",
    "check_writable",
    "document_names",
    "find_document",
    "json_text",
    "load_document",
    "parse_document",
    "parse_json",
    "read_json",
    "read_text",
    "shown",
    "validation_problems",
    "write_bytes_atomically",
    "write_text_atomically",
]
