"""Where a text has an empty line, told from its tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trmodel.errors import InputError
from trmodel.runtime.engines.sglang.tokenizer import load_tokenizer
from trmodel.runtime.policies.options import OptionError

EMPTY_LINE = "\n\n"


@dataclass(frozen=True)
class Boundary:
    """The tokens that make empty lines.

    Attributes
    ----------
    whole
        Those that hold one.
    ends, begins
        Those that end, and that begin, with a line feed: one after the other make one too.
    """

    whole: frozenset[int]
    ends: frozenset[int]
    begins: frozenset[int]

    def reached(self, before: int | None, token: int) -> bool:
        """Say whether a token completes an empty line, after another one (None: at the start)."""
        return token in self.whole or (token in self.begins and before in self.ends)

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Boundary:
        """Sort the tokens of a vocabulary, given in order."""
        whole, ends, begins = set(), set(), set()
        for token, text in enumerate(texts):
            if EMPTY_LINE in text:
                whole.add(token)
            if text.endswith("\n"):
                ends.add(token)
            if text.startswith("\n"):
                begins.add(token)
        return cls(frozenset(whole), frozenset(ends), frozenset(begins))

    @classmethod
    def of_tokenizer(cls, path: str) -> Boundary:
        """Sort the tokens of a tokenizer that ``transformers`` can load from a folder.

        Raises
        ------
        OptionError
            If it cannot be loaded.
        """
        try:
            tokenizer = load_tokenizer(path)
        except InputError as error:
            raise OptionError("tokenizer", str(error)) from None
        return cls.of_texts(tokenizer.batch_decode([[i] for i in range(len(tokenizer))]))
