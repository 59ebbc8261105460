"""Run a server until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import uvicorn

from trmodel.errors import InputError, LimitError, TrmodelError
from trmodel.runtime.config import HttpConfig, ServerConfig
from trmodel.runtime.front import Front
from trmodel.runtime.plan import make_plan
from trmodel.runtime.server.app import make_app
from trmodel.runtime.server.tokenizer import tokenizer_of

if TYPE_CHECKING:
    from trmodel.runtime.controller import Controller

_CLOSING_S = 5
"""So long connections may take to close once their replies have ended."""


def serve(config: ServerConfig, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then let the requests there are end, up to a time.

    A second signal ends everything at once.

    Parameters
    ----------
    announce
        Called with the URL once every model serves.

    Raises
    ------
    InputError, UsageError, InfeasibleError
        If the configuration is wrong or an address is taken.
    LimitError
        If a subserver does not answer in time.
    TrmodelError
        If one keeps ending.
    """
    plan = make_plan(config)
    _allow_many_descriptors()
    # Streams, the network and the watch share one interpreter; none may hold it for long.
    sys.setswitchinterval(0.001)
    with _listen(config.http) as listening:
        asyncio.run(_serve(Front(plan), listening, announce))


async def _serve(front: Front, listening: socket.socket, announce: Callable[[str], None]) -> None:
    stop = asyncio.Event()

    def told() -> None:
        if stop.is_set():
            front.kill()
            os._exit(130)
        stop.set()

    plan = front.plan
    vocabulary = None if plan.real is None else plan.real.vocabulary
    controller = _controller(front)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told)
    server = _Server(
        uvicorn.Config(
            make_app(front, controller, tokenizer_of(plan.config, vocabulary)),
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_CLOSING_S,
        )
    )
    url = _url(plan.config.http.host, listening)
    running = asyncio.create_task(server.serve([listening]))
    try:
        front.start()
        await _until_ready(front, stop)
        if not stop.is_set():
            if controller is not None:
                controller.start()
            announce(url)
            await stop.wait()
            await asyncio.to_thread(front.drain, plan.config.http.drain_s)
    finally:
        if controller is not None:
            await asyncio.to_thread(controller.stop)
        await asyncio.to_thread(front.stop)
        server.should_exit = True
        await running


def _controller(front: Front) -> Controller | None:
    """Make what re-tunes, before anything is served: its imports take a while."""
    if front.plan.config.retune.mode == "off":
        return None
    from trmodel.runtime.controller import Controller

    return Controller(front)


async def _until_ready(front: Front, stop: asyncio.Event) -> None:
    starting_s = front.starting_s
    end = time.monotonic() + starting_s
    while not (front.ready or stop.is_set()):
        if front.failed:
            raise TrmodelError(f"{front.failed}; its log is above")
        if time.monotonic() > end:
            addresses = dict(zip(front.names, front.plan.specs[0].addresses, strict=True))
            missing = ", ".join(f"{name} at {addresses[name]}" for name in front.missing)
            raise LimitError(f"no answer within {starting_s:g} s from {missing}")
        await asyncio.sleep(0.02)


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(config: HttpConfig) -> socket.socket:
    try:
        found = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(address)
            made.listen(2048)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise InputError(
            f"http: {config.host}:{config.port} cannot be listened on: {error.strerror}"
        ) from None
    return made


def _url(host: str, listening: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def _allow_many_descriptors() -> None:
    """A stream takes one; the usual limit of 1,024 is too near."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
