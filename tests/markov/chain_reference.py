"""The chain once more, in plain Python and as literally as it is defined: slow, and independent.

It shares nothing with the package: own launch rule, requests routed one by one, a dictionary of
states, a dense solve.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Reference:
    states: list  # of ((waiting, running, remaining) of each model)
    pi: np.ndarray
    throughput_tok_s: float


def reference_chain(latency, P, C, N, max_batch, entry, B, grid_ms, wake=()):
    """Solve the chain of a system whose every state can lead back to the first recurrent one.

    A batch of a model that is not among those that have just completed takes longer by its wake.
    """
    M = len(B)
    wake = wake or [0] * M

    def after_launches(models, just_completed):
        return tuple(
            (waiting - min(waiting, max_batch[i]), min(waiting, max_batch[i]),
             latency[i][min(waiting, max_batch[i]) - 1] + (i not in just_completed) * wake[i])
            if running == 0 and waiting >= B[i]
            else (waiting, running, remaining)
            for i, (waiting, running, remaining) in enumerate(models)
        )  # fmt: skip

    start = after_launches([(N if i == entry else 0, 0, 0) for i in range(M)], [])
    number, queue = {start: 0}, deque([start])
    edges, holding, tokens = {}, [], []
    while queue:
        state = queue.popleft()
        tau = min(remaining for _, running, remaining in state if running)
        done = [
            i for i, (_, running, remaining) in enumerate(state) if running and remaining == tau
        ]
        travellers = [i for i in done for _ in range(state[i][1])]
        routed = {tuple(waiting for waiting, _, _ in state): 1.0}
        for i in travellers:
            onward = {}
            for counts, probability in routed.items():
                for j in range(M):
                    if P[i][j] > 0:
                        moved = tuple(n + (j == m) for m, n in enumerate(counts))
                        onward[moved] = onward.get(moved, 0.0) + probability * P[i][j]
            routed = onward
        for counts, probability in routed.items():
            models = [
                (counts[i], 0, 0) if i in done or not running
                else (counts[i], running, remaining - tau)
                for i, (_, running, remaining) in enumerate(state)
            ]  # fmt: skip
            successor = after_launches(models, done)
            if successor not in number:
                number[successor] = len(number)
                queue.append(successor)
            edge = number[state], number[successor]
            edges[edge] = edges.get(edge, 0.0) + probability
        holding.append(tau * grid_ms)
        tokens.append(sum(P[i][j] * C[i][j] for i in travellers for j in range(M)))
    size = len(number)
    balance = -np.eye(size)
    for (source, target), probability in edges.items():
        balance[target, source] += probability
    balance[0] = 1.0  # any one balance equation follows from the others
    pi = np.linalg.solve(balance, np.eye(size)[0])
    return Reference(list(number), pi, 1000.0 * float(pi @ tokens / (pi @ holding)))
