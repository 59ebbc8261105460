"""The executor against standard serving: `python benchmarks/standard_serving.py --models S L`.

Standard serving is an SGLang engine for each model and a dispatcher that asks one token at a time
(`peer.py`), with and without a radix cache. Both sides serve the same models, prompts, lengths and
routing decisions (the preset r2r: a token of the small model is dropped when it hands over, the
large one always returns) to N requests in a closed loop, greedily, each model on a core of its own.
The executor runs at the thresholds that are tuned from the steps it takes. Runs are interleaved,
each in fresh processes.

The bars, with the tiny small model as both: at 128 tokens a reply the executor has 3 times the
throughput of the faster peer, at 512 tokens 4 times; and 70 % of what the model says its own step
latencies allow.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from peer import standard_serving, steps_of

from trmodel.errors import TrmodelError
from trmodel.markov import predict_chain
from trmodel.runtime.bench.loop import asked_in_steady_state
from trmodel.runtime.bench.point import measure_point
from trmodel.runtime.bench.running import running
from trmodel.runtime.bench.steps import machine, software
from trmodel.runtime.bench.target import InProcess, Target
from trmodel.runtime.bench.validate import realised, with_own_latencies
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.plan import make_plan
from trmodel.runtime.policies.bernoulli import Bernoulli
from trmodel.search import tune_system
from trmodel.system import RoutedSystem

RATIO_BARS, SHARE_BAR_PERCENT = {128: 3.0, 512: 4.0}, 70.0
LONGEST_PROMPT = 64
PEER_TRIES = 3
WAYS = ("ours", "peer", "peer with radix cache")


@dataclass(frozen=True)
class Load:
    """What is asked of both sides: N requests at a time, at each of some lengths of replies."""

    N: int = 8
    tokens: tuple[int, ...] = (128, 512)
    p: float = 0.35
    seconds: float = 15.0
    warm_up: float = 3.0
    seed: int = 0

    @property
    def context(self) -> int:
        """The most tokens that a request has."""
        return max(self.tokens) + LONGEST_PROMPT

    def measure(self, target: Target, B: Sequence[int], tokens: int) -> dict[str, Any]:
        """Measure one target at one length."""
        return measure_point(
            target,
            self.N,
            B,
            seconds=self.seconds,
            warm_up=self.warm_up,
            reply_tokens=tokens,
            seed=self.seed,
            requests=asked_in_steady_state(self.N, tokens, self.seed),
        )


def executor_config(
    models: Mapping[str, str],
    load: Load,
    device: str = "cpu",
    dtype: str = "float32",
    arguments: Mapping[str, Any] | None = None,
) -> ServerConfig:
    """Return the server's file of the executor; on the CPU each model has a core of its own.

    ``arguments`` are more of SGLang's own, which the peer's engines get as well.
    """
    cores = [[core] if device == "cpu" else [] for core in range(len(models))]
    return ServerConfig.model_validate(
        {
            "engine": "sglang",
            "models": {
                name: {"path": path, "cores": of_model}
                for (name, path), of_model in zip(models.items(), cores, strict=True)
            },
            "sglang": {"device": device, "dtype": dtype, "arguments": dict(arguments or {})},
            "routing": "r2r",
            "p": load.p,
            "thresholds": "eager",
            "max_live": load.N,
            "max_tokens": load.context,
            "max_context": load.context,
            "kv_tokens": load.N * load.context,
        }
    )


def each_of_ours(config: ServerConfig, load: Load) -> Iterator[dict[str, Any]]:
    """Measure the executor: eagerly, and at what is tuned from the steps that it then takes.

    Yields
    ------
    dict
        For each length the point at the tuned thresholds.
    """
    system = make_plan(config).system
    with running(config) as target:
        if isinstance(target, InProcess):
            target.temperature = 0.0
        for tokens in load.tokens:
            eager = load.measure(target, (1,) * system.M, tokens)
            allowed = without_handoffs(with_own_latencies(system, eager))
            B = tune_system(allowed, [load.N]).thresholds.vectors[load.N - 1]
            point = eager if set(B) == {1} else load.measure(target, B, tokens)
            yield point | {
                "eager_tok_s": eager["throughput_tok_s"],
                "allowed_tok_s": allowed_tok_s(system, point),
            }


def allowed_tok_s(system: RoutedSystem, point: Mapping[str, Any]) -> float:
    """Return what the model predicts from a run's own steps if handoffs took no time."""
    own = without_handoffs(with_own_latencies(realised(system, point), point))
    return predict_chain(own, tuple(point["B"])).throughput_tok_s


def without_handoffs(system: RoutedSystem) -> RoutedSystem:
    """Return the system with handoffs that take no time."""
    return replace(system, handoff_ms=np.zeros_like(system.handoff_ms))


def each_of_peer(
    config: ServerConfig, load: Load, radix: bool, plain: bool = False
) -> Iterator[dict[str, Any]]:
    """Measure standard serving with the models and routing decisions of an executor's file.

    ``plain`` leaves it SGLang's own attention on the CPU; see `peer.engine_arguments`.

    Yields
    ------
    dict
        A point for each length.
    """
    if config.sglang.device == "cpu":
        from trmodel.runtime.engines.sglang.environment import prepare_cpu

        prepare_cpu()
    system = make_plan(config).system
    policy = Bernoulli(system.transition_probability.tolist(), system.committed_tokens.tolist())
    options = {
        "device": config.sglang.device,
        "dtype": config.sglang.dtype,
        "context_length": load.context,
        # Without evictions: what every reply has, and as much of those that ended.
        "max_total_tokens": 2 * load.N * load.context,
        "max_running_requests": 2 * load.N,
        **({"attention_backend": "torch_native"} if plain else {}),
        **config.sglang.arguments,
    }
    models = {name: config.models[name].path for name in system.models}
    cores = [config.models[name].cores for name in system.models]
    steps = steps_of(policy, system.entry_model)
    with standard_serving(models, steps, options, radix=radix, cores=cores) as target:
        for tokens in load.tokens:
            yield load.measure(target, (1,) * system.M, tokens)


def ours(*arguments: Any) -> list[dict[str, Any]]:
    """Return all of `each_of_ours`."""
    return list(each_of_ours(*arguments))


def peer(*arguments: Any) -> list[dict[str, Any]]:
    """Return all of `each_of_peer`."""
    return list(each_of_peer(*arguments))


def apart(measure: Callable[..., list[dict[str, Any]]], *arguments: Any) -> list[dict[str, Any]]:
    """Measure in a process of its own, with nothing left of what was measured before."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


def answered(config: ServerConfig, load: Load, radix: bool, plain: bool) -> list[dict[str, Any]]:
    """Measure the peer; where its engines do not answer at all, once more in new processes.

    Raises
    ------
    TrmodelError
        If they do not answer then either.
    """
    for _ in range(PEER_TRIES):
        points = apart(peer, config, load, radix, plain)
        if all(point["throughput_tok_s"] > 0.0 for point in points):
            return points
        print("the peer's engines did not answer; they are started anew", file=sys.stderr)
    raise TrmodelError(f"the peer's engines did not answer in {PEER_TRIES} tries")


def compare(
    config: ServerConfig, load: Load, runs: int, plain: bool = False
) -> list[dict[str, Any]]:
    """Measure all ways in turn, so many times; a row for each run, way and length."""
    rows = []
    for run in range(runs):
        for way in WAYS:
            if way == "ours":
                points = apart(ours, config, load)
            else:
                points = answered(config, load, way != "peer", plain)
            for point in points:
                rows.append({"run": run, "way": way, **point})
                low, high = point["throughput_interval_tok_s"]
                print(
                    f"run {run + 1}, {point['reply_tokens']} tokens, {way}: "
                    f"{point['throughput_tok_s']:.1f} tok/s [{low:.1f}, {high:.1f}], "
                    f"load average {point['load_average'][1]:.1f}",
                    file=sys.stderr,
                    flush=True,
                )
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each length the throughputs, the ratio to the faster peer, and our share."""
    found = []
    for tokens in sorted({row["reply_tokens"] for row in rows}):
        speeds = {
            way: [
                row["throughput_tok_s"]
                for row in rows
                if (row["reply_tokens"], row["way"]) == (tokens, way)
            ]
            for way in WAYS
        }
        own = [row for row in rows if (row["reply_tokens"], row["way"]) == (tokens, "ours")]
        ratios = [our / max(others) for our, *others in zip(*speeds.values(), strict=True)]
        shares = [100.0 * row["throughput_tok_s"] / row["allowed_tok_s"] for row in own]
        found.append(
            {
                "tokens": tokens,
                **{f"{way.replace(' ', '_')}_tok_s": spread(speeds[way]) for way in WAYS},
                "ratio": spread(ratios),
                "ratio_bar": RATIO_BARS.get(tokens),
                "share_percent": spread(shares),
                "share_bar_percent": SHARE_BAR_PERCENT,
                "B": [row["B"] for row in own],
            }
        )
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median and the range."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def reached(length: Mapping[str, Any]) -> bool:
    """Whether the medians of one length are above its bars."""
    return bool(
        length["ratio"]["median"] >= (length["ratio_bar"] or 0.0)
        and length["share_percent"]["median"] >= length["share_bar_percent"]
    )


def shown(length: Mapping[str, Any]) -> str:
    """Return a line on one length."""

    def text(name: str, digits: int = 0) -> str:
        middle, least, most = (f"{value:.{digits}f}" for value in length[name].values())
        return f"{middle} ({least} to {most})"

    bar = f", bar {length['ratio_bar']:g}" if length["ratio_bar"] else ""
    return (
        f"{length['tokens']} tokens: ours {text('ours_tok_s')} tok/s at B = {length['B'][-1]}, "
        f"peer {text('peer_tok_s')}, with radix cache {text('peer_with_radix_cache_tok_s')}; "
        f"ratio to the faster {text('ratio', 2)}{bar}; {text('share_percent')} % of what steps "
        f"allow, bar {length['share_bar_percent']:g}"
    )


def about_this_machine() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    return {
        "machine": f"{os.cpu_count()} cores; {machine()}",
        "software": software(),
        "load_average": os.getloadavg()[0],
    }


def lengths(text: str) -> tuple[int, ...]:
    """Read numbers of tokens, such as ``128,512``."""
    return tuple(int(part) for part in text.split(","))


def main() -> None:
    """Measure, print, and fail below a bar."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", nargs=2, required=True, metavar=("SMALL", "LARGE"))
    parser.add_argument("--N", type=int, default=8)
    parser.add_argument("--tokens", type=lengths, default=(128, 512), help="of a reply")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--p", type=float, default=0.35)
    parser.add_argument("--seconds", type=float, default=15.0, help="of every window")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument(
        "--plain", action="store_true", help="the peer with SGLang's own attention on the CPU"
    )
    parser.add_argument("-o", type=Path, help="file of everything measured, JSON")
    given = parser.parse_args()
    about = about_this_machine()
    print(f"load average {about['load_average']:.1f} on {os.cpu_count()} cores", flush=True)
    load = Load(given.N, given.tokens, given.p, given.seconds)
    models = dict(zip(("small", "large"), given.models, strict=True))
    config = executor_config(models, load, given.device, given.dtype)
    rows = compare(config, load, given.runs, given.plain)
    found = summary(rows)
    for length in found:
        print(shown(length))
    met = all(map(reached, found))
    if given.o:
        settings = {
            "server": config.model_dump(mode="json"),
            "load": asdict(load),
            "plain": given.plain,
        }
        document = {"schema": "trmodel/standard-serving", "schema_version": 1, **about, **settings}
        document |= {"lengths": found, "reached": met, "runs": rows}
        given.o.write_text(json.dumps(document, indent=1), encoding="utf-8")
    print("reached" if met else "missed")
    sys.exit(not met)


if __name__ == "__main__":
    main()
