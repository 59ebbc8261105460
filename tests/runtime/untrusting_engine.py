"""An engine whose cache is addressed by position, as real ones are, and that trusts nobody.

Every token that it makes is a new number, so that a second try gives other tokens than the first,
and what it had read when it made one is known: a reply is right if each of its tokens was made
from the prompt and the very tokens before it.
"""

from dataclasses import dataclass
from itertools import count

from trmodel.runtime.policies import Policy
from trmodel.runtime.policies.bernoulli import uniform
from trmodel.runtime.request import StepResult

FIRST_TOKEN = 1000
"""Above those of prompts."""


@dataclass(frozen=True)
class Origin:
    """How a token came about: by which model, in which step of its request, from which tokens."""

    model: int
    step: int
    read: tuple[int, ...]


class Origins:
    """Of all tokens that any engine made."""

    def __init__(self):
        self.of = {}
        self._numbers = count(FIRST_TOKEN)

    def make(self, origin):
        token = next(self._numbers)
        self.of[token] = origin
        return token


class UntrustingEngine:
    """Refuses to go on from a cache that does not hold the beginning of its request."""

    def __init__(self, model, origins):
        self.model, self.origins = model, origins
        self._held = {}

    @property
    def kv_tokens(self):
        return sum(map(len, self._held.values()))

    def step(self, batch):
        return StepResult([self._read(request) for request in batch.requests])

    def _read(self, request):
        held = self._held.get(request.id, ())
        assert request.unseen >= 1, "nothing to read, so nothing to sample from"
        assert request.anchor <= len(held), "the cache holds less than is thought"
        assert held[: request.anchor] == tuple(request.token_ids[: request.anchor]), "stale cache"
        read = (*held[: request.anchor], *request.token_ids[request.anchor :])
        self._held[request.id] = read
        return self.origins.make(Origin(self.model, request.steps, read))

    def release(self, request):
        self._held.pop(request, None)


class ByToken(Policy):
    """What comes after a step depends on its token: a second try may go another way.

    Parameters
    ----------
    M
        How many models there are.
    """

    def __init__(self, M):
        self.M = M

    def route(self, batch, result):
        return [int(self.M * uniform(1, token)) for token in result.token_ids]

    def commit(self, request, token_ids, source, destination):
        """Drop some: on leaving, and on staying as well."""
        return [token for token in token_ids if uniform(2, token) < 0.7]
