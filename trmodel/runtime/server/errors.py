"""Errors in the shape that OpenAI's clients expect."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from trmodel.runtime.desk import Busy
from trmodel.runtime.front import Unavailable

RETRY_AFTER_S = 1
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}


class ApiError(Exception):
    """An answer that is an error.

    Parameters
    ----------
    status
        Of HTTP.
    message
        What is wrong and what to do.
    param
        The field at fault.
    code
        For programs.
    """

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    @property
    def content(self) -> dict[str, Any]:
        """What is sent."""
        return {
            "error": {
                "message": self.message,
                "type": _TYPES.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> Response:
        """The answer; a client that is to come again is told when."""
        headers = {"Retry-After": str(RETRY_AFTER_S)} if self.status in (429, 503) else None
        return JSONResponse(self.content, self.status, headers)


def refused(error: Busy) -> ApiError:
    """Say that no request is taken now."""
    if isinstance(error, Unavailable):
        return ApiError(503, str(error), code="unavailable")
    return ApiError(429, str(error), code="rate_limit_exceeded")


def broken_off(reason: str) -> ApiError:
    """Say why a reply broke off: its own step failed, or the server cannot go on."""
    for who in ("policy", "engine"):
        if reason.startswith(f"the {who} failed"):
            return ApiError(500, f"the reply broke off: {reason}", code=f"{who}_failed")
    return ApiError(503, f"the reply broke off: {reason}", code="unavailable")


async def show(request: Request, error: Exception) -> Response:
    """Turn an exception of a handler into an answer."""
    if isinstance(error, HTTPException):
        message = f"{request.method} {request.url.path}: {error.detail}"
        code = "unknown_url" if error.status_code == 404 else None
        return ApiError(error.status_code, message, code=code).response()
    if isinstance(error, ApiError):
        return error.response()
    return ApiError(500, "internal error; the server's log has more").response()
