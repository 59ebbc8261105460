"""Replies written with plain models: every step a pass from scratch, every policy as its paper is.

A policy is a function that asks models for tokens and keeps some of them, until the reply ends.
"""

import math
from itertools import accumulate, count

import torch
from policy_references import RULES, entropy, softmax

from trmodel.runtime.policies.bernoulli import uniform

CLOSE = 1e-4
"""Logits and scores of the server are as near to these as this."""
CLOSE_DRAW = 1e-6
"""Likewise for the places where tokens' shares of [0, 1) end."""


class End(Exception):
    """The reply is complete."""


class Writer:
    """One reply and how it comes about.

    Attributes
    ----------
    steps
        Of each step: the model, how many tokens were kept, and the score if one decided.
    """

    def __init__(self, models, prompt, sampling):
        self._models, self._prompt, self.sampling = models, list(prompt), sampling
        self.tokens, self.steps, self._close = [], [], math.inf

    @property
    def prompt(self):
        return list(self._prompt)

    @property
    def clear(self):
        """So many steps lie before the first whose outcome hangs on less than `CLOSE`."""
        return int(min(self._close, len(self.steps)))

    def ask(self, model):
        """Let a model make a step; return what it says of the next token, as lists."""
        plain = self._models[model]
        inner = plain.model(torch.tensor([self._prompt + self.tokens]))
        hidden = inner.last_hidden_state[0, -1]
        logits = plain.lm_head(hidden)
        self.steps.append({"model": model, "committed": 0})
        token = self._sample(logits.tolist(), model)
        embedding = plain.get_input_embeddings().weight[token]
        tensors = {"logits": logits, "hidden": hidden, "embedding": embedding}
        return token, {name: tensor.tolist() for name, tensor in tensors.items()}

    def _sample(self, logits, model):
        temperature = self.sampling.temperature
        if temperature == 0.0:
            second, first = sorted(logits)[-2:]
            self._hangs_on(first - second, CLOSE)
            return logits.index(first)
        at = len(self._prompt) + len(self.tokens)
        draw = uniform(self.sampling.seed, at, 1 + model)
        ends = list(accumulate(softmax([value / temperature for value in logits])))
        self._hangs_on(min(abs(end - draw) for end in ends), CLOSE_DRAW)
        return next(token for token, end in enumerate(ends) if draw < end)

    def _hangs_on(self, margin, close):
        if margin < close:
            self._close = min(self._close, len(self.steps) - 1)

    def decide(self, passes, score, threshold):
        """Compare the score of the last step with a threshold."""
        self._hangs_on(abs(score - threshold), CLOSE)
        self.steps[-1]["score"] = score
        return bool(passes(score, threshold))

    def keep(self, token):
        """Commit the token of the last step."""
        if token in self.sampling.stop_ids:
            raise End
        self.tokens.append(token)
        self.steps[-1]["committed"] = 1
        if len(self.tokens) == self.sampling.max_tokens:
            raise End


def written(models, prompt, sampling, policy, **options):
    """Return the writer of a whole reply."""
    writer = Writer(models, prompt, sampling)
    try:
        policy(writer, **options)
    except End:
        return writer
    raise AssertionError("a policy goes on until the reply ends")


def by_score(writer, name, threshold, state=None):
    """R-Stitch, CITER, Co-LLM and R2R; ``state`` holds the weights of the learned ones."""
    score, passes, both_ways = RULES[name]
    model = 0
    while True:
        token, said = writer.ask(model)
        decides = model == 0 or both_ways
        large = decides and writer.decide(passes, score(state, said), threshold)
        if model == 1 or not large:
            writer.keep(token)
        model = int(large)


def glimprouter(writer, threshold, boundary, newline, step_tokens, top, think_end):
    """Write step after step, then the answer."""
    while True:
        _, said = writer.ask(0)
        likeliest = sorted(said["logits"], reverse=True)[:top]
        large = writer.decide(lambda a, b: a >= b, entropy(likeliest), threshold)
        step = []
        while True:
            token, _ = writer.ask(int(large))
            writer.keep(token)
            step.append(token)
            if token in think_end:
                while True:
                    token, _ = writer.ask(1)
                    writer.keep(token)
            feeds = len(step) >= 2 and step[-1] in newline and step[-2] in newline
            if token in boundary or feeds or len(step) == step_tokens:
                break


def mixture(writer, weights):
    """Draw the model of every token but the first."""
    model = 0
    for number in count():
        token, _ = writer.ask(model)
        writer.keep(token)
        draw = uniform(writer.sampling.seed, number) * sum(weights)
        model = next(j for j, end in enumerate(accumulate(weights)) if draw < end)


def whole_reply(writer, share, longer_than):
    """Write all with one model; the small one has been asked before it is known which."""
    token, _ = writer.ask(0)
    large = len(writer.prompt) > longer_than or uniform(writer.sampling.seed, -1) < share
    if not large:
        writer.keep(token)
    while True:
        token, _ = writer.ask(int(large))
        writer.keep(token)
