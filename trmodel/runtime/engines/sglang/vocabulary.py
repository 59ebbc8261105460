"""Do models speak of the same tokens? What lies in their folders is compared, without loading them.

Models that write one reply together hand over *token ids*, so an id must mean the same to all:

- every token has the same id in all of them, added and special ones included. How text is cut into
  tokens (merges, normalisation, chat template) may differ: only the model that begins a reply reads
  text;
- the ids that end a reply are the same, or one model would go on behind another's end.

The width of the logits may differ. Families round their embeddings up, some by the size of the
model (Qwen2.5: 151,936 rows for 151,665 tokens, and 152,064 in the larger ones). Rows behind the
last token stand for nothing: the common *size* is that of the tokenizer, and logits are to be cut
to it before anything is sampled or compared. A model with fewer rows than there are tokens is
refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from trmodel.documents import StrPath, shown
from trmodel.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Vocabulary:
    """What the tokens of one model are.

    Attributes
    ----------
    ids
        Of every token, added and special ones included.
    end_ids
        Tokens that end a reply.
    size
        Ids are below it.
    width
        Of the model's logits, at least ``size``.
    """

    ids: Mapping[str, int]
    end_ids: frozenset[int]
    size: int
    width: int


class _Content(msgspec.Struct):
    content: str


class _Added(_Content):
    id: int


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]] = {}  # by id where tokens have scores


class _TokenizerFile(msgspec.Struct):
    model: _Model
    added_tokens: list[_Added] = []

    @property
    def ids(self) -> dict[str, int]:
        vocab = self.model.vocab
        pairs = vocab if isinstance(vocab, dict) else {t: i for i, (t, _) in enumerate(vocab)}
        return pairs | {added.content: added.id for added in self.added_tokens}


class _TokenizerConfig(msgspec.Struct):
    eos_token: str | _Content | None = None

    @property
    def end(self) -> str | None:
        end = self.eos_token
        return end.content if isinstance(end, _Content) else end


class _Config(msgspec.Struct):
    vocab_size: int | None = None
    eos_token_id: int | list[int] | None = None
    text_config: _Config | None = None

    @property
    def end_ids(self) -> frozenset[int]:
        ids = self.eos_token_id
        return frozenset([] if ids is None else [ids] if isinstance(ids, int) else ids)


def check_vocabularies(paths: Mapping[str, StrPath]) -> Vocabulary:
    """Check that models can hand over tokens to each other.

    Parameters
    ----------
    paths
        The folder of each model, by its name.

    Returns
    -------
    The vocabulary of the first; ``size`` and ``end_ids`` hold for all.

    Raises
    ------
    InputError
        With the first difference: between which models, about which token; or if a folder lacks
        what is needed.
    """
    all_of = {name: read_vocabulary(path) for name, path in paths.items()}
    (first, ours), *others = all_of.items()
    for name, theirs in others:
        if why := _difference(first, ours, name, theirs):
            raise InputError(
                f"models: {why}; models that hand over tokens to each other must share a vocabulary"
            )
    return ours


def read_vocabulary(folder: StrPath) -> Vocabulary:
    """Read the vocabulary of a model from its folder.

    Raises
    ------
    InputError
        If a file is missing or damaged, or the model has fewer embeddings than there are tokens.
    """
    path, where = Path(folder), shown(os.fspath(folder))
    if not path.is_dir():
        raise InputError(f"{where}: no such folder; give that of a model, with its config.json")
    tokenizer = _read(path / "tokenizer.json", _TokenizerFile)
    if tokenizer is None:
        raise InputError(
            f"{where}: has no tokenizer.json; transformers makes it: "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    ids = tokenizer.ids
    size = max(ids.values(), default=-1) + 1
    config = _read(path / "config.json", _Config)
    inner = config.text_config or config if config else None
    width = inner.vocab_size if inner else None
    if config is None or inner is None or width is None:
        raise InputError(f"{where}: has no config.json that says the model's vocab_size")
    if not 0 < size <= width:
        raise InputError(
            f"{where}: its tokenizer has ids up to {size - 1}, its model only {width} embeddings"
        )
    generation = _read(path / "generation_config.json", _Config) or _Config()
    named = _read(path / "tokenizer_config.json", _TokenizerConfig) or _TokenizerConfig()
    end_ids = generation.end_ids | config.end_ids | inner.end_ids
    if named.end is not None and named.end in ids:
        end_ids |= {ids[named.end]}
    return Vocabulary(ids, end_ids, size, width)


def _read(path: Path, kind: type[T]) -> T | None:
    """Read a file of a model's folder, if it is there."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{shown(path)}: is not what it should be: {shown(str(error))}") from None


def _difference(first: str, ours: Vocabulary, name: str, theirs: Vocabulary) -> str | None:
    """Say in what two vocabularies differ, if they do: the lowest id that does not agree."""
    if ours.ids != theirs.ids:
        differing = ours.ids.items() ^ theirs.ids.items()
        at = min(id for _, id in differing)
        here, there = (_token(vocabulary.ids, at) for vocabulary in (ours, theirs))
        return f"token {at} is {here} in {first} and {there} in {name}"
    if ours.end_ids != theirs.end_ids:
        at = min(ours.end_ids ^ theirs.end_ids)
        ends, goes_on = (first, name) if at in ours.end_ids else (name, first)
        return f"token {at} ({_token(ours.ids, at)}) ends a reply of {ends} and not of {goes_on}"
    return None


def _token(ids: Mapping[str, int], wanted: int) -> str:
    token = next((token for token, id in ids.items() if id == wanted), None)
    return "nothing" if token is None else f"'{shown(token)}'"
