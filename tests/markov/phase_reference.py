"""A chain with phases in plain Python, request by request: slow, and independent.

Every request is followed on its own: a state lists, for each model, the sorted phases of those that
wait, the sorted phases of those that run, and the work that is left. It shares nothing with the
package.
"""

from collections import deque
from dataclasses import dataclass
from itertools import product

import numpy as np


@dataclass(frozen=True)
class PhaseReference:
    states: list
    throughput: float  # tokens per unit of time
    restarts: float  # entries of the restart phase per unit of time
    busy: list  # of each model
    waiting: list  # mean number, of each model
    batches: list  # for each model, how often a completed batch has each size, relative


def phase_reference(work, added, model, P, C, N, entry, B, restart=None, wake=(0, 0)):
    """Solve a system without largest batches; work[i][b - 1], added[u], wake[i] in whole units."""
    M, U = len(B), len(model)

    def launched(models, just_completed):
        after = []
        for i, (waiting, running, left) in enumerate(models):
            if not running and len(waiting) >= B[i]:
                running, waiting = waiting, ()
                left = work[i][len(running) - 1] + sum(added[u] for u in running)
                if i not in just_completed:
                    left += wake[i]
            after.append((waiting, running, left))
        return tuple(after)

    empty = [((), (), 0) for _ in range(M)]
    empty[model[entry]] = ((entry,) * N, (), 0)
    start = launched(empty, [])
    number, queue, edges = {start: 0}, deque([start]), {}
    holding, tokens, restarts = [], [], []
    while queue:
        state = queue.popleft()
        tau = min(left for _, running, left in state if running)
        done = [i for i, (_, running, left) in enumerate(state) if running and left == tau]
        movers = [u for i in done for u in state[i][1]]
        holding.append(tau)
        tokens.append(sum(P[u][v] * C[u][v] for u in movers for v in range(U)))
        restarts.append(0.0 if restart is None else sum(P[u][restart] for u in movers))
        for targets in product(range(U), repeat=len(movers)):
            probability = np.prod([P[u][v] for u, v in zip(movers, targets, strict=True)])
            if probability == 0.0:
                continue
            after = []
            for i, (waiting, running, left) in enumerate(state):
                arrived = tuple(v for v in targets if model[v] == i)
                stays = running and i not in done
                after.append((
                    tuple(sorted(waiting + arrived)),
                    running if stays else (),
                    left - tau if stays else 0,
                ))  # fmt: skip
            successor = launched(after, done)
            if successor not in number:
                number[successor] = len(number)
                queue.append(successor)
            edge = number[state], number[successor]
            edges[edge] = edges.get(edge, 0.0) + probability
    size = len(number)
    balance = -np.eye(size)
    for (source, target), probability in edges.items():
        balance[target, source] += probability
    balance[0] = 1.0
    pi = np.linalg.solve(balance, np.eye(size)[0])
    time = pi * holding
    states = list(number)

    def batches(i):
        sizes = [len(s[i][1]) * (s[i][2] == tau) for s, tau in zip(states, holding, strict=True)]
        return np.bincount(sizes, pi, minlength=N + 1)[1:]

    return PhaseReference(
        states,
        float(pi @ tokens / time.sum()),
        float(pi @ restarts / time.sum()),
        [float(time @ [bool(s[i][1]) for s in states] / time.sum()) for i in range(M)],
        [float(time @ [len(s[i][0]) for s in states] / time.sum()) for i in range(M)],
        [batches(i) for i in range(M)],
    )
