"""Incremental decoding, against decoding all at once, without any tokenizer installed."""

from hypothesis import given
from hypothesis import strategies as st

from trmodel.runtime.server.hf_tokenizer import HfDecoder

SPECIAL = 256


def of_bytes(tokens):
    """Tokens are bytes, as in byte-level vocabularies."""
    return bytes(tokens).decode("utf-8", "replace")


def of_words(tokens):
    """Every word brings a space before it, but for the first, as in SentencePiece's."""
    return "".join(" " + "abc"[token % 3] if token % 2 else "xyz"[token % 3] for token in tokens)[
        tokens[:1] != [] and tokens[0] % 2 :
    ]


def decoded(decode, tokens, prompt=()):
    decoder = HfDecoder(decode, frozenset([SPECIAL]), prompt)
    pieces = [decoder.feed([token]) for token in tokens]
    return [*pieces, decoder.end()]


@given(st.binary(max_size=60))
def test_any_bytes_give_what_they_give_at_once(data):
    assert "".join(decoded(of_bytes, data)) == of_bytes(data)


@given(st.lists(st.sampled_from(["é", "€", "😀", "a", "\ufffd"]), max_size=20), st.data())
def test_no_half_character_is_shown_and_none_waits_longer_than_needed(characters, data):
    text = "".join(characters)
    broken = data.draw(st.binary(max_size=3))
    pieces = decoded(of_bytes, text.encode() + broken)
    whole = of_bytes(text.encode() + broken)
    assert "".join(pieces) == whole
    if not broken and "\ufffd" not in text:
        assert all("\ufffd" not in piece for piece in pieces)
        ends = {len("".join(characters[:i]).encode()) for i in range(1, len(characters) + 1)}
        assert {at + 1 for at, piece in enumerate(pieces) if piece} == ends


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_reply_goes_on_with_a_prompt_that_ends_within_a_character(before, after):
    whole = (before + "€" + after).encode("utf-8", "replace")
    at = len(before.encode("utf-8", "replace")) + 2
    pieces = decoded(of_bytes, whole[at:], tuple(whole[:at]))
    assert "".join(pieces) == of_bytes(whole)[len(before) :]


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_spaces_before_words(prompt, reply):
    assert "".join(decoded(of_words, reply)) == of_words(reply)
    assert (
        "".join(decoded(of_words, reply, prompt))
        == of_words(prompt + reply)[len(of_words(prompt)) :]
    )


def test_special_tokens_have_no_text_and_come_between_the_bytes_of_a_character():
    euro = "€".encode()
    tokens = [SPECIAL, euro[0], SPECIAL, euro[1], euro[2], SPECIAL]
    assert "".join(decoded(of_bytes, tokens)) == "€"
    assert "".join(decoded(of_bytes, [97], [SPECIAL] * 20)) == "a"
