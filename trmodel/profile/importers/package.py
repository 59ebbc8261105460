"""The optional package aiconfigurator-core: found, silenced and asked in one place.

NVIDIA's aiconfigurator-core (Apache-2.0) estimates a step of a model server from measurements of
its operators. Only its supported facade is called, and its lists of systems and models are read;
nothing of it is copied. It must never look for a model on the network, so every name is checked
against what it ships first.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from trmodel.errors import InputError, UsageError

DISTRIBUTION = "aiconfigurator-core"
NEEDED = "0.12"
INSTALL = "pip install 'trmodel[aiconfigurator]' (there are wheels for Linux on x86-64 only)"
BACKENDS = {"sglang": "SGLang", "vllm": "vLLM", "trtllm": "TensorRT-LLM"}

EXTRA_MODELS: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-4B": {
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": 36,
        "hidden_size": 2560,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9728,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
}
"""Dimensions of models that the package has measurements for, but no configuration."""


@dataclass(frozen=True)
class Model:
    """A model that the package can be asked about without a download.

    Parameters
    ----------
    name
        As the user gave it.
    path
        What to hand to the package: a name that it ships, or a folder with a ``config.json``.
    config
        The parsed ``config.json``; of a model with several parts, that of the language model.
    """

    name: str
    path: str
    config: dict[str, Any]

    @property
    def short_name(self) -> str:
        """The last part of the name or path: what a routing calls the model."""
        return Path(self.name).name or self.name


class Package:
    """The installed package, checked to be the version whose facade is known.

    Raises
    ------
    UsageError
        If it is missing, cannot be imported or is another version; says what to install.
    """

    def __init__(self) -> None:
        try:
            self.version = metadata.version(DISTRIBUTION)
            root = importlib.import_module("aiconfigurator_core")
            self.sdk: Any = importlib.import_module("aiconfigurator_core.sdk")
            self.database: Any = importlib.import_module("aiconfigurator_core.sdk.perf_database")
        except metadata.PackageNotFoundError:
            raise UsageError(f"{DISTRIBUTION} is not installed: {INSTALL}") from None
        except ImportError as error:
            reason = _first_line(error)
            raise UsageError(f"{DISTRIBUTION} cannot be imported ({reason}): {INSTALL}") from None
        if not self.version.startswith(f"{NEEDED}."):
            raise UsageError(
                f"{DISTRIBUTION} {self.version} is installed, {NEEDED} is needed: {INSTALL}"
            )
        self.folder = Path(root.__path__[0])

    def choose_version(self, system: str, backend: str, version: str | None) -> str:
        """Return the version of the backend to use on a system; None for the package's current.

        Raises
        ------
        UsageError
            If there are no data for the backend, the system or the version; names what there is.
        """
        if backend not in BACKENDS:
            raise UsageError(f"backend: unknown {backend!r}; there are {', '.join(BACKENDS)}")
        systems = [name for name in self._systems() if self._slots(name, backend)]
        if system not in systems:
            raise UsageError(
                f"system: {DISTRIBUTION} {self.version} has no {backend} data for {system!r}; "
                f"there are {', '.join(systems)}"
            )
        slots = self._slots(system, backend)
        if version is None:
            return slots["current"]
        if version not in slots and version not in slots.values():
            raise UsageError(
                f"version: {DISTRIBUTION} {self.version} has no data of {backend} {version} for "
                f"{system}; there are {', '.join(dict.fromkeys(slots.values()))}"
            )
        return slots.get(version, version)

    def find_model(self, name: str, scratch: Path) -> Model:
        """Return a model that the package ships, or that a folder describes.

        Parameters
        ----------
        name
            A name such as ``Qwen/Qwen3-0.6B``, or a folder with a ``config.json``.
        scratch
            An existing folder for configurations that the package lacks.

        Raises
        ------
        InputError
            If there is no such model, with the names there are; if the configuration is not JSON.
        """
        path, config_file = name, self._config_file(name)
        if (Path(name) / "config.json").is_file():
            config_file = Path(name) / "config.json"
        elif name in EXTRA_MODELS:
            config_file = scratch / name.replace("/", "--") / "config.json"
            config_file.parent.mkdir(exist_ok=True)
            config_file.write_text(json.dumps(EXTRA_MODELS[name]))
            path = str(config_file.parent)
        if not config_file.is_file():
            known = sorted({*self._models(), *EXTRA_MODELS})
            owner = name.partition("/")[0]
            near = [each for each in known if each.startswith(f"{owner}/")] or known
            raise InputError(
                f"model {name!r}: {DISTRIBUTION} {self.version} has no configuration of it; give a "
                f"folder with its config.json, or one of {', '.join(near)}"
            )
        try:
            config = json.loads(config_file.read_text())
            config = config.get("text_config", config)
        except (OSError, ValueError, AttributeError) as error:
            raise InputError(
                f"model {name!r}: {config_file} is not a model configuration: {_first_line(error)}"
            ) from None
        return Model(name, path, config)

    def _models(self) -> list[str]:
        names = (path.name for path in (self.folder / "model_configs").glob("*_config.json"))
        return [
            name.removesuffix("_config.json").replace("--", "/", 1)
            for name in names
            if not name.endswith("_hf_quant_config.json")
        ]

    def _config_file(self, name: str) -> Path:
        return self.folder / "model_configs" / f"{name.replace('/', '--')}_config.json"

    def _systems(self) -> list[str]:
        return sorted(path.stem for path in (self.folder / "systems").glob("*.yaml"))

    def _slots(self, system: str, backend: str) -> dict[str, str]:
        """Versions by slot ("current", "previous", "next"); none without data."""
        return self.database.get_version_slots(system, backend) or {}


@contextlib.contextmanager
def opened() -> Iterator[tuple[Package, Path]]:
    """Give the package, with its log held to errors, and a scratch folder for configurations.

    Raises
    ------
    UsageError
        See :class:`Package`.
    """
    log = logging.getLogger("aiconfigurator_core")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            yield Package(), Path(scratch)
    finally:
        log.setLevel(level)


@contextlib.contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turn whatever the package raises into an InputError of one line that begins with ``what``."""
    try:
        yield
    except Exception as error:
        raise InputError(f"{what}: {DISTRIBUTION} refuses: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
