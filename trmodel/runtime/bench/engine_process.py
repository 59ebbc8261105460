"""One model's engine in a process of its own, to be timed; the other end of `engine_times`."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec

from trmodel.errors import TrmodelError
from trmodel.runtime.bench.engine_times import Answer, Ask, Failed, Ready, Times
from trmodel.runtime.spec import SubserverSpec

STEP_S = 600.0
"""So long an answer may take beyond the seconds asked for."""

_END_S = 10.0

AnyAnswer = TypeVar("AnyAnswer", Ready, Times)


class EngineProcess:
    """Starts loading the engine at once; `ready` waits for it.

    Parameters
    ----------
    spec
        Of the model's subserver.
    starting_s
        So long loading may take.
    """

    def __init__(self, spec: SubserverSpec, starting_s: float) -> None:
        self.name, self._starting_s = spec.names[spec.model], starting_s
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trmodel.runtime.bench.engine_times"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._send(msgspec.json.encode(spec))

    def ready(self) -> Ready:
        """Wait until the engine is loaded.

        Raises
        ------
        TrmodelError
            If it cannot be.
        """
        return self._answer(Ready, self._starting_s)

    def time(self, batch: int, context: int, new: int, seconds: float) -> Times:
        """Time steps; see `Ask`.

        Raises
        ------
        TrmodelError
            If a step failed.
        """
        self._send(msgspec.json.encode(Ask(batch, context, new, seconds)))
        return self._answer(Times, seconds + STEP_S)

    @contextmanager
    def running(self, batch: int, context: int, new: int = 1) -> Iterator[None]:
        """Let it make steps one after the other while the body runs."""
        self._send(msgspec.json.encode(Ask(batch, context, new)))
        self._answer(Times, STEP_S)
        yield
        self._send(b"")
        self._answer(Times, STEP_S)

    def close(self) -> None:
        """End the process."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _answer(self, kind: type[AnyAnswer], seconds: float) -> AnyAnswer:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], seconds)[0]:
            raise TrmodelError(f"{self.name}: its engine said nothing for {seconds:g} s")
        line = out.readline()
        if not line:
            raise self._ended()
        answer = msgspec.json.decode(line, type=Answer)
        if isinstance(answer, Failed):
            raise TrmodelError(f"{self.name}: {answer.why}")
        assert isinstance(answer, kind)
        return answer

    def _ended(self) -> TrmodelError:
        return TrmodelError(f"{self.name}: its engine ended; what it said is above")
