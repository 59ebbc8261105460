"""What operators ask: health, counts, thresholds."""

from __future__ import annotations

import hmac
import ipaddress
import time
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from trmodel.errors import TrmodelError
from trmodel.runtime.front import Front
from trmodel.runtime.plan import other_names, vectors_of
from trmodel.runtime.server.body import json_of
from trmodel.runtime.server.errors import RETRY_AFTER_S, ApiError

if TYPE_CHECKING:
    from trmodel.runtime.controller import Controller

_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


class Admin:
    """The operators' endpoints of one server."""

    def __init__(self, front: Front, controller: Controller | None = None) -> None:
        self._front, self._controller = front, controller

    async def health(self, _: Request) -> Response:
        """200 if every model serves, else 503 and which do not."""
        front = self._front
        missing = front.missing
        status = (
            "failed"
            if front.failed
            else "draining"
            if front.draining
            else "starting"
            if missing
            else "ready"
        )
        content = {"status": status, "missing": missing, "reason": front.failed}
        if status == "ready":
            return JSONResponse(content)
        return JSONResponse(content, 503, {"Retry-After": str(RETRY_AFTER_S)})

    async def stats(self, _: Request) -> Response:
        """All counts, as totals: take differences of two answers."""
        front, desk = self._front, self._front.desk
        models = range(len(front.names))
        return JSONResponse(
            {
                "monotonic_s": time.monotonic(),
                "models": front.names,
                "ready": front.ready,
                "n": desk.n,
                "queued": desk.queued,
                "rebuilt": desk.rebuilt,
                "table_version": desk.table_version,
                "table_in_use": desk.table_in_use,
                "restarts": front.restarts,
                "counted": [front.counted.get(i) for i in models],
                "counted_at_s": [front.counted_at.get(i) for i in models],
            }
        )

    async def requests(self, request: Request) -> Response:
        """Where every request stands; nothing of its content."""
        self._allow(request)
        front = self._front
        with front.locked():
            entries = [
                {
                    "request": entry.id,
                    "state": "live" if entry.live else "queued",
                    "owner": front.names[entry.owner],
                    "prompt_tokens": len(entry.prompt),
                    "output_tokens": len(entry.output),
                    "max_tokens": entry.sampling.max_tokens,
                    "steps": entry.steps,
                    "handoff": entry.handoff,
                }
                for entry in front.desk.entries.values()
            ]
        return JSONResponse({"requests": entries})

    async def thresholds(self, request: Request) -> Response:
        """Show the thresholds, or (PUT) bring those of a file of 'trmodel tune -o' into force."""
        if request.method == "PUT":
            self._allow(request)
            data = await json_of(request, self._front.plan.config.http.max_body_bytes)
            force = request.query_params.get("force", "").lower() in ("1", "true")
            self._propose(data, force)
        desk = self._front.desk
        return JSONResponse(
            {
                "version": desk.table_version,
                "in_use": desk.table_in_use,
                "models": self._front.names,
                "thresholds": desk.vectors,
            }
        )

    async def retunes(self, _: Request) -> Response:
        """What was decided about the thresholds while serving, the oldest first."""
        controller = self._controller
        return JSONResponse(
            {
                "mode": self._front.plan.config.retune.mode,
                "outcomes": {} if controller is None else dict(controller.outcomes),
                "decisions": []
                if controller is None
                else [decision.to_dict() for decision in list(controller.decisions)],
            }
        )

    def _propose(self, data: Any, force: bool) -> None:
        try:
            if not force:
                self._check_names(data)
            vectors = vectors_of(data, self._front.names, "body")
            self._front.propose(vectors)
        except TrmodelError as error:
            raise ApiError(400, str(error), "thresholds", "invalid_thresholds") from None

    def _check_names(self, data: Any) -> None:
        """Refuse thresholds that were tuned for something else."""
        profile = self._front.plan.loaded.profile.name
        if why := other_names(data, self._front.names, profile):
            raise ApiError(
                409, f"{why}; ?force=true takes them all the same", why.split(":")[0], "mismatch"
            )

    def _allow(self, request: Request) -> None:
        """Let in who has the key; without one, who is on this machine."""
        key = self._front.plan.config.http.admin_key
        if key is not None:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), key.encode()):
                raise ApiError(401, "the admin key is needed: Authorization: Bearer KEY")
            return
        # A proxy on this machine speaks for others.
        proxied = any(name in request.headers for name in _FORWARDED)
        if proxied or request.client is None or not _loopback(request.client.host):
            raise ApiError(403, "only from this machine, as no http.admin_key is set")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
