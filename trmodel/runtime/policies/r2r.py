"""R2R: a classifier says whether the small model's token would lead the reasoning elsewhere."""

from __future__ import annotations

import operator
from typing import Any

from trmodel.runtime.policies.base import SmallModel
from trmodel.runtime.policies.options import OptionError
from trmodel.runtime.policies.threshold import ThresholdPolicy
from trmodel.runtime.policies.weights import Layout, RouterWeights, linear, norm
from trmodel.runtime.request import Batch, StepResult


class R2R(ThresholdPolicy):
    """Hand over where the probability of a divergent token is at least the threshold.

    The classifier reads the last hidden state, the input embedding of the sampled token and the k
    largest logits in falling order.

    Parameters
    ----------
    weights
        A safetensors file with the released layout, of HiddenStatesTokenLMHeadLogitsClassifier;
        the token embeddings, which are the small model's, are not read.
    threshold
        Of the probability. Default: ``threshold`` in the metadata of the file.

    Source: arXiv:2505.21600 and github.com/thu-nics/R2R (models/router.py, utils/switching.py).
    """

    needs = frozenset({"logits", "hidden", "embedding"})
    compare = staticmethod(operator.ge)
    default_routing = "r2r"

    def __init__(self, weights: str, threshold: float | None = None) -> None:
        self._weights = RouterWeights(weights)
        if threshold is None:
            if "threshold" not in self._weights.metadata:
                raise OptionError("threshold", f"{weights} has none in its metadata; give one")
            try:
                threshold = float(self._weights.metadata["threshold"])
            except ValueError:
                raise OptionError(
                    "threshold", f"that of {weights} is no number; give one"
                ) from None
        super().__init__(threshold)
        sizes = self._weights.expect(linear("logits_projection", "d", "k"))
        self._width, self._top = sizes["d"], sizes["k"]
        shapes = self._weights.shapes
        self._normalizes = "layer_norm_hidden_states.weight" in shapes
        blocks = {name.split(".")[2] for name in shapes if name.startswith("backbone.blocks.")}
        self._blocks = [f"backbone.blocks.{i}" for i in range(len(blocks))]
        self._resized = [f"{block}.dim_change.weight" in shapes for block in self._blocks]
        self._weights.expect(self._layout(), allowed={"token_embeddings.weight"})

    def _layout(self) -> Layout:
        """Return the tensors: projections of the input, blocks of width h0, h1, ..., the output."""
        d = self._width
        layout = linear("logits_projection", d, self._top)
        layout |= linear("combined_projection", "h0", 3 * d)
        layout |= linear("backbone.input_projection", "h0", "h0")
        if self._normalizes:
            layout |= norm("layer_norm_hidden_states", d) | norm("layer_norm_token", d)
        width = "h0"
        for i, (block, resized) in enumerate(zip(self._blocks, self._resized, strict=True), 1):
            into, width = width, f"h{i}" if resized else width
            layout |= norm(f"{block}.layer_norm", into)
            layout |= linear(f"{block}.mlp.0", f"wide{i}", into)
            layout |= linear(f"{block}.mlp.3", width, f"wide{i}")
            if resized:
                layout |= linear(f"{block}.dim_change", width, into)
        layout |= norm("backbone.output_layer.0", width)
        return layout | linear("backbone.output_layer.1", 1, width)

    def check_start(self, small: SmallModel | None) -> None:
        if small is not None:
            self._check(small.hidden_size, small.vocabulary)

    def _check(self, hidden: int, vocabulary: int) -> None:
        self._weights.check_width("hidden states", hidden, self._width)
        if vocabulary < self._top:
            raise OptionError(
                "weights",
                f"{self._weights.path}: read {self._top} logits, the small model has {vocabulary}",
            )

    def score(self, batch: Batch, result: StepResult) -> Any:
        """Return the probability that the token is divergent."""
        import torch
        from torch.nn import functional

        tensors = {name: result.tensors[name].float() for name in self.needs}
        hidden, embedding = tensors["hidden"], tensors["embedding"]
        self._check(hidden.shape[-1], tensors["logits"].shape[-1])
        self._weights.check_width("embeddings", embedding.shape[-1], self._width)
        w = self._weights.on(hidden.device)

        def linear(name: str, x: Any) -> Any:
            return functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

        def norm(name: str, x: Any) -> Any:
            return functional.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])

        logits = tensors["logits"].topk(self._top, dim=-1).values
        if self._normalizes:
            hidden = norm("layer_norm_hidden_states", hidden)
            embedding = norm("layer_norm_token", embedding)
            logits = logits.softmax(dim=-1)
        x = torch.cat([hidden, embedding, linear("logits_projection", logits)], dim=-1)
        x = linear("backbone.input_projection", linear("combined_projection", x))
        for block, resized in zip(self._blocks, self._resized, strict=True):
            inner = functional.gelu(linear(f"{block}.mlp.0", norm(f"{block}.layer_norm", x)))
            skip = linear(f"{block}.dim_change", x) if resized else x
            x = skip + linear(f"{block}.mlp.3", inner)
        x = linear("backbone.output_layer.1", norm("backbone.output_layer.0", x))
        return x.sigmoid().squeeze(-1)
