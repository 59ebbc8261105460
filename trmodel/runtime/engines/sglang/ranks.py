"""A model split over several processes, one for each GPU (tensor parallelism).

The first process has the engine. It tells the others what it is about to do, and all do the same:
each pass is one that they make together. Commands go down a pipe, typed; nothing comes back but
what the ranks exchange in the pass itself. When one of them ends, all end, as a pass would wait for
it for ever.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any

import msgspec

from trmodel.runtime.engines.sglang.adapter import Held, Pass, Runner
from trmodel.runtime.engines.sglang.options import EngineOptions

log = logging.getLogger(__name__)


class Start(msgspec.Struct, frozen=True, tag=True):
    """The first command: what to load, and where the ranks meet."""

    options: EngineOptions
    rows: int
    hidden: bool
    rank: int
    port: int


class Forward(msgspec.Struct, frozen=True, tag=True):
    """Make a pass: requests by name, and what each is to read, or only to hold (`occupy`)."""

    names: tuple[str, ...]
    unseen: tuple[tuple[int, ...], ...]
    read: bool = True


class Cut(msgspec.Struct, frozen=True, tag=True):
    """Forget what a request holds beyond a length."""

    name: str
    length: int


class Embed(msgspec.Struct, frozen=True, tag=True):
    """Look up input embeddings, which are split as well."""

    token_ids: tuple[int, ...]


Command = Start | Forward | Cut | Embed

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Command)


class SplitRunner(Runner):
    """A `Runner` over ``options.tp`` processes, of which this is the first."""

    def __init__(self, options: EngineOptions, rows: int, *, hidden: bool) -> None:
        port = _free_port()
        self._others = [
            _follower(Start(options, rows, hidden, rank, port)) for rank in range(1, options.tp)
        ]
        super().__init__(options, rows, hidden=hidden, port=port)

    def _tell(self, command: Command) -> None:
        for other in self._others:
            assert other.stdin is not None
            _write(other.stdin, command)

    def forward(self, helds: Sequence[Held], unseen: Sequence[Sequence[int]]) -> Pass:
        """See `Runner.forward`."""
        names = tuple(held.req.rid for held in helds)
        self._tell(Forward(names, tuple(map(tuple, unseen))))
        try:
            return super().forward(helds, unseen)
        except Exception:
            # The others may be in the middle of the pass: what follows would meet this one.
            log.exception("a pass of a model that is split failed; its processes begin anew")
            os._exit(1)

    def occupy(self, helds: Sequence[Held], unseen: Sequence[Sequence[int]]) -> None:
        """See `Runner.occupy`."""
        names = tuple(held.req.rid for held in helds)
        self._tell(Forward(names, tuple(map(tuple, unseen)), read=False))
        super().occupy(helds, unseen)

    def cut(self, held: Held, length: int) -> None:
        """See `Runner.cut`."""
        if length < max(held.req.kv.kv_allocated_len, 1):
            self._tell(Cut(held.req.rid, length))
        super().cut(held, length)

    def embedding(self, token_ids: Any) -> Any:
        """See `Runner.embedding`."""
        self._tell(Embed(tuple(token_ids.tolist())))
        return super().embedding(token_ids)


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def _follower(start: Start) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-m", __spec__.name], stdin=subprocess.PIPE)
    assert process.stdin is not None
    _write(process.stdin, start)
    threading.Thread(target=_end_with, args=(process,), daemon=True).start()
    return process


def _end_with(process: subprocess.Popen[bytes]) -> None:
    """End this process when another rank has ended: it is started anew, with all of them."""
    process.wait()
    os._exit(1)


def _end_with_parent(parent: int) -> None:
    """End this process when the first rank is gone, even in the middle of a pass."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _write(pipe: IO[bytes], command: Command) -> None:
    data = _encoder.encode(command)
    pipe.write(len(data).to_bytes(4, "little") + data)
    pipe.flush()


def _commands(pipe: IO[bytes]) -> Iterator[Command]:
    while header := pipe.read(4):
        yield _decoder.decode(pipe.read(int.from_bytes(header, "little")))


def main() -> int:
    """Follow the first rank until its pipe closes."""
    from trmodel.runtime.engines.sglang.start import prepare

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ends with the first rank
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    commands = _commands(sys.stdin.buffer)
    start = next(commands)
    assert isinstance(start, Start)
    prepare(start.options)
    runner = Runner(
        start.options, start.rows, hidden=start.hidden, rank=start.rank, port=start.port
    )
    helds: dict[str, Held] = {}
    for command in commands:
        if isinstance(command, Forward):
            for name in command.names:
                if name not in helds:
                    helds[name] = runner.new(name)
            do = runner.forward if command.read else runner.occupy
            do([helds[name] for name in command.names], command.unseen)
        elif isinstance(command, Cut) and command.name in helds:
            runner.cut(helds[command.name], command.length)
            if command.length == 0:
                del helds[command.name]
        elif isinstance(command, Embed):
            runner.embedding(runner.torch.tensor(command.token_ids, device=runner.device))
    return 0


if __name__ == "__main__":
    sys.exit(main())
