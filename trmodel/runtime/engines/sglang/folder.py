"""What a model's folder says of it, without loading anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trmodel.documents import read_json
from trmodel.errors import InputError

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class ModelFolder:
    """A model in the layout of transformers: ``config.json`` and weights in safetensors."""

    path: str

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """Its ``config.json``.

        Raises
        ------
        InputError
            If there is none.
        """
        path = Path(self.path, "config.json")
        if not path.is_file():
            raise InputError(f"{self.path}: is not the folder of a model; it has no config.json")
        data, _ = read_json(path)
        found = data.get("text_config", data) if isinstance(data, dict) else None
        if not isinstance(found, dict):
            raise InputError(f"{path}: must hold a model's settings")
        return found

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of all its weights, once loaded.

        Raises
        ------
        InputError
            If there are none.
        """
        total = sum(file.stat().st_size for file in Path(self.path).glob("*.safetensors"))
        if not total:
            raise InputError(f"{self.path}: has no weights, *.safetensors")
        return total * self._bytes(dtype) // self._bytes("auto")

    @property
    def max_context(self) -> int:
        """Tokens that it can attend to."""
        return self._number("max_position_embeddings")

    @property
    def hidden_size(self) -> int:
        """Width of its hidden states."""
        return self._number("hidden_size")

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Bytes that the cache of one token takes, keys and values of all layers."""
        config = self.config
        heads = self._number("num_attention_heads")
        width = config.get("head_dim") or self._number("hidden_size") // heads
        kv_heads = config.get("num_key_value_heads") or heads
        numbers = 2 * self._number("num_hidden_layers") * int(kv_heads) * int(width)
        return numbers * self._bytes(dtype)

    def _bytes(self, dtype: str) -> int:
        """Bytes of one number; ``auto`` is the type of the weights as they are stored."""
        if dtype == "auto":
            stored = self.config.get("dtype") or self.config.get("torch_dtype")
            dtype = str(stored or "bfloat16").removeprefix("torch.")
        return _BYTES.get(dtype, 2)

    def _number(self, key: str) -> int:
        value = self.config.get(key)
        if type(value) is not int or value < 1:
            raise InputError(
                f"{self.path}/config.json: {key} must be a whole number of at least 1, got {value}"
            )
        return value
