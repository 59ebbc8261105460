"""The tokenizer of a folder, against what transformers makes of all tokens at once."""

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers import models as kinds
from transformers import PreTrainedTokenizerFast

from trmodel.errors import InputError
from trmodel.runtime.engines.sglang.vocabulary import check_vocabularies
from trmodel.runtime.server.hf_tokenizer import HfTokenizer

TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"),
        st.sampled_from("aé€😀👨‍👩‍👧 ▁\n"),
    )
)


def pieces(tokenizer, tokens, prompt=()):
    decoder = tokenizer.decoder(prompt)
    return [*(decoder.feed([token]) for token in tokens), decoder.end()]


@pytest.fixture(scope="module")
def whole(models):
    """What is read, and what transformers makes of it."""
    return HfTokenizer(models["small"]), PreTrainedTokenizerFast.from_pretrained(models["small"])


@pytest.fixture(scope="module")
def spaced(tmp_path_factory):
    """As SentencePiece has it: a space before each word, bytes where a character is unknown."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for token in (*(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcé", "▁a", "▁b", "bc"):
        vocab[token] = len(vocab)
    merges = [("▁", "a"), ("▁", "b"), ("b", "c")]
    made = Tokenizer(kinds.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens([AddedToken(token, special=True) for token in ("<unk>", "<s>", "</s>")])
    folder = tmp_path_factory.mktemp("spaced")
    own = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="</s>")
    own.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"vocab_size": len(vocab)}))
    return HfTokenizer(folder), own


@given(tokens=st.lists(st.integers(0, 1023), max_size=40))
def test_any_tokens_give_what_they_give_at_once(whole, tokens):
    ours, theirs = whole
    assert "".join(pieces(ours, tokens)) == theirs.decode(tokens, skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["whole", "spaced"])
@given(text=TEXTS)
def test_a_text_comes_back_without_half_characters(request, kind, text):
    ours, _ = request.getfixturevalue(kind)
    made = pieces(ours, ours.encode(text))
    # One space more or less at the beginning is the business of a tokenizer with spaces.
    assert "".join(made) == text or (kind == "spaced" and " " + "".join(made) == text)
    assert not any("\ufffd" in piece for piece in made)


@pytest.mark.parametrize("kind", ["whole", "spaced"])
@given(text=TEXTS, data=st.data())
def test_a_reply_goes_on_with_its_prompt(request, kind, text, data):
    ours, theirs = request.getfixturevalue(kind)
    tokens = ours.encode("a b" + text)
    at = data.draw(st.integers(2, len(tokens)))
    prompts = (theirs.decode(tokens[: at - cut]) for cut in range(4))
    said = next(prompt for prompt in prompts if not prompt.endswith("\ufffd"))
    assert said + "".join(pieces(ours, tokens[at:], tokens[:at])) == theirs.decode(tokens)


def test_words_after_a_prompt_keep_their_space(spaced):
    ours, _ = spaced
    prompt, reply = ours.encode("a"), ours.encode(" b")[-1:]
    assert "".join(pieces(ours, reply, prompt)) == " b"
    assert "".join(pieces(ours, reply)) == "b"


def test_a_conversation_is_put_in_the_models_words(whole, models):
    ours, theirs = whole
    prompt = ours.encode_chat([("developer", "Be brief."), ("user", "Hi 👋")])
    assert theirs.decode(prompt) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi 👋<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (ours.vocabulary, ours.end_ids) == (1024, (0, 2))
    assert check_vocabularies(models).end_ids == {0, 2}
    reply = (*ours.encode("ok"), 2)
    assert "".join(pieces(ours, reply)) == "ok"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses them: roles must alternate"),
        (None, "have no chat template; ask for a text"),
    ],
)
def test_a_conversation_that_the_models_do_not_take(models, tmp_path, template, said):
    folder = shutil.copytree(
        models["small"], tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors")
    )
    (folder / "chat_template.jinja").unlink()
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(InputError, match=said):
        HfTokenizer(folder).encode_chat([("user", "a")])


def test_a_chat_template_is_told_more(models, tmp_path):
    folder = shutil.copytree(
        models["small"], tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors")
    )
    template = "{{ messages[0].content }}{% if not enable_thinking %}{{ 1 + more }}{% endif %}"
    (folder / "chat_template.jinja").write_text(template)
    ours = HfTokenizer(folder)
    asked = [("user", "a")]
    assert ours.encode_chat(asked, {"enable_thinking": True}) == ours.encode("a")
    assert ours.encode_chat(asked, {"enable_thinking": False, "more": 2}) == ours.encode("a3")
    with pytest.raises(InputError, match="refuses them: unsupported operand type"):
        ours.encode_chat(asked, {"more": "2"})
    with pytest.raises(InputError, match="chat_template, tokenize cannot be set there"):
        ours.encode_chat(asked, {"tokenize": True, "chat_template": "{{ 1 }}", "more": 2})


def test_a_tokenizer_that_cannot_be_read_is_one_line(models, tmp_path):
    folder = shutil.copytree(
        models["small"], tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors")
    )
    content = json.loads((folder / "tokenizer.json").read_text())
    content["decoder"] = {"type": "Nonsense"}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="model: its tokenizer cannot be read") as caught:
        HfTokenizer(folder)
    assert "\n" not in str(caught.value)


def test_long_prompts_are_quick_and_threads_may_share(whole):
    from concurrent.futures import ThreadPoolExecutor

    ours, _ = whole
    text = "The licence of a work 😀 " * 2000
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ours.encode, [text] * 8))) == 1
