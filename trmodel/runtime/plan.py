"""From a server's file to what its processes need: who the models are, how long steps take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trmodel.errors import InputError, UsageError
from trmodel.profile import LoadedProfile, build_system, load_profile
from trmodel.runtime.addresses import addresses_of, make_folder
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.policies import Policy, find_policy
from trmodel.runtime.policies.base import SmallModel
from trmodel.runtime.policies.options import options_at
from trmodel.runtime.spec import SubserverSpec
from trmodel.runtime.table import Vectors, check_vectors
from trmodel.system import RoutedSystem

if TYPE_CHECKING:
    from trmodel.runtime.engines.sglang.vocabulary import Vocabulary

DEFAULT_PROFILE = "a100"
_STARTING_S = {"replay": 60.0, "sglang": 900.0}
"""By engine: so long a subserver may take until it is first heard."""


@dataclass(frozen=True)
class RealModels:
    """What real models' folders say, and the machine.

    Attributes
    ----------
    unmeasured
        Their profile, with placeholders for the times of steps.
    vocabulary
        That of all.
    """

    unmeasured: LoadedProfile
    vocabulary: Vocabulary


@dataclass(frozen=True)
class Plan:
    """A server to be started.

    Attributes
    ----------
    system
        At N = ``max_live``.
    specs
        One for each model, of incarnation 1.
    vectors
        The first thresholds.
    folder
        Of the local sockets, made for this server alone; to be removed after it.
    real
        None with the replay engine.
    """

    config: ServerConfig
    loaded: LoadedProfile
    system: RoutedSystem
    specs: tuple[SubserverSpec, ...]
    vectors: Vectors
    folder: Path | None = None
    real: RealModels | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The models."""
        return self.system.models


def make_plan(config: ServerConfig) -> Plan:
    """Work out a server from its file.

    Raises
    ------
    InputError, UsageError, InfeasibleError
        If something in it, or in a file that it names, is wrong.
    """
    _check_cores(config, [name for name in config.models if name not in config.transport.remote])
    config, real = _complete(config)
    loaded, system, policy = _system(config, real)
    with options_at("policy_options"):
        policy.check_start(_small(config, real))
    vectors = _first_vectors(config, loaded, system)
    folder = make_folder(config, system.models)
    specs = _specs(config, system, folder, real)
    return Plan(config, loaded, system, specs, vectors, folder, real)


def make_remote_spec(config: ServerConfig, name: str) -> SubserverSpec:
    """Work out one model's subserver that is started by hand.

    Raises
    ------
    InputError, UsageError, InfeasibleError
        As `make_plan`, or if the file does not list the model under ``transport.remote``.
    """
    config, real = _complete(config)
    _, system, _ = _system(config, real)
    if name not in config.transport.remote:
        remote = ", ".join(config.transport.remote) or "none"
        raise InputError(f"{name}: is not under transport.remote, which has {remote}")
    _check_cores(config, [name] if config.models else [])
    specs = _specs(config, system, make_folder(config, system.models), real)
    return specs[system.models.index(name)]


def _check_cores(config: ServerConfig, names: Sequence[str]) -> None:
    if names:
        from trmodel.runtime.engines.sglang.planning import check_cores

        check_cores(config, names)


def _complete(config: ServerConfig) -> tuple[ServerConfig, RealModels | None]:
    """Fill in what is left open and depends on the engine."""
    starting_s = config.transport.starting_s or _STARTING_S[config.engine]
    transport = config.transport.model_copy(update={"starting_s": starting_s})
    config = config.model_copy(update={"transport": transport})
    if config.engine == "replay":
        if config.models:
            raise InputError(
                "models: are those of the profile with the replay engine; leave it out"
            )
        if "sglang" in config.model_fields_set:
            raise InputError(
                "sglang: has no effect with the replay engine; leave it out, or set engine: sglang"
            )
        return config, None
    if not config.models:
        raise InputError("models: the sglang engine needs them, such as 'small: {path: FOLDER}'")
    from trmodel.runtime.engines.sglang.planning import check_settings, limits, machine_profile
    from trmodel.runtime.engines.sglang.vocabulary import check_vocabularies

    check_settings(config)
    vocabulary = check_vocabularies({name: model.path for name, model in config.models.items()})
    real = RealModels(load_profile(machine_profile(config)), vocabulary)
    return limits(config, real.unmeasured), real


def base_profile(config: ServerConfig, real: RealModels | None = None) -> LoadedProfile:
    """Return the profile of a server's file; of one that was not measured yet, a placeholder.

    Parameters
    ----------
    real
        What is known of real models already.

    Raises
    ------
    InputError
        If it cannot be read, or lacks a model.
    """
    if config.engine == "replay":
        return load_profile(config.profile or DEFAULT_PROFILE)
    if config.profile is None:
        if real is not None:
            return real.unmeasured
        from trmodel.runtime.engines.sglang.planning import machine_profile

        return load_profile(machine_profile(config))
    loaded = load_profile(config.profile)
    if missing := [name for name in config.models if name not in loaded.profile.model_names]:
        raise InputError(f"{loaded.origin}: has no model {', '.join(missing)}; measure it anew")
    return loaded


def _system(
    config: ServerConfig, real: RealModels | None
) -> tuple[LoadedProfile, RoutedSystem, Policy]:
    loaded = base_profile(config, real)
    if config.models and config.routing is None and loaded.profile.routing is None:
        raise InputError(
            f"routing: has no default for {len(config.models)} models; write the probabilities "
            f"between {', '.join(config.models)}, in this order, into a file (docs/profiles.md "
            "says how) and name it here: 'routing: FILE'"
        )
    system = build_system(
        loaded, config.max_live, config.routing, p=config.p, max_batch=config.max_batch
    )
    if config.models and list(config.models) != list(system.models):
        # Policies know models by their place.
        raise InputError(
            f"models: the routing has {', '.join(system.models)}, in this order; list them so"
        )
    if not system.plain and config.retune.mode != "off":
        raise UsageError("retune: the probabilities of phases cannot be estimated; mode: off")
    # Each subserver makes its own; what is wrong with it is better said once, here.
    policy = find_policy(config.policy, config.policy_options, *_routing(system))
    if not system.plain and policy.takes_routing:
        raise UsageError(f"routing: {config.policy} has no phases; name a policy that does")
    if config.engine == "replay" and policy.needs:
        raise InputError(
            f"policy: {config.policy} needs {', '.join(sorted(policy.needs))} of every step, which "
            "the replay engine does not have"
        )
    return loaded, system, policy


def _small(config: ServerConfig, real: RealModels | None) -> SmallModel | None:
    if real is None:
        return None
    from trmodel.runtime.engines.sglang.folder import ModelFolder

    first = next(iter(config.models.values()))
    return SmallModel(ModelFolder(first.path).hidden_size, real.vocabulary.size)


def _specs(
    config: ServerConfig, system: RoutedSystem, folder: Path | None, real: RealModels | None
) -> tuple[SubserverSpec, ...]:
    front, addresses = addresses_of(config, system.models, folder)
    engines = _engines(config, system, real)
    transition_probability, committed_tokens = _routing(system)
    return tuple(
        SubserverSpec(
            model=i,
            names=system.models,
            front_address=front,
            addresses=addresses,
            incarnation=1,
            engine=engines[i],
            policy=config.policy,
            policy_options=dict(config.policy_options),
            transition_probability=transition_probability,
            committed_tokens=committed_tokens,
            max_batch=system.max_batch[i],
            hold_s=config.hold_ms / 1000.0,
            keys=config.transport.keys,
            supervised=name not in config.transport.remote,
            folder=None if folder is None else str(folder),
        )
        for i, name in enumerate(system.models)
    )


def _engines(
    config: ServerConfig, system: RoutedSystem, real: RealModels | None
) -> list[dict[str, Any]]:
    if real is None:
        return [
            {"kind": "replay", "latency_ms": row.tolist(), "wake_ms": float(wake_ms)}
            for row, wake_ms in zip(system.latency_ms, system.wake_ms, strict=True)
        ]
    import msgspec

    from trmodel.runtime.engines.sglang.planning import engine_options

    return [
        {"kind": "sglang", "requests": config.max_live, **msgspec.structs.asdict(options)}
        for options in engine_options(config, system.models, real.vocabulary.size)
    ]


def _routing(system: RoutedSystem) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """Return p and c between models; of a routing in phases, which has none, that all stay."""
    if not system.plain:
        stay = tuple(tuple(float(i == j) for j in range(system.M)) for i in range(system.M))
        return stay, stay
    return tuple(
        tuple(map(tuple, matrix.tolist()))
        for matrix in (system.transition_probability, system.committed_tokens)
    )


def first_vectors(config: ServerConfig) -> Vectors:
    """Return the thresholds that a server starts with.

    Raises
    ------
    InputError, UsageError, InfeasibleError
        As `make_plan`.
    """
    config, real = _complete(config)
    loaded, system, _ = _system(config, real)
    return _first_vectors(config, loaded, system)


def _first_vectors(config: ServerConfig, loaded: LoadedProfile, system: RoutedSystem) -> Vectors:
    if config.thresholds == "eager":
        return ((1,) * system.M,)
    if config.thresholds == "tune":
        if config.engine != "replay" and config.profile is None:
            raise InputError(
                "profile: thresholds cannot be tuned before steps are measured: 'trmodel profile "
                "measure --engine sglang --config FILE -o PROFILE'; or serve with thresholds: eager"
            )
        from trmodel.search import tune_system

        return tune_system(system, [config.max_live]).thresholds.vectors
    return read_vectors(
        config.thresholds, system.models, loaded.profile.name, config.force_thresholds
    )


def read_vectors(
    path: str, names: Sequence[str], profile: str | None = None, force: bool = False
) -> Vectors:
    """Read the thresholds of a document that ``trmodel tune -o`` wrote.

    Raises
    ------
    InputError, InfeasibleError
        If it is none, can deadlock, or is for other models or another profile; ``force`` lets
        the names differ.
    """
    from trmodel.documents import read_json

    data, _ = read_json(path)
    if not force and (why := other_names(data, names, profile)):
        raise InputError(f"{path}: {why}; --force takes them all the same")
    return vectors_of(data, names, path)


def other_names(data: Any, names: Sequence[str], profile: str | None = None) -> str | None:
    """Say in what a document's thresholds are for something else than this server, if they are."""
    if not isinstance(data, dict):
        return None
    made = data.get("profile")
    for what, theirs, ours in (
        ("models", data.get("models"), list(names)),
        ("profile", made.get("name") if isinstance(made, dict) else made, profile),
    ):
        if theirs is not None and ours is not None and theirs != ours:
            return (
                f"{what}: the thresholds are for {_listed(theirs)}, this server has {_listed(ours)}"
            )
    return None


def _listed(names: Any) -> str:
    return ", ".join(map(str, names)) if isinstance(names, list) else str(names)


def vectors_of(data: Any, names: Sequence[str], where: str) -> Vectors:
    """Take the thresholds out of a parsed document; see `read_vectors`."""
    vectors = data.get("thresholds") if isinstance(data, dict) else None
    if not isinstance(vectors, list) or not vectors:
        raise InputError(f"{where}: has no thresholds; is it a file of 'trmodel tune -o'?")
    for n, B in enumerate(vectors, start=1):
        whole = isinstance(B, list) and all(type(b) is int and b >= 1 for b in B)
        if not whole or len(B) != len(names):
            raise InputError(
                f"{where}: thresholds[{n - 1}]: {len(names)} whole numbers of at least 1 are needed"
            )
    result = tuple(tuple(B) for B in vectors)
    check_vectors(result)
    return result
