"""KV capacity: how many requests of which context fit into GPU memory.

A GPU holds its share of the weights of every model on it, what is reserved (workspace, CUDA graphs,
activations), and KV cache. A request keeps its whole context cached on every model that it may
visit, so K cached tokens fit on GPU g if

    reserved + sum_i W_i / t_i + K sum_i v_i / t_i <= memory,

over the models i on g, with weights W_i and KV bytes per token v_i spread equally over t_i GPUs. N
requests of context c need K = N c. The tightest GPU binds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from trmodel.documents import StrPath, shown
from trmodel.errors import InfeasibleError, InputError, UsageError
from trmodel.profile.build import choose_routing
from trmodel.profile.context import Context, context_range
from trmodel.profile.load import LoadedProfile
from trmodel.profile.schema import ModelProfile
from trmodel.routing import Routing


@dataclass(frozen=True)
class GpuBudget:
    """Memory of one GPU, in bytes.

    Parameters
    ----------
    gpu
        Index of the GPU.
    memory_bytes, reserved_bytes
        What it has, and what neither weights nor KV cache may take of it.
    weight_bytes
        Weights on it, by model.
    kv_bytes_per_token
        Bytes that one cached token of one request takes on it, all visited models together.
    tokens
        Cached tokens that fit; None if no visited model is on it.
    """

    gpu: int
    memory_bytes: int
    reserved_bytes: int
    weight_bytes: Mapping[str, float]
    kv_bytes_per_token: float
    tokens: int | None

    @property
    def free_bytes(self) -> float:
        """Bytes left for the KV cache."""
        return self.memory_bytes - self.reserved_bytes - sum(self.weight_bytes.values())


@dataclass(frozen=True)
class Capacity:
    """What fits on the machine.

    Parameters
    ----------
    gpus
        A budget for each GPU.
    binding_gpu
        Index of the GPU on which the fewest tokens fit.
    tokens
        Cached tokens that fit there: the requests' contexts together.
    context_tokens
        Context of a request in tokens; of one that grows, its largest.
    models
        Names of the models on which every request keeps its context.
    """

    gpus: tuple[GpuBudget, ...]
    binding_gpu: int
    tokens: int
    context_tokens: int
    models: tuple[str, ...]

    @property
    def largest_N(self) -> int:
        """The most requests whose contexts fit; 0 if not even one does."""
        return self.tokens // self.context_tokens

    def largest_context(self, N: int) -> int:
        """Return the longest context, in tokens, with which N requests fit; 0 if there is none.

        Raises
        ------
        UsageError
            If N is below 1.
        """
        if N < 1:
            raise UsageError(f"N: must be a whole number of at least 1, got {N}")
        return self.tokens // N


@dataclass(frozen=True)
class CapacityCheck:
    """Whether N requests fit.

    Parameters
    ----------
    N
        Requests asked for.
    largest_N
        The most that fit; None if the profile does not say enough to tell.
    message
        One line: what does not fit, or why nothing can be told; None if all is well.
    """

    N: int
    largest_N: int | None
    message: str | None = None

    @property
    def fits(self) -> bool:
        """Whether they fit, as far as is known."""
        return self.largest_N is None or self.largest_N >= self.N


def capacity(
    loaded: LoadedProfile,
    routing: StrPath | Routing | None = None,
    context: Context | None = None,
) -> Capacity:
    """Return the memory budget of every GPU, and what fits.

    Parameters
    ----------
    loaded
        See :func:`trmodel.profile.load_profile`.
    routing
        Its models are the ones on the GPUs, and those that it reaches keep the context of every
        request. None for the profile's default.
    context
        Tokens of context of every request, or (low, high): then every request must fit at its
        longest. None for the profile's.

    Raises
    ------
    UsageError
        If the context makes no sense.
    InputError
        If the routing cannot be applied, or with every field that is missing.
    InfeasibleError
        If weights and reserved memory alone do not fit.
    """
    _, tokens = context_range(loaded.profile, context)
    models, visited = _served(loaded, routing)
    if missing := _missing(loaded, models):
        raise InputError(missing)
    rows = [_budget(loaded, models, visited, g) for g in range(loaded.profile.hardware.gpus)]
    if full := [row for row in rows if row.free_bytes < 0]:
        raise InfeasibleError("\n".join(_overfull(row) for row in full))
    fitting = {row.gpu: row.tokens for row in rows if row.tokens is not None}
    binding = min(fitting, key=lambda gpu: fitting[gpu])
    return Capacity(tuple(rows), binding, fitting[binding], tokens, tuple(visited))


def check_capacity(
    loaded: LoadedProfile,
    N: int,
    routing: StrPath | Routing | None = None,
    context: Context | None = None,
) -> CapacityCheck:
    """Say whether N requests fit, and the most that do.

    Parameters are those of :func:`capacity`. A profile that lacks a field for it is no error here:
    then nothing is known, and the message says what to add.

    Raises
    ------
    UsageError, InputError, InfeasibleError
        As for :func:`capacity`, except for missing fields.
    """
    models, _ = _served(loaded, routing)
    if missing := _missing(loaded, models):
        return CapacityCheck(N, None, f"KV capacity is not checked: {missing[0]}")
    found = capacity(loaded, routing, context)
    if N <= found.largest_N:
        return CapacityCheck(N, found.largest_N)
    return CapacityCheck(
        N,
        found.largest_N,
        f"{N} requests of {found.context_tokens} tokens do not fit into GPU memory: at most "
        f"{found.largest_N} do (GPU {found.binding_gpu} holds {found.tokens} cached tokens)",
    )


def _served(
    loaded: LoadedProfile, routing: StrPath | Routing | None
) -> tuple[dict[int, ModelProfile], list[str]]:
    """Return the routing's models by their place in the profile, and the names of those visited."""
    profile = loaded.profile
    chosen = choose_routing(loaded, routing)
    order = chosen.bind(profile.model_names).order
    visited = [profile.models[order[i]].name for i in chosen.reached_models]
    return {i: profile.models[i] for i in order}, visited


def _missing(loaded: LoadedProfile, models: dict[int, ModelProfile]) -> list[str]:
    hardware, where = loaded.profile.hardware, shown(loaded.origin)
    problems = []
    if hardware.gpu_memory_bytes is None:
        problems.append(f"{where}: hardware.gpu_memory_bytes: is missing; add the bytes of one GPU")
    if hardware.reserved_bytes is None:
        problems.append(
            f"{where}: hardware.reserved_bytes: is missing; add the bytes of each GPU that "
            "workspace, CUDA graphs and activations take, or 0"
        )
    for i, model in models.items():
        if model.gpus is None:
            problems.append(
                f"{where}: models[{i}].gpus: is missing; add the indices of the "
                f"{model.tensor_parallel} GPUs that {model.name} runs on"
            )
        if model.memory is None:
            problems.append(
                f"{where}: models[{i}].memory: is missing; add weight_bytes and "
                f"kv_bytes_per_token of {model.name}"
            )
    return problems


def _budget(
    loaded: LoadedProfile, models: dict[int, ModelProfile], visited: list[str], gpu: int
) -> GpuBudget:
    # Fractions: a share of a third of the bytes must not decide by rounding what fits.
    memory = loaded.profile.hardware.gpu_memory_bytes or 0
    reserved = loaded.profile.hardware.reserved_bytes or 0
    here = [(m, m.memory) for m in models.values() if m.memory and gpu in (m.gpus or ())]
    weights = {m.name: _share(m, stored.weight_bytes) for m, stored in here}
    kv = sum(
        (_share(m, stored.kv_bytes_per_token) for m, stored in here if m.name in visited),
        Fraction(0),
    )
    free = memory - reserved - sum(weights.values(), Fraction(0))
    return GpuBudget(
        gpu=gpu,
        memory_bytes=memory,
        reserved_bytes=reserved,
        weight_bytes={name: float(share) for name, share in weights.items()},
        kv_bytes_per_token=float(kv),
        tokens=int(free // kv) if kv else None,
    )


def _share(model: ModelProfile, whole: int) -> Fraction:
    return Fraction(whole, model.tensor_parallel)


def _overfull(row: GpuBudget) -> str:
    weights = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in row.weight_bytes.items())
    return (
        f"GPU {row.gpu}: weights ({weights}) and {row.reserved_bytes / 1e9:.1f} GB reserved do not "
        f"fit into {row.memory_bytes / 1e9:.1f} GB; use more GPUs, another placement or smaller "
        "weights"
    )
