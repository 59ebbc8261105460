"""What clients of other servers may ask for and is not done here, with the reason.

Most of it is refused because a reply is written by several models: what one of them knows besides
the tokens stays behind when a request is handed to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trmodel.runtime.server.errors import ApiError

_ROUTED = " with token-level routing, as "
TEXT_ONLY = _ROUTED + "its models hand over text and nothing else"

_REFUSED: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    _ROUTED + "the probabilities of a token are those of whichever model wrote it": {
        "logprob_start_len": (-1,),
        "logprobs": (False,),
        "prompt_logprobs": (),
        "return_hidden_states": (False,),
        "return_logprob": (False,),
        "return_tokens_as_token_ids": (False,),
        "token_ids_logprob": ([],),
        "top_logprobs": (0,),
        "top_logprobs_num": (0,),
    },
    _ROUTED + "what a grammar has read does not follow a request from model to model": {
        "ebnf": (),
        "guided_choice": (),
        "guided_decoding_backend": (),
        "guided_grammar": (),
        "guided_json": (),
        "guided_regex": (),
        "json_schema": (),
        "regex": (),
        "response_format": ({"type": "text"},),
        "structural_tag": (),
        "structured_outputs": (),
    },
    _ROUTED + "what a sampler has counted does not follow a request from model to model": {
        "custom_logit_processor": (),
        "frequency_penalty": (0,),
        "logit_bias": ({},),
        "min_tokens": (0,),
        "presence_penalty": (0,),
        "repetition_penalty": (1,),
    },
    _ROUTED + "an adapter belongs to one model, and several write a reply": {
        "lora_id": (),
        "lora_path": (),
        "lora_request": (),
    },
    TEXT_ONLY: {
        "audio": (),
        "audio_data": ([],),
        "image_data": ([],),
        "mm_processor_kwargs": ({},),
        "modalities": (["text"],),
        "video_data": ([],),
    },
    "": {
        "best_of": (1,),
        "echo": (False,),
        "function_call": ("none",),
        "functions": ([],),
        "length_penalty": (1,),
        "min_p": (0,),
        "prediction": (),
        "reasoning_effort": (),
        "skip_special_tokens": (True,),
        "stop_token_ids": ([],),
        "suffix": ("",),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "top_k": (-1, 0),
        "use_beam_search": (False,),
        "verbosity": (),
        "web_search_options": (),
    },
}
"""By the reason, the fields and the values, null besides, with which they change nothing."""


def without_refused(data: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of a body what is not supported and changes nothing.

    Raises
    ------
    ApiError
        For a field that would change something.
    """
    rest = dict(data)
    for reason, fields in _REFUSED.items():
        for field in fields.keys() & data.keys():
            value = rest.pop(field)
            if value is not None and not any(_same(value, each) for each in fields[field]):
                message = f"{field}: is not supported{reason}"
                raise ApiError(400, message, field, "unsupported_parameter")
    return rest


def _same(value: Any, neutral: Any) -> bool:
    """In Python 0 == False, but logprobs of 0 asks for something."""
    return bool(value == neutral) and (type(value) is bool) == (type(neutral) is bool)
