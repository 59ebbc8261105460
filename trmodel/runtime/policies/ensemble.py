"""A mixture: the model of every token is drawn afresh."""

from __future__ import annotations

from collections.abc import Sequence

from trmodel.runtime.policies.bernoulli import Bernoulli
from trmodel.runtime.policies.options import OptionError, number, sequence


class Ensemble(Bernoulli):
    """After every step the next token's model is drawn, whatever model made the step.

    The draw belongs to the request's seed and the number of the step, as `Bernoulli`'s does. Every
    token is committed; the first is the entry model's.

    Parameters
    ----------
    weights
        Of the models in their order; what they add up to does not matter. Default: the rows of the
        server's routing, which must be alike.

    Source: arXiv:2605.00419.

    Raises
    ------
    OptionError
        If weights are not numbers of at least 0, or the routing's rows differ.
    """

    default_routing = "ensemble"

    def __init__(
        self,
        transition_probability: Sequence[Sequence[float]],
        committed_tokens: Sequence[Sequence[float]],
        weights: Sequence[float] | None = None,
    ) -> None:
        if weights is None:
            weights = transition_probability[0]
            if any(list(row) != list(weights) for row in transition_probability):
                raise OptionError("weights", "are needed where the rows of the routing differ")
        weights = [number("weights", w, 0.0) for w in sequence("weights", weights)]
        if sum(weights) <= 0:
            raise OptionError("weights", "must not all be 0")
        M = len(weights)
        shares = [w / sum(weights) for w in weights]
        super().__init__([shares] * M, [[1.0] * M] * M)
        self.models = M
