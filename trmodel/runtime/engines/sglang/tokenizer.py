"""The tokenizer in a model's folder, as transformers loads it."""

from __future__ import annotations

import os
from textwrap import shorten
from typing import Any

from trmodel.documents import StrPath, shown
from trmodel.errors import InputError


def load_tokenizer(folder: StrPath) -> Any:
    """Load a tokenizer of transformers from a folder alone.

    Raises
    ------
    InputError
        If there is none, or transformers is not installed.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise InputError(
            "engine: real models need transformers; pip install 'trmodel[sglang]'"
        ) from None
    try:
        return AutoTokenizer.from_pretrained(os.fspath(folder), local_files_only=True)
    except Exception as error:  # whatever is wrong with whichever of its files
        why = shown(shorten(str(error), 200, placeholder=" ..."))
        raise InputError(f"{shown(folder)}: its tokenizer cannot be read: {why}") from None
