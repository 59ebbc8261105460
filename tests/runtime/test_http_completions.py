"""OpenAI's Python client is served as it is used to."""

import asyncio
import time

import httpx
import openai
import pytest

MESSAGES = [{"role": "user", "content": "Say something."}]


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def text_of(client, **changes):
    arguments = {"model": "trmodel", "prompt": "Once", "max_tokens": 30, "seed": 1} | changes
    return client.completions.create(**arguments)


def test_models(client):
    assert [model.id for model in client.models.list()] == ["trmodel"]
    assert client.models.retrieve("trmodel").id == "trmodel"
    assert client.models.retrieve("trmodel").max_model_len == 4000
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_a_completion(client):
    reply = text_of(client)
    (choice,) = reply.choices
    assert (len(choice.text), choice.finish_reason) == (30, "length")
    assert reply.usage.model_dump(include={"prompt_tokens", "completion_tokens"}) == {
        "prompt_tokens": 4,
        "completion_tokens": 30,
    }
    assert reply.usage.total_tokens == 34


def test_the_same_seed_gives_the_same_reply_and_another_another(client):
    first = text_of(client).choices[0].text
    assert text_of(client).choices[0].text == first
    assert text_of(client, seed=2).choices[0].text != first
    assert text_of(client, seed=None).choices[0].text != first
    assert text_of(client, seed=-5, temperature=0.3, top_p=0.9).choices[0].text != first


def test_several_choices_differ_and_can_be_repeated(client):
    texts = [choice.text for choice in text_of(client, n=3).choices]
    assert len(set(texts)) == 3
    assert texts[0] == text_of(client).choices[0].text
    assert [choice.text for choice in text_of(client, n=3).choices] == texts


def test_several_prompts_of_text_or_tokens(client):
    reply = text_of(client, prompt=["Once", "Twice"], n=2)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert reply.usage.prompt_tokens == 9
    assert text_of(client, prompt=list(b"Once")).choices[0].text == text_of(client).choices[0].text
    assert text_of(client, prompt=[[65], [66, 67]]).usage.prompt_tokens == 3


def test_a_stream_is_the_reply_in_pieces(client):
    whole = text_of(client, n=2)
    texts, ends, used = ["", ""], ["", ""], None
    for chunk in text_of(client, n=2, stream=True, stream_options={"include_usage": True}):
        used = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            ends[choice.index] += choice.finish_reason or ""
    assert texts == [choice.text for choice in whole.choices]
    assert ends == ["length", "length"]
    assert used == whole.usage


def test_chat(client):
    def chat(**changes):
        arguments = {"model": "trmodel", "messages": MESSAGES, "seed": 4} | changes
        return client.chat.completions.create(**arguments)

    whole = chat(max_completion_tokens=12)
    message = whole.choices[0].message
    assert (message.role, len(message.content)) == ("assistant", 12)
    parts = [{"role": "user", "content": [{"type": "text", "text": "Say something."}]}]
    assert chat(max_tokens=12, messages=parts).choices[0].message.content == message.content
    chunks = list(chat(max_tokens=12, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == message.content
    assert chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_ends_before_a_stop_string(server, client, stream):
    whole = text_of(client).choices[0].text
    stop = [whole[11:15], "none of it"]
    expected = whole[: whole.index(stop[0])]
    reply = text_of(client, stop=stop, stream=stream)
    choices = [chunk.choices[0] for chunk in reply] if stream else reply.choices
    assert "".join(choice.text for choice in choices) == expected
    assert choices[-1].finish_reason == "stop"
    if not stream:
        assert reply.usage.completion_tokens == len(expected) + 4
    server.wait_until_empty()


def test_text_held_back_for_a_stop_string_comes_at_the_end(client):
    whole = text_of(client).choices[0].text
    reply = text_of(client, stop=whole[-2:] + "?")
    assert reply.choices[0].text == whole


def test_a_stream_ends_in_done(server):
    body = {"model": "trmodel", "prompt": "a", "max_tokens": 2, "stream": True}
    reply = httpx.post(f"{server.url}/v1/completions", json=body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in reply.text.split("\n\n") if line]
    assert all(line.startswith("data: {") for line in lines[:-1])
    assert lines[-1] == "data: [DONE]"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_ends_its_requests_everywhere(server, stream):
    body = {"model": "trmodel", "prompt": "a", "max_tokens": 2000, "n": 12, "stream": stream}

    async def read():
        async with httpx.AsyncClient() as client:
            await client.post(f"{server.url}/v1/completions", json=body)

    async def go_soon():
        reading = asyncio.create_task(read())
        while server.stats()["n"] < 8:
            await asyncio.sleep(0.05)
        reading.cancel()

    asyncio.run(go_soon())
    started = time.monotonic()
    server.wait_until_empty(5.0)
    assert time.monotonic() - started < 5.0
    metrics = httpx.get(f"{server.url}/metrics").text
    assert 'trmodel:requests_total{outcome="aborted"}' in metrics
