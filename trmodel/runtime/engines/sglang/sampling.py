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

NO_TOKEN = -1
"""Of a request whose logits are not finite."""
_COLDEST = 1e-5
"""Temperatures below leave the likeliest token alone, as far as float32 goes."""
_STREAM = 1
"""Of the first model: keeps these numbers apart from those that a policy draws by step."""


def choose(logits: Any, requests: Sequence[Request], model: int) -> Any:
    """Return a token for each request, or `NO_TOKEN`, int64 [batch], on the logits' device.

    Parameters
    ----------
    logits
        [batch, vocabulary], float32; the argmax is taken where the temperature is (nearly) 0.
    requests
        In the order of the batch.
    model
        The model's place.
    """
    import torch

    peak, best = logits.max(-1)
    best = torch.where(peak.isfinite(), best, NO_TOKEN)
    sampling = [request.sampling for request in requests]
    if all(one.temperature < _COLDEST for one in sampling):
        return best

    def column(values: list[float]) -> Any:
        made = torch.tensor(values, dtype=torch.float32)
        return made.to(logits.device, non_blocking=True).unsqueeze(1)

    temperature = column([one.temperature for one in sampling])
    hot = (temperature.squeeze(1) >= _COLDEST) & peak.isfinite()
    share = torch.softmax(logits / torch.where(temperature >= _COLDEST, temperature, 1.0), -1)
    if any(one.top_p < 1.0 for one in sampling):
        share = _nucleus(torch, share, column([one.top_p for one in sampling]))
    draws = column(
        [
            uniform(request.sampling.seed, len(request.token_ids), _STREAM + model)
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
    kept = before < top_p
    kept[:, 0] = True
    ordered = torch.where(kept, ordered, 0.0)
    return torch.zeros_like(share).scatter_(-1, places, ordered)
