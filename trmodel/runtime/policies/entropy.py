"""The entropy of a next-token distribution."""

from __future__ import annotations

from typing import Any


def entropy(logits: Any) -> Any:
    """Return -sum p ln p of the softmax over the last axis, in nats: a tensor (..., V) to (...)."""
    import torch

    # entr is 0 where p is, as for a token that is masked out by a logit of -inf.
    return torch.special.entr(torch.softmax(logits.float(), dim=-1)).sum(dim=-1)
