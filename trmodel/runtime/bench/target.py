"""What is measured: a server in this process, or one behind a URL."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from trmodel.errors import InputError, TrmodelError
from trmodel.runtime.table import Vectors

if TYPE_CHECKING:
    from trmodel.runtime.desk import Event
    from trmodel.runtime.front import Front

Hear = Callable[[int, str], None]
"""Called with how many tokens came, and why the reply ended if it did."""


@dataclass(frozen=True)
class Stats:
    """What a server has counted.

    Attributes
    ----------
    counted
        By model: totals as in `trmodel.runtime.counters`.
    n, queued
        Requests that run, and that wait to be admitted.
    table_version
        Of the newest thresholds.
    """

    models: tuple[str, ...]
    counted: dict[int, dict[str, Any]]
    n: int
    queued: int
    table_version: int

    @property
    def table_in_use(self) -> bool:
        """Whether every model goes by the newest thresholds."""
        held = [values.get("table_version") for values in self.counted.values()]
        return held == [self.table_version] * len(self.models)


class Target(Protocol):
    """A server under load."""

    def stats(self) -> Stats:
        """Return what it has counted, as it last told."""
        ...

    def set_thresholds(self, vectors: Vectors) -> None:
        """Bring thresholds into force, B(1), B(2), ..."""
        ...

    def ask(self, prompt: Sequence[int], tokens: int, seed: int, hear: Hear) -> Callable[[], None]:
        """Ask for a reply of so many tokens; return what ends it early."""
        ...


class InProcess:
    """A front end in this process; it is started and stopped by whoever made it.

    Attributes
    ----------
    temperature
        Of what is asked.
    """

    def __init__(self, front: Front) -> None:
        self.front = front
        self.temperature = 1.0

    def stats(self) -> Stats:
        """See `Target`."""
        front = self.front
        if front.failed:
            raise TrmodelError(front.failed)
        desk = front.desk
        return Stats(front.names, dict(front.counted), desk.n, desk.queued, desk.table_version)

    def set_thresholds(self, vectors: Vectors) -> None:
        """See `Target`."""
        self.front.propose(vectors)

    def ask(self, prompt: Sequence[int], tokens: int, seed: int, hear: Hear) -> Callable[[], None]:
        """See `Target`."""
        from trmodel.runtime.messages import Sampling

        def listener(event: Event) -> None:
            hear(len(event.token_ids), event.finish)

        sampling = Sampling(max_tokens=tokens, seed=seed, temperature=self.temperature)
        number = self.front.submit(tuple(prompt), sampling, listener)
        return lambda: self.front.abort(number)


class Url:
    """A server behind a URL; every reply is streamed by a thread of its own.

    Parameters
    ----------
    url
        Such as ``http://127.0.0.1:8000``.
    admin_key
        Bearer token for changes of thresholds.
    """

    def __init__(self, url: str, admin_key: str | None = None) -> None:
        import httpx

        self.url = url.rstrip("/").removesuffix("/v1")
        headers = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.Client(base_url=self.url, headers=headers, limits=limits, timeout=30.0)
        self._error = httpx.HTTPError
        self._names: tuple[str, ...] = ()
        self._readers: list[threading.Thread] = []

    @cached_property
    def _model(self) -> str:
        """What clients call the server's model."""
        try:
            return str(self._call("GET", "/v1/models")["data"][0]["id"])
        except (KeyError, TypeError, IndexError):
            raise InputError(f"{self.url}/v1/models: names no model") from None

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        try:
            answer = self._client.request(method, path, json=body)
            data = answer.json()
        except (self._error, ValueError) as error:
            raise InputError(f"{self.url}{path}: no answer that is JSON: {error}") from None
        if answer.is_error:
            told = data.get("error", data) if isinstance(data, dict) else data
            reason = told.get("message", told) if isinstance(told, dict) else told
            raise InputError(f"{self.url}{path}: {answer.status_code}: {reason}")
        return data

    def stats(self) -> Stats:
        """See `Target`."""
        data = self._call("GET", "/stats")
        try:
            told = data["counted"]
            pairs = told.items() if isinstance(told, dict) else enumerate(told)
            counted = {int(model): values for model, values in pairs if values is not None}
            self._names = tuple(data["models"])
            return Stats(
                self._names, counted, data["n"], data.get("queued", 0), data["table_version"]
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{self.url}/stats: is no trmodel server's: {error}") from None

    def set_thresholds(self, vectors: Vectors) -> None:
        """See `Target`."""
        document = {
            "schema": "trmodel/thresholds",
            "schema_version": 1,
            "models": list(self._names or self.stats().models),
            "thresholds": [list(B) for B in vectors],
        }
        self._call("PUT", "/thresholds", document)

    def ask(self, prompt: Sequence[int], tokens: int, seed: int, hear: Hear) -> Callable[[], None]:
        """See `Target`."""
        over = threading.Event()
        body = {
            "prompt": list(prompt),
            "max_tokens": tokens,
            "seed": seed,
            "stream": True,
            "model": self._model,
        }

        def read() -> None:
            reason = "error: the stream broke off"
            try:
                with self._client.stream("POST", "/v1/completions", json=body) as answer:
                    if answer.is_error:
                        answer.read()
                        reason = f"error: {answer.status_code}: {answer.text[:200]}"
                    else:
                        for line in answer.iter_lines():
                            if over.is_set():
                                return
                            reason = _heard(line, reason, hear)
            except self._error as error:
                reason = f"error: {error}"
            hear(0, reason)

        reader = threading.Thread(target=read, name="reply", daemon=True)
        self._readers = [*(r for r in self._readers if r.is_alive()), reader]
        reader.start()
        return over.set

    def close(self) -> None:
        """Close every connection."""
        for reader in self._readers:
            reader.join(5.0)
        self._client.close()


def _heard(line: str, reason: str, hear: Hear) -> str:
    """Pass on one line of a stream of events; return why the reply ended, as far as is known.

    A chunk counts as one token unless it says how many it holds: bytes of one character may be
    held back until it is complete.
    """
    text = line.removeprefix("data:").strip()
    if not line.startswith("data:") or text == "[DONE]":
        return reason
    chunk = json.loads(text)
    if "error" in chunk:
        return f"error: {chunk['error'].get('message', chunk['error'])}"
    for choice in chunk.get("choices", ()):
        ids = choice.get("token_ids")
        count = len(ids) if ids is not None else int(bool(choice.get("text")))
        if count:
            hear(count, "")
        reason = choice.get("finish_reason") or reason
    return reason


def wait_for(happens: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until something happens.

    Raises
    ------
    TrmodelError
        If it takes too long.
    """
    end = time.monotonic() + timeout_s
    while not happens():
        if time.monotonic() > end:
            raise TrmodelError(f"{what} after {timeout_s:g} s")
        with suppress(InterruptedError):
            time.sleep(0.05)
