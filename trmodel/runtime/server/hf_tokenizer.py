"""The tokenizer of real models: what lies in a model's folder, read by transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from itertools import product
from typing import Any

from trmodel.documents import StrPath, shown
from trmodel.errors import InputError
from trmodel.runtime.engines.sglang.tokenizer import load_tokenizer
from trmodel.runtime.engines.sglang.vocabulary import Vocabulary, read_vocabulary
from trmodel.runtime.server.tokenizer import Decoder

_BROKEN = "\ufffd"
"""What stands for bytes that are no character, or not yet one."""
_LONGEST = 4
"""Tokens that one character takes at most, a byte each."""
_CONTEXT = 8
"""Tokens of a prompt that show how the first of the reply is to be written."""


class HfTokenizer:
    """The tokenizer and chat template in a model's folder.

    Parameters
    ----------
    folder
        Of the model that begins every reply.
    vocabulary
        Its own, where it was read already.

    Raises
    ------
    InputError
        If there is no tokenizer, or transformers is not installed.
    """

    def __init__(self, folder: StrPath, vocabulary: Vocabulary | None = None) -> None:
        vocabulary = vocabulary or read_vocabulary(folder)
        self.vocabulary, self.end_ids = vocabulary.size, tuple(sorted(vocabulary.end_ids))
        self._own = load_tokenizer(folder)
        added = self._own.added_tokens_decoder
        self._special = frozenset(id for id, token in added.items() if token.special)
        self.encode("")  # settles what is changed at the first use, before threads share it

    def encode(self, text: str) -> tuple[int, ...]:
        """Turn a text into tokens, with those that the model wants at the beginning."""
        return tuple(self._own(text, verbose=False)["input_ids"])

    def encode_chat(
        self, messages: Sequence[tuple[str, str]], settings: Mapping[str, Any] = {}
    ) -> tuple[int, ...]:
        """Fill in the chat template.

        Raises
        ------
        InputError
            If there is none, or it does not take this conversation or these settings.
        """
        if not self._own.chat_template:
            raise InputError(
                "the models have no chat template; ask for a text under /v1/completions"
            )
        fill_in = self._own.apply_chat_template
        if taken := sorted(signature(fill_in).parameters.keys() & settings.keys()):
            raise InputError(f"{', '.join(map(shown, taken))} cannot be set there")
        # Templates know of no developers, and some pass over a role that they do not know.
        named = [
            {"role": "system" if role == "developer" else role, "content": content}
            for role, content in messages
        ]
        try:
            prompt = fill_in(named, tokenize=False, add_generation_prompt=True, **settings)
        except Exception as error:  # whatever a template does with what it is given
            why = shown(str(error).strip().split("\n")[0])
            raise InputError(f"the models' chat template refuses them: {why}") from None
        encoded = self._own(prompt, add_special_tokens=False, verbose=False)
        return tuple(encoded["input_ids"])

    def decoder(self, prompt: Sequence[int] = ()) -> Decoder:
        """Begin to decode a reply; one to a prompt goes on with its text."""
        return HfDecoder(self._decode, self._special, prompt)

    def _decode(self, token_ids: Sequence[int]) -> str:
        text: str = self._own.decode(
            token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text


class HfDecoder:
    """Decodes a reply token by token, never half a character.

    How a token is written depends on those before it: a character may need several, and some
    tokenizers write a space before a word unless it is the first. So each token is decoded together
    with the last ones before it, and what those alone give is left out. Text that ends in a broken
    character waits for the next tokens, as long as those can still complete it.

    Parameters
    ----------
    decode
        Turns tokens into text.
    special
        Tokens that have none.
    prompt
        What the reply goes on with.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        special: frozenset[int],
        prompt: Sequence[int] = (),
    ) -> None:
        self._decode, self._special = decode, special
        # What is decoded together; how many of these tokens, and of their characters, are known.
        self._tokens, self._known, self._told = self._context(
            [token for token in prompt if token not in special]
        )

    def _context(self, tokens: list[int]) -> tuple[list[int], int, int]:
        """Take the last tokens of a prompt; its end may be the beginning of a character."""
        for cut, more in product(range(_LONGEST), repeat=2):
            last = tokens[-_CONTEXT - more :]
            text = self._decode(last[: len(last) - cut])
            if cut <= len(last) and _BROKEN not in text:
                return last, len(last) - cut, len(text)
        last = tokens[-_CONTEXT:]
        return last, len(last), len(self._decode(last).rstrip(_BROKEN))

    def feed(self, token_ids: Sequence[int]) -> str:
        return "".join(self._next(token) for token in token_ids if token not in self._special)

    def _next(self, token: int) -> str:
        self._tokens.append(token)
        text = self._decode(self._tokens)
        if not text.endswith(_BROKEN):
            return self._pass_on(text, keep=len(self._tokens) - self._known, held=0)
        if len(self._tokens) - self._known < _LONGEST:
            return ""
        # It began with bytes that are no character; only the last ones can still become one.
        return self._pass_on(text, keep=_LONGEST - 1, held=1)

    def _pass_on(self, text: str, keep: int, held: int) -> str:
        """Return what is new, but for the last ``held`` characters; keep the last tokens."""
        new = text[self._told : len(text) - held]
        self._tokens = self._tokens[-keep:]
        self._known = len(self._tokens)
        self._told = len(self._decode(self._tokens)) - held
        return new

    def end(self) -> str:
        return self._decode(self._tokens)[self._told :]
