"""Launch rules once more, in plain Python: every rule of a tiny system, evaluated densely.

It shares nothing with the package: requests routed one by one, a dictionary of states, a dense
solve of the chain that a rule gives from the start.
"""

from itertools import product

import numpy as np


def decision_process(latency, P, C, N, max_batch, entry, part, wake=None):
    """Map each state to its actions, and each action to (tau, tokens, {next state: probability}).

    A state is, for each model, (waiting, running, remaining) just before launches; an action the
    numbers launched. The first state is the start. What remains at an idle model is what it takes
    longer to start, nothing if it has just completed.
    """
    M = len(P)
    wake = wake or [0] * M
    start = tuple((N if i == entry else 0, 0, wake[i]) for i in range(M))
    process, queue = {}, [start]
    while queue:
        state = queue.pop()
        if state in process:
            continue
        process[state] = {}
        for action in product(*(options(*state[i], max_batch[i], part) for i in range(M))):
            models = [
                (waiting - size, size, left + latency[i][size - 1]) if size
                else (waiting, running, left if running else wake[i])
                for i, ((waiting, running, left), size) in enumerate(
                    zip(state, action, strict=True)
                )
            ]  # fmt: skip
            if any(running for _, running, _ in models):
                process[state][action] = outcome = step(models, P, C)
                queue += outcome[2]
    return start, process


def options(waiting, running, _, max_batch, part):
    most = 0 if running else min(waiting, max_batch)
    return range(most + 1) if part else sorted({0, most})


def step(models, P, C):
    M = len(P)
    tau = min(left for _, running, left in models if running)
    done = [i for i, (_, running, left) in enumerate(models) if running and left == tau]
    routed = {tuple(waiting for waiting, _, _ in models): 1.0}
    tokens = 0.0
    for i in done:
        for _ in range(models[i][1]):
            tokens += sum(P[i][j] * C[i][j] for j in range(M))
            onward = {}
            for counts, probability in routed.items():
                for j in range(M):
                    if P[i][j] > 0:
                        moved = tuple(n + (j == m) for m, n in enumerate(counts))
                        onward[moved] = onward.get(moved, 0.0) + probability * P[i][j]
            routed = onward
    following = {}
    for counts, probability in routed.items():
        state = tuple(
            (counts[i], 0, 0) if i in done
            else (counts[i], running, left - tau) if running
            else (counts[i], 0, left)
            for i, (_, running, left) in enumerate(models)
        )  # fmt: skip
        following[state] = following.get(state, 0.0) + probability
    return tau, tokens, following


def gain(start, process, rule):
    """Tokens per unit of time of a rule (a function from states to actions) from the start."""
    number, rows = {start: 0}, []
    for state in (states := [start]):
        rows.append(process[state][rule(state)])
        for target in rows[-1][2]:
            if target not in number:
                number[target] = len(number)
                states.append(target)
    T = np.zeros((len(rows), len(rows)))
    for s, (_, _, following) in enumerate(rows):
        for target, probability in following.items():
            T[s, number[target]] = probability
    # The lazy chain has the same long run without periods; a high power of it reaches that run.
    T = np.linalg.matrix_power((T + np.eye(len(rows))) / 2, 1 << 20)
    taus, tokens = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    return float(T[0] @ tokens / (T[0] @ taus))


def all_rules(process):
    """Every stationary rule, as a function from states to actions."""
    for actions in product(*(list(actions) for actions in process.values())):
        yield dict(zip(process, actions, strict=True)).__getitem__
