"""Read a request's body as JSON, up to a size."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from trmodel.documents import parse_json
from trmodel.errors import InputError
from trmodel.runtime.server.errors import ApiError


async def json_of(request: Request, max_bytes: int) -> Any:
    """Return the parsed body.

    Raises
    ------
    ApiError
        413 if it is too large, 400 if it is no JSON.
    """
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > max_bytes:
            raise ApiError(
                413, f"the body is larger than {max_bytes} bytes", code="request_too_large"
            )
    try:
        return parse_json(raw.decode("utf-8"), "body")
    except UnicodeDecodeError:
        raise ApiError(400, "body: not UTF-8", code="invalid_json") from None
    except InputError as error:
        raise ApiError(400, str(error), code="invalid_json") from None
