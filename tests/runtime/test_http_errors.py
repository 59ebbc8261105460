"""What cannot be done is said, in OpenAI's form, and breaks nothing."""

import httpx
import openai
import pytest

TEXT = {"model": "trmodel", "prompt": "a", "max_tokens": 2}
CHAT = {"model": "trmodel", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}

TEXT_PART = {"type": "text", "text": "hi"}


def post(server, body, path="completions"):
    kind = {"content": body} if isinstance(body, (str, bytes)) else {"json": body}
    return httpx.post(f"{server.url}/v1/{path}", **kind)


def error_of(reply):
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


@pytest.mark.parametrize(
    ("change", "param", "said"),
    [
        ({"prompt": None}, "prompt", "must be a text"),
        ({"prompt": ""}, "prompt", "not empty"),
        ({"prompt": []}, "prompt", "must be a text"),
        ({"prompt": [65, 256]}, "prompt", "from 0 to 255"),
        ({"prompt": ["a", 3]}, "prompt", "must be a text"),
        ({"prompt": "a" * 3999}, "prompt", "exceed the context of 4000"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": "2"}, "max_tokens", "whole number"),
        ({"max_tokens": True}, "max_tokens", "whole number"),
        ({"max_tokens": 2001}, "max_tokens", "at most 2000"),
        ({"n": 0}, "n", "at least 1"),
        ({"n": 17}, "n", "too many"),
        ({"n": 129}, "n", "at most 128"),
        ({"temperature": -1}, "temperature", "at least 0"),
        ({"temperature": 2.5}, "temperature", "at most 2"),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"seed": 1.5}, "seed", "whole number"),
        ({"stream": "yes"}, "stream", "boolean"),
        ({"stop": [""]}, "stop", "none empty"),
        ({"stop": 3}, "stop", "must be a text"),
        ({"stop": ["a"] * 17}, "stop", "at most 16"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "only with stream"),
        ({"logprobs": 0}, "logprobs", "not supported with token-level routing, as the prob"),
        ({"regex": "a+"}, "regex", "as what a grammar has read does not follow a request"),
        ({"guided_json": {}}, "guided_json", "as what a grammar has read"),
        ({"lora_path": "a"}, "lora_path", "as an adapter belongs to one model"),
        ({"image_data": ["a"]}, "image_data", "as its models hand over text"),
        ({"ignore_eos": "yes"}, "ignore_eos", "boolean"),
        ({"echo": True}, "echo", "not supported"),
        ({"best_of": 2}, "best_of", "not supported"),
        ({"suffix": "b"}, "suffix", "not supported"),
        ({"presence_penalty": 0.5}, "presence_penalty", "not supported"),
        ({"logit_bias": {"50": 1}}, "logit_bias", "not supported"),
        ({"max_token": 3}, "max_token", "unknown field"),
        ({"messages": []}, "messages", "unknown field"),
    ],
)
def test_a_text_completion_that_cannot_be_done(server, change, param, said):
    reply = post(server, TEXT | change)
    assert reply.status_code == 400, reply.text
    error = error_of(reply)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert said in error["message"]


@pytest.mark.parametrize(
    ("change", "param", "said"),
    [
        ({"messages": []}, "messages", "must not be empty"),
        ({"messages": "hi"}, "messages", "must be a list"),
        ({"messages": [{"role": "user"}]}, "messages", "is missing"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages", "role"),
        (
            {"messages": [{"role": "user", "content": [TEXT_PART, {"type": "image_url"}]}]},
            "messages",
            "messages[0].content[1]: a part of type image_url is not supported with token-level",
        ),
        (
            {"messages": [{"role": "user", "content": ["hi"]}]},
            "messages",
            "messages[0].content[0]: must be an object with type and text, got",
        ),
        (
            {"messages": [{"role": "user", "content": [TEXT_PART | {"text": None}]}]},
            "messages",
            'messages[0].content[0]: must be {"type": "text", "text": "..."}',
        ),
        (
            {"messages": [{"role": "user", "content": 3}]},
            "messages",
            "messages[0].content: must be a text or a list of parts, got 3",
        ),
        ({"tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "as what a grammar"),
        ({"structural_tag": "{}"}, "structural_tag", "as what a grammar"),
        ({"logprobs": True}, "logprobs", "not supported"),
        ({"prompt": "a"}, "prompt", "unknown field"),
        ({"chat_template_kwargs": "no"}, "chat_template_kwargs", "must be an object"),
        ({"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs", "no chat template"),
    ],
)
def test_a_chat_that_cannot_be_done(server, change, param, said):
    reply = post(server, CHAT | change, "chat/completions")
    assert reply.status_code == 400, reply.text
    error = error_of(reply)
    assert error["param"] == param
    assert said in error["message"]


def test_fields_that_change_nothing_are_taken(server):
    neutral = {"user": "me", "presence_penalty": 0, "logprobs": None, "best_of": 1, "echo": False}
    assert post(server, TEXT | neutral).status_code == 200
    neutral = {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}}
    neutral |= {"logprobs": False, "metadata": {"a": "b"}, "ignore_eos": True, "regex": None}
    neutral |= {"chat_template_kwargs": {}}
    neutral |= {"messages": [{"role": "user", "content": [TEXT_PART, TEXT_PART]}]}
    assert post(server, CHAT | neutral, "chat/completions").status_code == 200


@pytest.mark.parametrize("body", ["", "{", "[1, 2", '{"a": NaN}', b"\xff\xfe", '{"n": 1, "n": 2}'])
def test_what_is_no_json(server, body):
    reply = post(server, body)
    assert (reply.status_code, error_of(reply)["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("body", ["[]", "3", "null", '"text"'])
def test_json_that_is_no_object(server, body):
    reply = post(server, body)
    assert reply.status_code == 400
    assert "object" in error_of(reply)["message"]


def test_a_body_that_is_too_large(server):
    reply = post(server, TEXT | {"prompt": "a" * 100_001})
    assert (reply.status_code, error_of(reply)["code"]) == (413, "request_too_large")


def test_another_model(server):
    reply = post(server, TEXT | {"model": "gpt"})
    assert reply.status_code == 404
    assert error_of(reply)["code"] == "model_not_found"
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.completions.create(model="gpt", prompt="a")
        with pytest.raises(openai.BadRequestError, match="not supported"):
            client.completions.create(model="trmodel", prompt="a", echo=True)


def test_an_unknown_path_or_method(server):
    assert error_of(httpx.get(f"{server.url}/v1/embeddings"))["code"] == "unknown_url"
    reply = httpx.get(f"{server.url}/v1/completions")
    assert reply.status_code == 405
    assert error_of(reply)["message"]


def test_more_than_the_server_takes_is_told_to_come_again(server):
    body = TEXT | {"n": 16, "max_tokens": 500, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body) as busy:
        assert busy.status_code == 200
        reply = post(server, TEXT)
        assert reply.status_code == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert error_of(reply)["code"] == "rate_limit_exceeded"
        # Of several choices none is left behind when the last is refused.
        assert post(server, TEXT | {"n": 2}).status_code == 429
        assert server.stats()["n"] + server.stats()["queued"] == 16
    server.wait_until_empty()
    assert post(server, TEXT).status_code == 200
