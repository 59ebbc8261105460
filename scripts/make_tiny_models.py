#!/usr/bin/env python3
"""Make tiny models with random weights and one tokenizer, for tests and for trying the server.

    python scripts/make_tiny_models.py OUT [--trio]

Writes the folders OUT/small (0.66 million parameters), OUT/large (26 million) and, for three
models, OUT/middle (4 million): Qwen3 in shape, the same on every run. They say nothing sensible,
but load, batch and hand over as real ones do. It needs transformers and torch (`make sglang-cpu`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 1024
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SHAPES = {
    "small": dict(hidden_size=128, intermediate_size=384, num_hidden_layers=2, heads=4),
    "middle": dict(hidden_size=256, intermediate_size=768, num_hidden_layers=4, heads=8),
    "large": dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=8, heads=8),
}
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = Path(__file__).parents[1] / "LICENSE"
"""What the tokenizer learns its words from."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes and some of the words that they make up."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        TEXT.read_text(encoding="utf-8").splitlines(),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[AddedToken(token, special=True) for token in SPECIAL],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    assert made.get_vocab_size() == VOCABULARY
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        chat_template=CHAT,
        clean_up_tokenization_spaces=False,
    )


def make_model(name: str) -> Qwen3ForCausalLM:
    """Return the model of one name, in float32."""
    shape = dict(SHAPES[name])
    heads = shape.pop("heads")
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=shape["hidden_size"] // heads,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        initializer_range=0.08,  # large enough for the next token to depend on those before it
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
        **shape,
    )
    torch.manual_seed(list(SHAPES).index(name))
    model = Qwen3ForCausalLM(config).to(torch.float32).eval()
    model.generation_config.eos_token_id = [2, 0]
    return model


def make(folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """Write models under a folder; return where each is."""
    tokenizer, paths = make_tokenizer(), {name: folder / name for name in names}
    for name, path in paths.items():
        make_model(name).save_pretrained(path)
        tokenizer.save_pretrained(path)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="OUT", type=Path)
    parser.add_argument("--trio", action="store_true", help="a third model, between the two")
    options = parser.parse_args()
    names = ("small", "middle", "large") if options.trio else ("small", "large")
    for name, path in make(options.folder, names).items():
        print(f"{name}: {path}")


if __name__ == "__main__":
    main()
