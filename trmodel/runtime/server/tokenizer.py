"""From text to tokens and back, as the front end needs it."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from trmodel.errors import InputError
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.engines.replay import VOCABULARY

if TYPE_CHECKING:
    from trmodel.runtime.engines.sglang.vocabulary import Vocabulary


class Decoder(Protocol):
    """Turns one reply's tokens into text as they come."""

    def feed(self, token_ids: Sequence[int]) -> str:
        """Return the text that these tokens complete."""
        ...

    def end(self) -> str:
        """Return what is left when no more tokens come."""
        ...


class Tokenizer(Protocol):
    """What belongs to a family of models that share their tokens.

    Attributes
    ----------
    vocabulary
        Tokens are below it.
    end_ids
        Tokens that end a reply.
    """

    vocabulary: int
    end_ids: tuple[int, ...]

    def encode(self, text: str) -> tuple[int, ...]:
        """Turn a text into tokens."""
        ...

    def encode_chat(
        self, messages: Sequence[tuple[str, str]], settings: Mapping[str, Any] = {}
    ) -> tuple[int, ...]:
        """Turn roles and contents into the prompt of the next reply.

        Parameters
        ----------
        settings
            More that the models' chat template is to know.

        Raises
        ------
        InputError
            If these models cannot be asked so.
        """
        ...

    def decoder(self, prompt: Sequence[int] = ()) -> Decoder:
        """Begin to decode a reply, which goes on with the text of a prompt if there is one."""
        ...


def tokenizer_of(config: ServerConfig, vocabulary: Vocabulary | None = None) -> Tokenizer:
    """Return what turns a server's texts into tokens: bytes with the replay engine.

    Parameters
    ----------
    vocabulary
        That of real models, where it was read already.

    Raises
    ------
    InputError
        If the models' tokenizer cannot be read.
    """
    if config.engine == "replay":
        return ByteTokenizer()
    from trmodel.runtime.server.hf_tokenizer import HfTokenizer

    return HfTokenizer(next(iter(config.models.values())).path, vocabulary)


class ByteTokenizer:
    """Tokens are the bytes of UTF-8: what the replay engine speaks."""

    vocabulary = VOCABULARY
    end_ids: tuple[int, ...] = ()

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode("utf-8", errors="replace"))

    def encode_chat(
        self, messages: Sequence[tuple[str, str]], settings: Mapping[str, Any] = {}
    ) -> tuple[int, ...]:
        if settings:
            raise InputError("there is no chat template with the replay engine; leave it out")
        lines = [f"{role}: {content}\n" for role, content in messages]
        return self.encode("".join(lines) + "assistant: ")

    def decoder(self, prompt: Sequence[int] = ()) -> Decoder:
        return _ByteDecoder()


class _ByteDecoder:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_ids: Sequence[int]) -> str:
        return self._decoder.decode(bytes(token_ids))

    def end(self) -> str:
        return self._decoder.decode(b"", final=True)
