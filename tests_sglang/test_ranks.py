"""A model split over two processes says what it says in one."""

import json
import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

STEPS = [
    [[1, [5, 6, 7]], [2, [9, 8, 7, 6, 5]]],
    [[2, [11]], [1, [12]]],
    [[1, [3, 4]], [2, [5]], [3, [21, 22]]],
]


def test_two_ranks_equal_a_pass_from_scratch(models):
    script = Path(__file__).parent / "split_in_two.py"
    done = subprocess.run(
        [sys.executable, script, models["small"]],
        input=json.dumps(STEPS),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=180.0,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    reference = AutoModelForCausalLM.from_pretrained(models["small"], dtype=torch.float32).eval()
    read = {}
    for step, logits, embedding in zip(STEPS, told["logits"], told["embedding"], strict=True):
        for place, (number, ids) in enumerate(step):
            read.setdefault(number, []).extend(ids)
            with torch.inference_mode():
                expected = reference(torch.tensor([read[number]])).logits[0, -1]
                row = reference.get_input_embeddings()(expected.argmax())
            assert (torch.tensor(logits[place]) - expected).abs().max() < 1e-3
            assert torch.allclose(torch.tensor(embedding[place]), row, atol=1e-6)
    assert told["kv_tokens"] == 0
