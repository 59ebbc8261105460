"""Duration of a model's steps in a routed system: decode, extend, overhead, prompts."""

from __future__ import annotations

import numpy as np

from trmodel.arrays import IntArray
from trmodel.errors import InputError
from trmodel.profile.interpolate import (
    INTERPOLATED,
    StepLatency,
    extend_latency,
    step_latency,
)
from trmodel.profile.schema import ModelProfile


def model_steps(
    model: ModelProfile,
    size: int,
    context: tuple[int, int],
    *,
    handed_over: float = 0.0,
    new_tokens: float = float("nan"),
    where: str = "model",
) -> StepLatency:
    """Return the mean duration of steps with 1 to ``size`` requests, overhead included.

    A step that takes in handed-over requests is an extend of their unseen tokens. Which steps do
    is not part of the chain's state, so the mean is taken: with b requests, each handed over with
    probability h independently of the others, a step takes

        (1 - h)^b decode(b) + (1 - (1 - h)^b) max(extend(b, new), decode(b)).

    This is a mean-field approximation. It forgets that requests arrive together, replaces the
    number of new tokens by its mean, and gives it to every request of an extend step, although
    some may bring one token only.

    Parameters
    ----------
    model
        With its tables; without an extend table every step is a decode step.
    size
        Largest batch.
    context
        (low, high) in tokens.
    handed_over, new_tokens
        h and new of :func:`trmodel.profile.handoff.handed_over`. One token or fewer, or nan for a
        model to which no request returns, makes every step a decode step.
    where
        Path of the model in messages.

    Returns
    -------
    StepLatency
        Of shape (size,). Notes name the model.

    Raises
    ------
    InputError
        If a table does not reach the largest batch.
    """
    sizes = np.arange(1, size + 1)
    name = model.name
    overhead = 0.0 if model.overhead is None else model.overhead.value_ms
    decode = step_latency(model.decode, sizes, context, where=f"{where}.decode.batch", model=name)
    if model.extend is None or not (handed_over > 0 and new_tokens > 1):  # nan is not above 1
        return StepLatency(decode.latency_ms + overhead, decode.quality, decode.notes)
    extend = _extend_steps(model, sizes, new_tokens, context, decode, where=where)
    only_decode = (1.0 - handed_over) ** sizes
    longer = np.maximum(decode.latency_ms, extend.latency_ms)
    return StepLatency(
        only_decode * decode.latency_ms + (1.0 - only_decode) * longer + overhead,
        np.maximum(decode.quality, extend.quality),
        (*decode.notes, *extend.notes),
    )


def _extend_steps(
    model: ModelProfile,
    sizes: IntArray,
    new_tokens: float,
    context: tuple[int, int],
    decode: StepLatency,
    *,
    where: str,
) -> StepLatency:
    """Return extends of one model at a context; ``decode`` are its decode steps there.

    An extend table holds at one context. At another one an extend is taken to be longer by as much
    as a decode step of the same batch is, times the table's growth, which is linear between the
    listed new tokens: 1 where both read the cache once, k where each of k new tokens reads it.
    """
    table = model.extend
    assert table is not None
    listed = table.context_tokens
    moved = listed is not None and len(model.decode.contexts) > 1 and context != (listed, listed)
    at = (listed, listed) if listed is not None and moved else context
    extend = extend_latency(
        table, sizes, new_tokens, at, where=f"{where}.extend.batch", model=f"{model.name}, extend"
    )
    if not moved:
        return extend
    listed_decode = step_latency(model.decode, sizes, at)
    growth = 1.0
    if table.context_growth is not None:
        growth = float(np.interp(new_tokens, table.new_tokens, table.context_growth))
    tokens = " to ".join(map(str, sorted({*context})))
    note = (
        f"{model.name}, extend: context {tokens}: the latencies listed for {listed} and "
        f"{'' if growth == 1.0 else f'{growth:.3g} times '}the difference between decode steps "
        "there and here"
    )
    longer = growth * (decode.latency_ms - listed_decode.latency_ms)
    return StepLatency(
        np.maximum(extend.latency_ms + longer, 0.0),
        np.maximum(extend.quality, np.maximum(decode.quality, INTERPOLATED)),
        (*extend.notes, note),
    )


def prompt_added(
    model: ModelProfile, prompt_tokens: int, context: tuple[int, int], *, where: str = "model"
) -> tuple[float, tuple[str, ...]]:
    """Return the milliseconds that reading a prompt adds to a step, and what is doubtful of them.

    A step with one request that reads T tokens takes extend(1, T), so it is that less decode(1);
    the same is added whatever else the batch holds, and for each prompt in it.

    Parameters
    ----------
    model
        With an extend table.
    prompt_tokens
        T.
    context
        (low, high) in tokens.
    where
        Path of the model in messages.

    Raises
    ------
    InputError
        If the model has no extend table.
    """
    if model.extend is None:
        raise InputError(
            f"{where}.extend: is missing; {model.name} needs it to tell how long a prompt of "
            f"{prompt_tokens} tokens takes; add it, or give the time itself (--prefill-ms)"
        )
    one = np.array([1])
    decode = step_latency(model.decode, one, context)
    read = extend_latency(
        model.extend, one, prompt_tokens, context, model=f"{model.name}, reading a prompt"
    )
    added = float(read.latency_ms[0] - decode.latency_ms[0])
    return max(added, 0.0), read.notes
