"""``/v1/completions`` and ``/v1/chat/completions``."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from trmodel.runtime.front import Front
from trmodel.runtime.server.ask import read_ask
from trmodel.runtime.server.body import json_of
from trmodel.runtime.server.errors import ApiError
from trmodel.runtime.server.meter import Meter
from trmodel.runtime.server.replies import Replies
from trmodel.runtime.server.shape import Shape, usage
from trmodel.runtime.server.tokenizer import Tokenizer

T = TypeVar("T")


class Completions:
    """The two endpoints of one server."""

    def __init__(self, front: Front, tokenizer: Tokenizer, meter: Meter) -> None:
        self._front, self._tokenizer, self._meter = front, tokenizer, meter

    async def text(self, request: Request) -> Response:
        """Go on with a text."""
        return await self._answer(request, chat=False)

    async def chat(self, request: Request) -> Response:
        """Reply to a conversation."""
        return await self._answer(request, chat=True)

    async def _answer(self, request: Request, *, chat: bool) -> Response:
        config = self._front.plan.config
        data = await json_of(request, config.http.max_body_bytes)
        # Megabytes of text take a tokenizer seconds, in which other streams must go on.
        ask = await asyncio.to_thread(read_ask, data, chat, config, self._tokenizer)
        shape = Shape(
            id=("chatcmpl-" if chat else "cmpl-") + secrets.token_hex(12),
            created=int(time.time()),
            model=config.http.model_name,
            chat=chat,
            include_usage=ask.include_usage,
        )
        replies = Replies(self._front, self._tokenizer, self._meter, ask)
        replies.start()
        if ask.stream:
            return _EventStream(replies, shape)
        try:
            return JSONResponse(await _unless_gone(request.receive, _whole(replies, shape)))
        except ClientDisconnect:
            return Response(status_code=499)
        finally:
            replies.close()


async def _whole(replies: Replies, shape: Shape) -> dict[str, Any]:
    texts, finishes = [""] * len(replies.ask.choices), [""] * len(replies.ask.choices)
    async for piece in replies.pieces():
        texts[piece.index] += piece.text
        finishes[piece.index] = piece.finish
    used = usage(replies.ask.prompt_tokens, replies.completion_tokens)
    return shape.whole(list(zip(texts, finishes, strict=True)), used)


class _EventStream(Response):
    """Server-sent events, given up as soon as the client is gone."""

    def __init__(self, replies: Replies, shape: Shape) -> None:
        super().__init__(media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        del self.headers["content-length"]
        self._replies, self._shape = replies, shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _unless_gone(receive, self._stream(send))
        except (ClientDisconnect, OSError):
            pass
        finally:
            self._replies.close()

    async def _stream(self, send: Send) -> None:
        async def event(document: dict[str, Any] | None) -> None:
            if document is not None:
                await line(msgspec.json.encode(document))

        async def line(data: bytes, *, more: bool = True) -> None:
            body = b"data: " + data + b"\n\n"
            await send({"type": "http.response.body", "body": body, "more_body": more})

        replies, shape = self._replies, self._shape
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            for index in range(len(replies.ask.choices)):
                await event(shape.opening(index))
            async for piece in replies.pieces():
                if piece.text:
                    await event(shape.piece(piece.index, piece.text))
                if piece.finish:
                    await event(shape.piece(piece.index, "", piece.finish))
            used = usage(replies.ask.prompt_tokens, replies.completion_tokens)
            await event(shape.last(used))
        except ApiError as error:
            await event(error.content)
        await line(b"[DONE]", more=False)


async def _unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do some work unless the client hangs up.

    Raises
    ------
    ClientDisconnect
        If it did; the work was cancelled.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
