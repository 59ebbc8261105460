"""Prompts for measurements: from a file, or of random tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trmodel.documents import StrPath, read_text, shown
from trmodel.errors import InputError
from trmodel.runtime.server.tokenizer import Tokenizer

Prompt = tuple[int, ...]
MAX_BYTES = 256 * 2**20


def read_prompts(path: StrPath, tokenizer: Tokenizer) -> list[Prompt]:
    """Read a file of prompts.

    Lines that are not empty are a text each; with the suffix ``.jsonl`` they are JSON: a text, a
    list of tokens, or an object with either as ``prompt``.

    Raises
    ------
    InputError
        If it cannot be read or has no prompts, or naming a line that is none.
    """
    text, _ = read_text(path, "prompts, one a line", MAX_BYTES)
    is_json = Path(path).suffix == ".jsonl"
    prompts = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{shown(path)}: line {number}"
            prompts.append(_json_prompt(line, where, tokenizer) if is_json else line.strip("\r"))
    if not prompts:
        raise InputError(f"{shown(path)}: has no prompts")
    return [tokenizer.encode(p) if isinstance(p, str) else p for p in prompts]


def _json_prompt(line: str, where: str, tokenizer: Tokenizer) -> str | Prompt:
    try:
        value = json.loads(line)
    except ValueError:
        raise InputError(f"{where}: is no JSON") from None
    if isinstance(value, dict):
        value = value.get("prompt")
    if isinstance(value, str) and value:
        return value
    whole = isinstance(value, list) and all(type(token) is int for token in value)
    if not whole or not value or not all(0 <= t < tokenizer.vocabulary for t in value):
        raise InputError(
            f"{where}: must be a text or tokens from 0 to {tokenizer.vocabulary - 1}, or an object "
            "with such a prompt"
        )
    return tuple(value)


def random_prompts(count: int, length: int, vocabulary: int, seed: int = 0) -> list[Prompt]:
    """Draw prompts of random tokens."""
    tokens = np.random.default_rng(seed).integers(vocabulary, size=(count, length))
    return [tuple(row) for row in tokens.tolist()]


def repeated(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """Return so many prompts, over and over."""
    return [prompts[k % len(prompts)] for k in range(count)]
