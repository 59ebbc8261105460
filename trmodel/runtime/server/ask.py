"""What a client asks for: the bodies of the two kinds of completion, checked.

A field that is not known, or that asks for something that is not done here, is refused: a reply
that silently means something else than was asked for is worse than none.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trmodel.documents import Number, WholeNumber, shown, validation_problems
from trmodel.documents.words import scalar
from trmodel.errors import InputError
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.messages import Sampling
from trmodel.runtime.server.errors import ApiError
from trmodel.runtime.server.refusals import TEXT_ONLY, without_refused
from trmodel.runtime.server.tokenizer import Tokenizer

MOST_CHOICES = 128
MOST_STOPS = 16
DEFAULT_TOKENS = 16
"""Of a text completion, as OpenAI has it; a chat goes on as long as it may."""
_NEXT_CHOICE = 1_000_003
"""What the seeds of a request's choices differ by."""

IGNORED = (
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
)
"""Fields that have no effect on a reply."""


@dataclass(frozen=True)
class Choice:
    """One reply to be made."""

    prompt: tuple[int, ...]
    sampling: Sampling


@dataclass(frozen=True)
class Ask:
    """A request of a client.

    Attributes
    ----------
    choices
        n for each prompt.
    prompt_tokens
        Of every prompt once.
    """

    chat: bool
    choices: tuple[Choice, ...]
    prompt_tokens: int
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool


class _StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    include_usage: bool = False
    include_obfuscation: bool = False


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    model: str
    ignore_eos: bool | None = None
    n: Annotated[WholeNumber, Field(ge=1, le=MOST_CHOICES)] | None = None
    seed: WholeNumber | None = None
    stop: Any = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[WholeNumber, Field(ge=1)] | None = None


class _TextBody(_Body):
    prompt: Any


def _text(content: Any) -> Any:
    """Join a content of parts, which must all be text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError(f"must be a text or a list of parts, got {scalar(content)}")
    problems = [f"[{i}]{why}" for i, part in enumerate(content) if (why := _wrong_part(part))]
    if problems:
        raise InputError(problems)
    return "".join(part["text"] for part in content)


def _wrong_part(part: Any) -> str | None:
    if not isinstance(part, dict):
        return f": must be an object with type and text, got {scalar(part)}"
    kind = part.get("type")
    if isinstance(kind, str) and kind != "text":
        return f": a part of type {shown(kind)[:60]} is not supported{TEXT_ONLY}"
    if set(part) != {"type", "text"} or not isinstance(part["text"], str):
        return ': must be {"type": "text", "text": "..."}'
    return None


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_text)]
    name: str | None = None


class _ChatBody(_Body):
    messages: Annotated[list[_Message], Field(min_length=1)]
    max_completion_tokens: Annotated[WholeNumber, Field(ge=1)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


AnyBody = TypeVar("AnyBody", bound=_Body)


def read_ask(data: Any, chat: bool, config: ServerConfig, tokenizer: Tokenizer) -> Ask:
    """Check a body and work out what is to be done.

    Raises
    ------
    ApiError
        Saying which field is wrong, and why.
    """
    if not isinstance(data, dict):
        raise ApiError(400, "the body must be a JSON object")
    data = {k: v for k, v in without_refused(data).items() if k not in IGNORED}
    body: _ChatBody | _TextBody
    if chat:
        body = _parsed(_ChatBody, data)
        most, field = body.max_completion_tokens or body.max_tokens, "max_completion_tokens"
        prompts = [_conversation(body, tokenizer)]
    else:
        body = _parsed(_TextBody, data)
        most, field = body.max_tokens or DEFAULT_TOKENS, "max_tokens"
        prompts = _prompts(body.prompt, tokenizer)
    if body.model != config.http.model_name:
        raise ApiError(
            404,
            f"the model {body.model!r} does not exist; there is {config.http.model_name}",
            "model",
            "model_not_found",
        )
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options: only with stream", "stream_options")
    n = body.n or 1
    if n * len(prompts) > min(MOST_CHOICES, config.max_live + config.max_queue):
        raise ApiError(400, f"n: {n * len(prompts)} replies in one request are too many", "n")
    seed = secrets.randbits(48) if body.seed is None else body.seed
    choices: list[Choice] = []
    for prompt in prompts:
        length = _length(len(prompt), most, field, config)
        for _ in range(n):
            sampling = Sampling(
                max_tokens=length,
                temperature=1.0 if body.temperature is None else body.temperature,
                top_p=1.0 if body.top_p is None else body.top_p,
                seed=(seed + len(choices) * _NEXT_CHOICE) % (1 << 63),
                stop_ids=() if body.ignore_eos else tokenizer.end_ids,
            )
            choices.append(Choice(prompt, sampling))
    return Ask(
        chat,
        tuple(choices),
        sum(map(len, prompts)),
        _stops(body.stop),
        bool(body.stream),
        body.stream_options is not None and body.stream_options.include_usage,
    )


def _parsed(cls: type[AnyBody], data: dict[str, Any]) -> AnyBody:
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        message = validation_problems(error, "body")[0].removeprefix("body: ")
        unknown = error.errors()[0]["type"] == "extra_forbidden"
        code = "unknown_parameter" if unknown else None
        raise ApiError(400, message, str(error.errors()[0]["loc"][0]), code) from None


def _conversation(body: _ChatBody, tokenizer: Tokenizer) -> tuple[int, ...]:
    settings = body.chat_template_kwargs or {}
    try:
        return tokenizer.encode_chat([(m.role, m.content) for m in body.messages], settings)
    except InputError as error:
        field = "chat_template_kwargs" if settings else "messages"
        raise ApiError(400, f"{field}: {error}", field) from None


def _prompts(prompt: Any, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """Take one prompt or several, each a text or tokens."""
    one = isinstance(prompt, str) or (
        isinstance(prompt, list) and bool(prompt) and all(type(x) is int for x in prompt)
    )
    result = []
    for each in [prompt] if one else prompt if isinstance(prompt, list) else []:
        if isinstance(each, str):
            result.append(tokenizer.encode(each))
        elif isinstance(each, list) and all(
            type(x) is int and 0 <= x < tokenizer.vocabulary for x in each
        ):
            result.append(tuple(each))
        else:
            result = []
            break
    if not result or not all(result):
        raise ApiError(
            400,
            "prompt: must be a text that is not empty, a list of tokens from 0 to "
            f"{tokenizer.vocabulary - 1}, or a list of either",
            "prompt",
        )
    return result


def _stops(stop: Any) -> tuple[str, ...]:
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if (
        not isinstance(stops, list)
        or len(stops) > MOST_STOPS
        or not all(isinstance(s, str) and s for s in stops)
    ):
        raise ApiError(
            400, f"stop: must be a text or a list of at most {MOST_STOPS}, none empty", "stop"
        )
    return tuple(stops)


def _length(prompt: int, most: int | None, field: str, config: ServerConfig) -> int:
    """Work out how long a reply may become."""
    context = config.context_tokens
    room = context - prompt
    if most is not None and most > config.max_tokens:
        raise ApiError(400, f"{field}: must be at most {config.max_tokens}, got {most}", field)
    if room < (most or 1):
        raise ApiError(
            400,
            f"a prompt of {prompt} tokens and a reply of {most or 1} exceed the context of "
            f"{context} tokens",
            "messages" if field == "max_completion_tokens" else "prompt",
            "context_length_exceeded",
        )
    return min(config.max_tokens, room) if most is None else most
