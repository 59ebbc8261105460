"""A policy for tests: several in one server, each with its own requests and its own recording."""

from pathlib import Path

from trmodel.runtime.policies import Policy, find_policy
from trmodel.runtime.request import Batch, StepResult

EACH = 1000
"""The k-th policy has the requests whose seeds begin at k times this."""


class BySeed(Policy):
    """Asks each policy about its own requests alone; what it answers is recorded by `Recording`.

    Parameters
    ----------
    policies
        Options of each, by its name.
    folder
        Holds a folder of every name.
    """

    takes_routing = True

    def __init__(self, transition_probability, committed_tokens, policies, folder):
        self._policies = [
            find_policy(
                "recording",
                {"policy": name, "options": options, "folder": str(Path(folder, name))},
                transition_probability,
                committed_tokens,
            )
            for name, options in policies.items()
        ]
        self.needs = frozenset().union(*(policy.needs for policy in self._policies))

    def _of(self, request):
        return self._policies[request.sampling.seed // EACH]

    def route(self, batch, result):
        routed = [None] * len(batch)
        for policy in self._policies:
            places = [i for i, request in enumerate(batch.requests) if self._of(request) is policy]
            if not places:
                continue
            own = Batch(
                batch.model,
                [batch.requests[i] for i in places],
                batch.started_at,
                [batch.waited_s[i] for i in places],
            )
            tensors = {name: tensor[places] for name, tensor in result.tensors.items()}
            told = policy.route(own, StepResult([result.token_ids[i] for i in places], tensors))
            for place, destination in zip(places, told, strict=True):
                routed[place] = int(destination)
        return routed

    def commit(self, request, token_ids, source, destination):
        return self._of(request).commit(request, token_ids, source, destination)

    def send(self, request, source, destination):
        return self._of(request).send(request, source, destination)

    def receive(self, message, request):
        self._of(request).receive(message, request)
