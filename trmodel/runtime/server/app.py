"""All endpoints of a server in one application."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trmodel.runtime.front import Front
from trmodel.runtime.server.admin import Admin
from trmodel.runtime.server.completions import Completions
from trmodel.runtime.server.errors import ApiError, show
from trmodel.runtime.server.meter import Meter
from trmodel.runtime.server.metrics import FrontCollector
from trmodel.runtime.server.tokenizer import ByteTokenizer, Tokenizer

if TYPE_CHECKING:
    from trmodel.runtime.controller import Controller


def make_app(
    front: Front, controller: Controller | None = None, tokenizer: Tokenizer | None = None
) -> Starlette:
    """Put a front end behind HTTP; with a controller, its decisions too.

    Parameters
    ----------
    tokenizer
        Of the models; without one, tokens are bytes.
    """
    meter = Meter()
    meter.registry.register(FrontCollector(front, controller))
    completions = Completions(front, tokenizer or ByteTokenizer(), meter)
    admin = Admin(front, controller)
    model = {
        "id": front.plan.config.http.model_name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "trmodel",
        "max_model_len": front.plan.config.context_tokens,
    }

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    async def one_model(request: Request) -> Response:
        name = request.path_params["name"]
        if name != model["id"]:
            raise ApiError(404, f"the model {name!r} does not exist", "model", "model_not_found")
        return JSONResponse(model)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(meter.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return Starlette(
        routes=[
            Route("/v1/completions", completions.text, methods=["POST"]),
            Route("/v1/chat/completions", completions.chat, methods=["POST"]),
            Route("/v1/models", models),
            Route("/v1/models/{name:path}", one_model),
            Route("/health", admin.health),
            Route("/metrics", metrics),
            Route("/stats", admin.stats),
            Route("/thresholds", admin.thresholds, methods=["GET", "PUT"]),
            Route("/retunes", admin.retunes),
            Route("/debug/requests", admin.requests),
        ],
        exception_handlers={ApiError: show, HTTPException: show, Exception: show},
    )
