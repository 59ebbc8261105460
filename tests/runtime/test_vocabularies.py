"""Models that hand over tokens must mean the same by them; found in their folders alone."""

import json

import pytest

from trmodel.errors import InputError
from trmodel.runtime.engines.sglang.vocabulary import check_vocabularies, read_vocabulary

WORDS = {"a": 0, "b": 1, "ab": 2}
END = {"id": 3, "content": "<end>", "special": True}


@pytest.fixture
def model(tmp_path):
    """Write a model's folder, without weights; a file that is None is left out."""

    def write(name, vocab=WORDS, added=(END,), width=4, **files):
        folder = tmp_path / name
        folder.mkdir()
        files = {
            "tokenizer": {"model": {"type": "BPE", "vocab": vocab}, "added_tokens": list(added)},
            "config": {"vocab_size": width, "eos_token_id": 3},
        } | files
        for file, content in files.items():
            if content is not None:
                text = content if isinstance(content, str) else json.dumps(content)
                (folder / f"{file}.json").write_text(text)
        return folder

    return write


def refusal(*folders):
    with pytest.raises(InputError) as caught:
        check_vocabularies({folder.name: folder for folder in folders})
    assert len(caught.value.problems) == 1
    return str(caught.value)


def test_the_same_vocabulary_with_logits_of_another_width(model):
    paths = {"small": model("small"), "large": model("large", width=128)}
    found = check_vocabularies(paths)
    assert (found.size, found.width, found.end_ids) == (4, 4, {3})
    assert found.ids == WORDS | {"<end>": 3}


def test_tokens_with_scores_are_numbered_by_place(model):
    scored = [[token, -1.0] for token in WORDS]
    found = check_vocabularies({"dict": model("dict"), "list": model("list", vocab=scored)})
    assert found.ids["ab"] == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vocab": {"b": 0, "a": 1, "ab": 2}}, "token 0 is 'a' in small and 'b' in large"),
        ({"vocab": {"a": 0, "b": 1}}, "token 2 is 'ab' in small and nothing in large"),
        (
            {"vocab": WORDS | {"ba": 4}, "width": 5},
            "token 4 is nothing in small and 'ba' in large",
        ),
        (
            {"added": ({"id": 3, "content": "<fin>"},)},
            "token 3 is '<end>' in small and '<fin>' in large",
        ),
        (
            {"generation_config": {"eos_token_id": [3, 1]}},
            "token 1 ('b') ends a reply of large and not of small",
        ),
        (
            {"config": {"vocab_size": 4, "eos_token_id": 2}},
            "token 2 ('ab') ends a reply of large and not of small",
        ),
    ],
)
def test_the_first_difference_is_named(model, changes, said):
    message = refusal(model("small"), model("large", **changes))
    assert message.startswith(f"models: {said}; models that hand over tokens")


def test_every_model_is_compared(model):
    other = model("other", vocab={"b": 0, "a": 1, "ab": 2})
    assert "in first and 'b' in other" in refusal(model("first"), model("second"), other)


def test_ends_come_from_three_files(model):
    folder = model(
        "one",
        added=(END, {"id": 4, "content": "<stop>"}),
        width=8,
        config={"text_config": {"vocab_size": 8, "eos_token_id": 0}, "eos_token_id": [3]},
        generation_config={"eos_token_id": 1},
        tokenizer_config={"eos_token": {"content": "<stop>", "lstrip": False}},
    )
    found = read_vocabulary(folder)
    assert (found.end_ids, found.size, found.width) == ({0, 1, 3, 4}, 5, 8)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokenizer": None}, "has no tokenizer.json; transformers makes it"),
        ({"tokenizer": "{"}, "tokenizer.json: is not what it should be"),
        ({"tokenizer": {"model": {"vocab": 3}}}, "`$.model.vocab`"),
        ({"config": None}, "has no config.json"),
        ({"config": {"eos_token_id": 3}}, "has no config.json that says the model's vocab_size"),
        ({"config": {"vocab_size": "4"}}, "`$.vocab_size`"),
        ({"width": 3}, "has ids up to 3, its model only 3 embeddings"),
    ],
)
def test_a_folder_that_lacks_something_is_named(model, changes, said):
    message = refusal(model("small"), model("large", **changes))
    assert said in message
    assert "large" in message
    assert "\n" not in message


def test_no_folder(tmp_path):
    assert "no such folder" in refusal(tmp_path / "models")
