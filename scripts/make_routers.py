#!/usr/bin/env python3
"""Make small routers with random weights, in the layouts of the released ones.

    python scripts/make_routers.py FOLDER --hidden 64 --vocabulary 512

It writes citer.safetensors, co-llm.safetensors and r2r.safetensors, for tests and demonstrations
with models of that hidden size and vocabulary. Their decisions mean nothing, but are spread enough
for a threshold to be calibrated. Needs torch and safetensors.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file


def linear(name: str, out: int, into: int, draw: torch.Generator) -> dict[str, Any]:
    """Return a linear layer that keeps the scale of what it reads."""
    return {
        f"{name}.weight": torch.randn(out, into, generator=draw) / into**0.5,
        f"{name}.bias": 0.1 * torch.randn(out, generator=draw),
    }


def norm(name: str, width: int, draw: torch.Generator) -> dict[str, Any]:
    """Return a norm near the identity."""
    return {
        f"{name}.weight": 1.0 + 0.1 * torch.randn(width, generator=draw),
        f"{name}.bias": 0.1 * torch.randn(width, generator=draw),
    }


def citer(hidden: int, seed: int = 0) -> dict[str, Any]:
    """Return the state of a CITER ConfidenceModel."""
    draw = torch.Generator().manual_seed(seed)
    return {
        **linear("mlp.0", 2 * hidden, hidden, draw),
        **norm("mlp.1", 2 * hidden, draw),
        "mlp.1.running_mean": 0.1 * torch.randn(2 * hidden, generator=draw),
        "mlp.1.running_var": 0.5 + torch.rand(2 * hidden, generator=draw),
        "mlp.1.num_batches_tracked": torch.tensor(1),
        **linear("mlp.4", hidden, 2 * hidden, draw),
        **linear("linear", 1, hidden, draw),
    }


def co_llm(hidden: int, vocabulary: int, seed: int = 0) -> dict[str, Any]:
    """Return output embeddings whose last row belongs to the deferral token."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(vocabulary + 1, hidden, generator=draw) / hidden**0.5
    return {"lm_head.weight": rows}


def r2r(
    hidden: int,
    top: int = 100,
    widths: tuple[int, ...] = (32, 48, 32),
    normalizes: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the state of an R2R HiddenStatesTokenLMHeadLogitsClassifier."""
    draw = torch.Generator().manual_seed(seed)
    state = {
        **linear("logits_projection", hidden, top, draw),
        **linear("combined_projection", widths[0], 3 * hidden, draw),
        **linear("backbone.input_projection", widths[0], widths[0], draw),
    }
    if normalizes:
        for name in ("layer_norm_hidden_states", "layer_norm_token"):
            state |= norm(name, hidden, draw)
    for i, (into, out) in enumerate(zip(widths, (*widths[1:], widths[-1]), strict=True)):
        block = f"backbone.blocks.{i}"
        state |= norm(f"{block}.layer_norm", into, draw)
        state |= linear(f"{block}.mlp.0", 4 * into, into, draw)
        state |= linear(f"{block}.mlp.3", out, 4 * into, draw)
        if into != out:
            state |= linear(f"{block}.dim_change", out, into, draw)
    state |= norm("backbone.output_layer.0", widths[-1], draw)
    return state | linear("backbone.output_layer.1", 1, widths[-1], draw)


def make(folder: Path, hidden: int, vocabulary: int, top: int = 100, seed: int = 0) -> None:
    """Write all three."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(citer(hidden, seed), folder / "citer.safetensors")
    save_file(co_llm(hidden, vocabulary, seed), folder / "co-llm.safetensors")
    save_file(
        r2r(hidden, min(top, vocabulary), seed=seed),
        folder / "r2r.safetensors",
        {"threshold": "0.5"},
    )


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=int, required=True, help="of the small model")
    parser.add_argument("--vocabulary", type=int, required=True)
    parser.add_argument("--top", type=int, default=100, help="logits that r2r reads")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    make(given.folder, given.hidden, given.vocabulary, given.top, given.seed)


if __name__ == "__main__":
    main()
