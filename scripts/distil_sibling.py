#!/usr/bin/env python3
"""Teach a small model to write as a large one with the same tokens does, for some minutes on a CPU.

    .venv-sglang/bin/python scripts/distil_sibling.py models/small models/large --steps 100

The large model answers some questions, and the small one, which is overwritten, learns the
probabilities of every token of the answers: it minimises the Kullback-Leibler divergence from the
large model's, in nats a token. The loss on answers that it did not learn from is printed before
and after. Enough for the two to agree on easy tokens, not for a good model.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from rich.progress import track
from torch.nn.functional import kl_div
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

ASKED = ("Explain", "Give an example of", "Write two sentences about", "Why do people need")
ABOUT = (
    "addition", "bread", "a friend", "the Moon", "rivers", "a computer", "music", "sleep", "trees",
    "money", "the number seven", "winter", "a story", "light", "a city", "learning", "birds",
    "fire", "a letter", "the sea", "time", "food", "a bridge", "history",
)  # fmt: skip
BATCH = 8


@dataclass(frozen=True)
class Answers:
    """A batch of prompts of one length and what a model answered, [BATCH, length].

    Attributes
    ----------
    mask
        0 where a prompt was filled up.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    prompt: int

    def said_by(self, model: PreTrainedModel) -> torch.Tensor:
        """Return a model's log-probabilities at every token of the answers, [tokens, V]."""
        logits = model(self.ids, attention_mask=self.mask).logits
        return logits[:, self.prompt - 1 : -1].log_softmax(-1).flatten(0, 1)


@torch.no_grad()
def answer(
    model: PreTrainedModel, folder: Path, tokens: int
) -> Iterator[tuple[Answers, torch.Tensor]]:
    """Let a model answer in so many tokens; yield batches, each with the model's probabilities."""
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    asked = [[{"role": "user", "content": f"{how} {what}."}] for what, how in product(ABOUT, ASKED)]
    for at in track(range(0, len(asked), BATCH), description="the large model answers"):
        prompts = tokenizer.apply_chat_template(
            asked[at : at + BATCH],
            add_generation_prompt=True,
            padding=True,
            return_tensors="pt",
            return_dict=True,
        )
        ids = model.generate(
            **prompts, min_new_tokens=tokens, max_new_tokens=tokens, do_sample=True
        )
        length = prompts["input_ids"].shape[1]
        mask = torch.ones_like(ids)
        mask[:, :length] = prompts["attention_mask"]
        answers = Answers(ids, mask, length)
        yield answers, answers.said_by(model)


def divergence(small: PreTrainedModel, answers: Answers, aim: torch.Tensor) -> torch.Tensor:
    """Return how far a model's probabilities are from those aimed at, in nats a token."""
    return kl_div(answers.said_by(small), aim, reduction="batchmean", log_target=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("small", type=Path, help="folder; its weights are replaced")
    parser.add_argument("large", type=Path, help="folder")
    parser.add_argument("--steps", type=int, default=100, help="batches to learn from")
    parser.add_argument("--tokens", type=int, default=32, help="length of an answer")
    parser.add_argument("--rate", type=float, default=5e-4, help="learning rate")
    options = parser.parse_args()
    torch.manual_seed(0)
    large = AutoModelForCausalLM.from_pretrained(options.large, dtype=torch.float32).eval()
    small = AutoModelForCausalLM.from_pretrained(options.small, dtype=torch.float32)
    *learnt, unseen = answer(large, options.large, options.tokens)

    def loss() -> float:
        small.eval()
        with torch.no_grad():
            return divergence(small, *unseen).item()

    before = loss()
    small.train()
    optimizer = torch.optim.AdamW(small.parameters(), lr=options.rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.rate, options.steps)
    for step in track(range(options.steps), description="the small model learns"):
        optimizer.zero_grad()
        divergence(small, *learnt[step % len(learnt)]).backward()
        torch.nn.utils.clip_grad_norm_(small.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    small.save_pretrained(options.small)
    print(
        f"loss on answers not learnt from: {before:.3f} before, {loss():.3f} after (nats a token)"
    )


if __name__ == "__main__":
    main()
