"""Co-LLM: the small model was fine-tuned to say itself where it defers."""

from __future__ import annotations

from typing import Any

from trmodel.runtime.policies.base import SmallModel
from trmodel.runtime.policies.options import OptionError
from trmodel.runtime.policies.threshold import ThresholdPolicy
from trmodel.runtime.policies.weights import RouterWeights
from trmodel.runtime.request import Batch, StepResult

HEADS = ("lm_head.weight", "embed_out.weight", "model.embed_tokens.weight")
"""Where a checkpoint has its output embeddings; the last where they are tied to the input's."""


class CoLLM(ThresholdPolicy):
    """Hand over where the probability of deferring is above the threshold.

    It is the sigmoid of the deferral logit: the hidden state times the output embedding of the
    deferral token, which is the last row of the fine-tuned checkpoint's.

    Parameters
    ----------
    weights
        A safetensors file with the output embeddings, of which the last row is read: the shard of
        the checkpoint that has them, or a file with that row alone.
    threshold
        Of the probability. The released code picks one for every data set.

    Source: arXiv:2403.03870 and github.com/clinicalml/co-llm (api_server_deferral.py, generate.py).
    """

    needs = frozenset({"hidden"})
    default_routing = "co-llm"

    def __init__(self, weights: str, threshold: float = 0.5) -> None:
        super().__init__(threshold)
        self._weights = RouterWeights(weights, lambda file, name: file.get_slice(name)[-1:])
        self._head = next((name for name in HEADS if name in self._weights.shapes), "")
        if not self._head:
            raise OptionError("weights", f"{weights}: has no tensor {' or '.join(HEADS)}")
        sizes = self._weights.expect({self._head: ("rows", "d")})
        self._width, self._rows = sizes["d"], sizes["rows"]

    def check_start(self, small: SmallModel | None) -> None:
        if small is None:
            return
        self._weights.check_width("hidden states", small.hidden_size, self._width)
        if 1 < self._rows <= small.vocabulary:
            raise OptionError(
                "weights",
                f"{self._weights.path}: {self._head} has {self._rows} rows, the small model "
                f"{small.vocabulary} tokens: its last row is a token's, not the deferral's",
            )

    def score(self, batch: Batch, result: StepResult) -> Any:
        """Return the probability of deferring."""
        hidden = result.tensors["hidden"].float()
        self._weights.check_width("hidden states", hidden.shape[-1], self._width)
        row = self._weights.on(hidden.device)[self._head]
        return (hidden @ row.T).sigmoid().squeeze(-1)
