"""CITER: a small network that reads the small model's hidden state says how sure it is."""

from __future__ import annotations

import operator
from typing import Any

from trmodel.runtime.policies.base import SmallModel
from trmodel.runtime.policies.threshold import ThresholdPolicy
from trmodel.runtime.policies.weights import RouterWeights, linear, norm
from trmodel.runtime.request import Batch, StepResult

EPSILON = 1e-5
"""Of the batch norm, as torch has it unless told otherwise."""
LAYOUT = {
    **linear("mlp.0", "h", "d"),
    **norm("mlp.1", "h"),
    "mlp.1.running_mean": ("h",),
    "mlp.1.running_var": ("h",),
    **linear("mlp.4", "d", "h"),
    **linear("linear", 1, "d"),
}
"""The state of the released ConfidenceModel; h is 2 d there."""


class Citer(ThresholdPolicy):
    """Hand over where the confidence in the small model's token is below the threshold.

    Parameters
    ----------
    weights
        A safetensors file with the released layout.
    threshold
        Of the confidence, as in the paper: a higher one gives more tokens to the large model. 0.95
        is the released code's.

    Source: arXiv:2502.01976 and github.com/aiming-lab/CITER (conf_model.py, token_route.py).
    """

    needs = frozenset({"hidden"})
    compare = staticmethod(operator.lt)
    default_routing = "citer"

    def __init__(self, weights: str, threshold: float = 0.95) -> None:
        super().__init__(threshold)
        self._weights = RouterWeights(weights)
        sizes = self._weights.expect(LAYOUT, allowed={"mlp.1.num_batches_tracked"})
        self._width = sizes["d"]

    def check_start(self, small: SmallModel | None) -> None:
        if small is not None:
            self._weights.check_width("hidden states", small.hidden_size, self._width)

    def score(self, batch: Batch, result: StepResult) -> Any:
        """Return the confidence, from 0 to 1."""
        from torch.nn import functional

        hidden = result.tensors["hidden"].float()
        self._weights.check_width("hidden states", hidden.shape[-1], self._width)
        w = self._weights.on(hidden.device)
        x = functional.linear(hidden, w["mlp.0.weight"], w["mlp.0.bias"])
        x = functional.batch_norm(
            x,
            w["mlp.1.running_mean"],
            w["mlp.1.running_var"],
            w["mlp.1.weight"],
            w["mlp.1.bias"],
            eps=EPSILON,
        )
        x = functional.linear(x.relu(), w["mlp.4.weight"], w["mlp.4.bias"])
        return functional.linear(x, w["linear.weight"], w["linear.bias"]).sigmoid().squeeze(-1)
