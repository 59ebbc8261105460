"""Mean admission delay by following one request, the independent check of Little's law.

A request that joins queue i at position q (first come, first served) starts with the l-th batch
from then on, l = ceil(q / m), m being the model's largest batch. Let H_l(s) be the mean time from
entering state s until the l-th next launch of model i. With T split into the transitions in which
i launches (T') and the others (T''),

    H_l = tau + T'' H_l + T' H_{l-1},   H_0 = 0,

linear systems solved one after the other. Averaging H over the positions of all arrivals gives
the mean delay without using queue lengths or rates.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, eye_array
from scipy.sparse.linalg import splu

from trmodel.markov.chain import Chain


def followed_admission_delay_ms(chain: Chain, i: int) -> float:
    """Mean time from arrival at model i to the start of the batch, in milliseconds.

    Parameters
    ----------
    chain
        A solved chain of one recurrent class.
    i
        Index of the model in the chain's (restricted) system.
    """
    e, m = chain.enumeration, chain.system.max_batch[i]
    T = coo_array(chain.transition)
    source, target = T.coords
    weight = chain.pi[source] * T.data
    idle_before = (e.b[source, i] == 0) | (chain.finished[source, i] > 0)
    launches = idle_before & (e.b[target, i] > 0)
    started = np.where(launches, e.b[target, i], 0)
    arrivals = e.k[target, i] + started - e.k[source, i]
    # Those that wait after the transition and did not before stand at the end of the queue.
    last = e.k[target, i]
    first = np.maximum(e.k[source, i] - started, 0)
    waits = np.flatnonzero((e.k[:, i] > 0) & (chain.pi > 0.0))
    if len(waits) == 0:
        return 0.0
    stays = coo_array((T.data[~launches], (source[~launches], target[~launches])), T.shape).tocsr()
    goes = coo_array((T.data[launches], (source[launches], target[launches])), T.shape).tocsr()
    solver = splu((eye_array(len(waits)) - stays[waits][:, waits]).tocsc())
    until = np.zeros(chain.states)
    total = 0.0
    for level in range(1, int(np.ceil(e.k[:, i].max() / m)) + 1):
        previous, until = until, np.zeros(chain.states)
        until[waits] = solver.solve((chain.holding_ms + goes @ previous)[waits])
        low, high = (level - 1) * m, level * m
        joined = np.clip(last, low, high) - np.clip(first, low, high)
        total += float(weight @ (joined * until[target]))
    return total / float(weight @ arrivals)
