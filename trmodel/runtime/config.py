"""The server's file: what ``trmodel serve --config FILE`` reads, in YAML or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from trmodel.documents import Document, Name, Number, StrPath, WholeNumber, parse_document, shown
from trmodel.errors import InputError

Positive = Annotated[Number, Field(gt=0)]
Count = Annotated[WholeNumber, Field(ge=1)]


class HttpConfig(Document):
    """Where the front end listens."""

    host: str = "127.0.0.1"
    port: Annotated[WholeNumber, Field(ge=0, le=65535)] = Field(
        default=8000, description="0 takes a free one."
    )
    model_name: Name = Field(default="trmodel", description="What clients call the server's model.")
    admin_key: Name | None = Field(
        default=None,
        description="Bearer token that changes of thresholds need; without one they are taken "
        "from this machine alone.",
    )
    max_body_bytes: Count = 4 * 2**20
    drain_s: Annotated[Number, Field(ge=0)] = Field(
        default=30.0, description="So long requests may go on once the server is told to end."
    )


class TransportConfig(Document):
    """How the processes reach each other."""

    front: str | None = Field(
        default=None, description="Address of the front end, tcp:// or ipc://."
    )
    models: Mapping[Name, str] = Field(
        default={}, description="Address of each model's subserver; those left out are local."
    )
    remote: tuple[Name, ...] = Field(
        default=(), description="Models whose subserver is started by hand, on another machine."
    )
    keys: str | None = Field(default=None, description="File made by 'trmodel keys', for TCP.")
    starting_s: Positive | None = Field(
        default=None,
        description="So long every subserver may take until it answers: 60, or 900 with sglang, "
        "when left out.",
    )


class RetuneConfig(Document):
    """Re-estimation of the routing while serving."""

    mode: Literal["off", "advise", "on"] = "off"
    every_s: Positive = 20.0
    margin_percent: Annotated[Number, Field(ge=0)] = 0.5


class ModelConfig(Document):
    """One model of the SGLang engine."""

    path: str = Field(description="Folder of its weights.")
    cores: tuple[Annotated[WholeNumber, Field(ge=0)], ...] = Field(
        default=(), description="Cores that its process runs on; all when left out."
    )
    gpu: Annotated[WholeNumber, Field(ge=0)] = Field(default=0, description="Its first GPU.")
    tp: Count = Field(default=1, description="GPUs that it is split over.")
    kv_tokens: Count | None = Field(
        default=None,
        description="Tokens that its cache holds, in place of what its memory has room for; where "
        "it is too small, caches of requests that wait are dropped and read again.",
    )


class SglangConfig(Document):
    """What all SGLang engines of a server have in common."""

    device: Literal["cpu", "cuda"] = "cuda"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    workspace_fraction: Annotated[Number, Field(ge=0, lt=1)] = Field(
        default=0.12, description="Of a GPU's memory, kept free of weights and caches."
    )
    cuda_graphs: bool = True
    extend_tokens: Count = Field(
        default=512, description="New tokens of a batch up to which extends have CUDA graphs."
    )
    arguments: Mapping[Name, Any] = Field(
        default={}, description="More of SGLang's own ServerArgs, as they are."
    )


class ServerConfig(Document):
    """One server."""

    profile: str | None = Field(
        default=None,
        description="A built-in name or a file; a100 when left out, with the replay engine.",
    )
    routing: str | None = None
    engine: Literal["replay", "sglang"] = "replay"
    models: Mapping[Name, ModelConfig] = Field(
        default={}, description="Of the sglang engine: the models by name, in order."
    )
    sglang: SglangConfig = SglangConfig()
    policy: Name = "bernoulli"
    policy_options: Mapping[str, Any] = {}
    thresholds: str = Field(
        default="tune",
        description="A file that 'trmodel tune -o' wrote; 'tune' to tune at the start; 'eager'.",
    )
    force_thresholds: bool = Field(
        default=False, description="Take thresholds that were tuned for other names all the same."
    )
    p: Annotated[Number, Field(ge=0, le=1)] | None = None
    max_live: Count = Field(default=16, description="Requests that run at a time, N.")
    max_queue: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=256, description="Requests that may wait; more get 429."
    )
    max_batch: Count | None = None
    hold_ms: Positive = Field(
        default=1000.0, description="Longest that a request waits for a threshold."
    )
    max_tokens: Count = Field(default=4096, description="The most that one request may ask for.")
    max_context: Count = Field(default=32768, description="Tokens of a prompt and its reply.")
    kv_tokens: Count | None = Field(
        default=None,
        description="Tokens that each model's cache holds, of all requests together: one is "
        "admitted only when its prompt and its longest reply have room. None for no limit.",
    )
    http: HttpConfig = HttpConfig()
    transport: TransportConfig = TransportConfig()
    retune: RetuneConfig = RetuneConfig()

    @property
    def context_tokens(self) -> int:
        """Tokens of a prompt and its reply that there is room for."""
        return min(self.max_context, self.kv_tokens or self.max_context)


def _loader() -> Any:
    """Return PyYAML's safe loader, which here refuses a setting that is given twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            known = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in known:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} appears twice; keep one", problem_mark=key.start_mark
                    )
                known.add(key.value)
            return super().construct_mapping(node, deep)

    return Loader


def load_config(path: StrPath) -> ServerConfig:
    """Read a server's file.

    Raises
    ------
    InputError
        With every problem of it.
    """
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            data = yaml.load(file, _loader())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text in UTF-8"
        raise InputError(f"{shown(path)}: cannot be read: {reason}") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where else ""
        why = getattr(error, "problem", None) or "it cannot be read"
        raise InputError(f"{shown(path)}: is no YAML{line}: {why}") from None
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise InputError(f"{shown(path)}: must hold named settings, such as 'profile: a100'")
    return parse_document(ServerConfig, data, shown(path))
