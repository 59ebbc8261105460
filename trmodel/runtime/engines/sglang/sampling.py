"""The choice of a token from logits, the same again after a rebuild.

The only randomness is one number for each request, model and position
(`trmodel.runtime.policies.bernoulli.uniform`), which is looked up in the distribution that
temperature and top-p leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trmodel.runtime.policies.bernoulli import uniform
from trmodel.runtime.request import Request

_APART = 0x5EED
"""Keeps these numbers apart from those that a policy draws by step."""


def choose(logits: Any, requests: Sequence[Request], model: int) -> Any:
    """Return a token for each request, int64 [batch], on the logits' device.

    Parameters
    ----------
    logits
        [batch, vocabulary], float32; the argmax is taken where the temperature is 0.
    requests
        In the order of the batch.
    model
        The model's place.
    """
    import torch

    best = logits.argmax(-1)
    sampling = [request.sampling for request in requests]
    if all(one.temperature == 0.0 for one in sampling):
        return best

    def column(values: list[float]) -> Any:
        made = torch.tensor(values, dtype=torch.float32)
        return made.to(logits.device, non_blocking=True).unsqueeze(1)

    temperature = column([one.temperature for one in sampling])
    hot = temperature.squeeze(1) > 0.0
    share = torch.softmax(logits / torch.where(temperature > 0.0, temperature, 1.0), -1)
    if any(one.top_p < 1.0 for one in sampling):
        share = _nucleus(torch, share, column([one.top_p for one in sampling]))
    draws = column(
        [
            uniform(request.sampling.seed + _APART + model, len(request.token_ids))
            for request in requests
        ]
    )
    ends = share.cumsum(-1, dtype=torch.float64)
    found = torch.searchsorted(ends, draws.double() * ends[:, -1:], right=True).squeeze(1)
    # Rounding could lead beyond the last token that has a share.
    last = (share > 0.0).int().mul(torch.arange(share.shape[1], device=share.device)).argmax(-1)
    return torch.where(hot, torch.minimum(found, last), best)


def _nucleus(torch: Any, share: Any, top_p: Any) -> Any:
    """Keep the likeliest tokens up to and including the one that reaches top-p."""
    ordered, places = share.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    ordered = torch.where(before < top_p, ordered, 0.0)
    return torch.zeros_like(share).scatter_(-1, places, ordered)
