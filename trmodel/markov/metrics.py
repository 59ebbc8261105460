"""What a solved chain says about the server: per model, per request and per token.

With time-weighted state probabilities w(s) = pi(s) tau(s) / sum pi tau and throughput T:

- busy fraction of model i: sum of w(s) over states with b_i > 0;
- mean batch and its distribution: over completed batches of model i;
- replies completed per second, where a phase opens a new reply: the rate of entering it;
- mean admission delay (arrival at i to the start of its batch): E[k_i] / rate of arrivals at i,
  by Little's law;
- no-waiting bound: N times the throughput of a request alone, which never waits, at models that
  never have to be woken;
- cost ledger: at every moment each request is in a running batch (*forward*, the waking of its
  model included), waits at an idle model for its threshold, or waits at a busy model for its batch
  to end. The three expectations divided by T are times per committed token and sum to N / T.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from trmodel.arrays import FloatArray
from trmodel.errors import InputError
from trmodel.ledger import CostLedger
from trmodel.markov.chain import Chain, solve_chain
from trmodel.markov.enumeration import Limits
from trmodel.markov.stationary import Solver
from trmodel.system import RoutedSystem


@dataclass(frozen=True)
class ModelMetrics:
    """What one model does under the thresholds.

    Attributes
    ----------
    batches_per_s
        Steps completed per second.
    step_share
        Its share of all request-steps (a batch of b counts b).
    batch_distribution
        Probability that a step has 1, 2, ... requests.
    admission_delay_ms
        Mean time from a request's arrival to the start of its batch.
    """

    name: str
    threshold: int
    busy_fraction: float
    batches_per_s: float
    step_share: float
    mean_batch: float
    batch_distribution: tuple[float, ...]
    mean_waiting: float
    admission_delay_ms: float
    ledger: CostLedger


@dataclass(frozen=True)
class Prediction:
    """The exact chain's answer for one system and one threshold vector.

    Attributes
    ----------
    models, B
        All models of the system and their thresholds.
    request_speed_tok_s
        Mean speed of one request, T / N.
    no_waiting_tok_s
        Upper bound of T: N requests that never wait.
    no_waiting_percent
        T in percent of that bound.
    method, solver, residual
        ``exact``, the stationary solver used, and ||pi T - pi||_1.
    per_model
        For the models that routing reaches.
    replies_per_s
        Replies completed per second; None where routing does not say when a reply ends.
    """

    models: tuple[str, ...]
    N: int
    B: tuple[int, ...]
    throughput_tok_s: float
    request_speed_tok_s: float
    no_waiting_tok_s: float
    no_waiting_percent: float
    ledger: CostLedger
    per_model: tuple[ModelMetrics, ...]
    states: int
    transitions: int
    method: str
    solver: str
    residual: float
    recurrent_classes: int
    grid_ms: float
    grid_error_percent: float
    warnings: tuple[str, ...]
    replies_per_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as plain values, ready for JSON."""
        document = asdict(self)
        document["ledger"]["total_ms"] = self.ledger.total_ms
        return document


def predict_chain(
    system: RoutedSystem,
    B: Sequence[int],
    *,
    solver: Solver = "auto",
    limits: Limits = Limits(),
) -> Prediction:
    """Solve the chain of a system under thresholds B and report everything it says.

    Raises
    ------
    InputError
        If in the long run no token is ever committed.
    InfeasibleError, UsageError, LimitError, NotConvergedError
        See `solve_chain`.
    """
    chain = solve_chain(system, B, solver=solver, limits=limits)
    bound = no_waiting_tok_s(system)
    T = chain.throughput_tok_s
    per_model = model_metrics(chain)
    return Prediction(
        models=system.models,
        N=system.N,
        B=tuple(B[i] if i in system.reached else 1 for i in range(system.M)),
        throughput_tok_s=T,
        request_speed_tok_s=T / system.N,
        no_waiting_tok_s=bound,
        no_waiting_percent=100.0 * T / bound,
        ledger=CostLedger(
            forward_ms=sum(m.ledger.forward_ms for m in per_model),
            threshold_wait_ms=sum(m.ledger.threshold_wait_ms for m in per_model),
            batch_wait_ms=sum(m.ledger.batch_wait_ms for m in per_model),
        ),
        per_model=per_model,
        states=chain.states,
        transitions=chain.transition.nnz,
        method="exact",
        solver=chain.method,
        residual=chain.residual,
        recurrent_classes=chain.recurrent_classes,
        grid_ms=system.grid_ms,
        grid_error_percent=system.grid_error_percent,
        warnings=chain_warnings(chain.system, [chain.recurrent_classes]),
        replies_per_s=chain.replies_per_s,
    )


def no_waiting_tok_s(system: RoutedSystem) -> float:
    """Return N times the throughput of a request that has every model for itself, and awake.

    Raises
    ------
    InputError
        If such a request never commits a token in the long run.
    """
    # Of several requests each can keep the models awake for the others.
    awake = replace(system.with_N(1), wake_ms=np.zeros(system.M))
    alone = solve_chain(awake, (1,) * system.M).throughput_tok_s
    if alone <= 0.0:
        raise InputError(
            "committed_tokens: in the long run no token is committed; "
            "give the routing's steps some tokens"
        )
    return system.N * alone


def chain_warnings(system: RoutedSystem, classes: Collection[int]) -> tuple[str, ...]:
    """Return the system's warnings and what the chain's answers must say beside them."""
    return (*system.warnings, *_handoff_warnings(system), *class_warnings(classes))


def _handoff_warnings(system: RoutedSystem) -> list[str]:
    delays = system.handoffs_ms[system.handoffs_ms > 0.0]
    if not delays.size:
        return []
    low, high = f"{delays.min():g}", f"{delays.max():g}"
    shown_ms = low if low == high else f"{low} to {high}"
    return [f"handoff latency ({shown_ms} ms) is not in the exact chain; predict gives its shift"]


def class_warnings(classes: Collection[int]) -> list[str]:
    """Say, once for all chains, when routing leads to one of several recurrent classes by chance.

    ``classes`` are the numbers of classes of the chains.
    """
    several = [count for count in classes if count > 1]
    if not several:
        return []
    least, most = min(several), max(several)
    number = f"{most}" if least == most else f"{least} to {most}"
    return [
        f"the chain ends in one of {number} recurrent classes by chance; "
        "figures are averages over them"
    ]


def model_metrics(chain: Chain) -> tuple[ModelMetrics, ...]:
    """Metrics of each model of the chain's (restricted) system."""
    k = chain.enumeration.k
    b = chain.enumeration.b
    time_ms = chain.pi * chain.holding_ms
    weight = time_ms / time_ms.sum()
    finished = chain.finished
    events_per_ms = 1.0 / chain.mean_holding_ms
    steps_per_ms = (chain.pi @ finished) * events_per_ms
    ms_per_token = 1000.0 / chain.throughput_tok_s
    metrics = []
    for i, name in enumerate(chain.system.models):
        sizes = finished[:, i].astype(np.intp)
        counts: FloatArray = np.bincount(
            sizes, chain.pi, minlength=chain.system.max_batch[i] + 1
        ).astype(np.float64)[1:]
        waiting = float(weight @ k[:, i])
        idle = b[:, i] == 0
        metrics.append(
            ModelMetrics(
                name=name,
                threshold=chain.B[i],
                busy_fraction=float(weight @ ~idle),
                batches_per_s=float(counts.sum() * events_per_ms * 1000.0),
                step_share=float(steps_per_ms[i] / steps_per_ms.sum()),
                mean_batch=_mean_size(counts),
                batch_distribution=tuple((counts / max(counts.sum(), _TINY)).tolist()),
                mean_waiting=waiting,
                admission_delay_ms=float(waiting / max(steps_per_ms[i], _TINY)),
                ledger=CostLedger(
                    forward_ms=float(weight @ b[:, i]) * ms_per_token,
                    threshold_wait_ms=float(weight[idle] @ k[idle, i]) * ms_per_token,
                    batch_wait_ms=float(weight[~idle] @ k[~idle, i]) * ms_per_token,
                ),
            )
        )
    return tuple(metrics)


_TINY = np.finfo(np.float64).tiny
"""A model that only transient states visit completes no batch in the long run."""


def _mean_size(counts: FloatArray) -> float:
    return float(counts @ np.arange(1, len(counts) + 1) / max(counts.sum(), _TINY))
