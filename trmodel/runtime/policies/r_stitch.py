"""R-Stitch: the large model writes where the next-token distribution is wide."""

from __future__ import annotations

import math
from typing import Any

from trmodel.runtime.policies.entropy import entropy
from trmodel.runtime.policies.threshold import ThresholdPolicy
from trmodel.runtime.request import Batch, StepResult


class RStitch(ThresholdPolicy):
    """Hand over where H / ln V is above the threshold, return where it is not.

    H is the entropy of the next-token distribution at temperature 1 over V tokens. Source:
    arXiv:2507.17307; 0.03 is the threshold with which arXiv:2610.12242 measures it.
    """

    needs = frozenset({"logits"})
    both_ways = True
    default_routing = "r-stitch"

    def __init__(self, threshold: float = 0.03) -> None:
        super().__init__(threshold)

    def score(self, batch: Batch, result: StepResult) -> Any:
        logits = result.tensors["logits"]
        return entropy(logits) / math.log(logits.shape[-1])
