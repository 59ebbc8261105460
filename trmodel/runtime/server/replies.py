"""The replies to one HTTP request, from the network thread to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from trmodel.runtime.desk import Busy, Event
from trmodel.runtime.front import Front, Listener
from trmodel.runtime.server.ask import Ask
from trmodel.runtime.server.errors import broken_off, refused
from trmodel.runtime.server.meter import Meter
from trmodel.runtime.server.stops import StopFinder
from trmodel.runtime.server.tokenizer import Tokenizer


@dataclass(frozen=True)
class Piece:
    """Text of one choice, and why it ends if it does."""

    index: int
    text: str
    finish: str = ""


class Replies:
    """All choices of one request.

    Parameters
    ----------
    front, tokenizer, meter
        Of the server.
    ask
        What is asked for.
    """

    def __init__(self, front: Front, tokenizer: Tokenizer, meter: Meter, ask: Ask) -> None:
        self._front, self._meter = front, meter
        self._came: asyncio.Queue[tuple[int, Event, float]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._decoders = [
            tokenizer.decoder(() if ask.chat else choice.prompt) for choice in ask.choices
        ]
        self._stops = [StopFinder(ask.stops) for _ in ask.choices]
        self._heard_at = [0.0] * len(ask.choices)
        self._spoke = [False] * len(ask.choices)
        self._numbers: dict[int, int] = {}
        self.ask = ask
        self.completion_tokens = 0

    def start(self) -> None:
        """Submit every choice, or none.

        Raises
        ------
        ApiError
            If the server takes no more.
        """
        for index, choice in enumerate(self.ask.choices):
            self._heard_at[index] = time.monotonic()
            try:
                self._numbers[index] = self._front.submit(
                    choice.prompt, choice.sampling, self._listener(index)
                )
            except Busy as error:
                self.close()
                self._meter.refused.inc()
                raise refused(error) from None
        self._meter.prompt_tokens.inc(self.ask.prompt_tokens)

    def _listener(self, index: int) -> Listener:
        def hear(event: Event) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
                self._loop.call_soon_threadsafe(
                    self._came.put_nowait, (index, event, time.monotonic())
                )

        return hear

    def close(self) -> None:
        """Abort what is still under way; for every outcome, so that nothing is left behind."""
        for number in self._numbers.values():
            self._front.abort(number)
            self._meter.ended("aborted")
        self._numbers.clear()

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield text as it comes, until every choice has ended.

        Raises
        ------
        ApiError
            If the server cannot go on.
        """
        while self._numbers:
            index, event, at = await self._came.get()
            if index not in self._numbers:
                continue  # stopped here already
            if event.finish.startswith("error"):
                del self._numbers[index]
                self._meter.ended("error")
                reason = event.finish.removeprefix("error: ")
                raise broken_off(reason)
            self._time(index, event, at)
            piece = self._piece(index, event)
            if piece.text or piece.finish:
                yield piece

    def _time(self, index: int, event: Event, at: float) -> None:
        took = at - self._heard_at[index]
        if not event.token_ids:
            if not event.finish:  # it was admitted; the first token is timed from submission too
                self._meter.admission.observe(took)
            return
        (self._meter.between if self._spoke[index] else self._meter.first).observe(took)
        self._heard_at[index], self._spoke[index] = at, True

    def _piece(self, index: int, event: Event) -> Piece:
        decoder, stop = self._decoders[index], self._stops[index]
        text, finish = "", event.finish
        for token in event.token_ids:
            text += stop.feed(decoder.feed((token,)))
            self.completion_tokens += 1
            self._meter.output_tokens.inc()
            if stop.found:
                break
        if event.finish and not stop.found:
            text += stop.feed(decoder.end())
            text += stop.end()
        if stop.found:
            finish = "stop"
        if finish:
            number = self._numbers.pop(index)
            if not event.finish:
                self._front.abort(number)
            self._meter.ended(finish)
        return Piece(index, text, finish)
