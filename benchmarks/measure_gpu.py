"""All that wants a GPU, in one run: `python benchmarks/measure_gpu.py --shape 0.6b,8b -o gpu.json`.

Steps, slow-downs and handoffs into a profile; closed loops at three N by three thresholds, each
beside what the model predicts from the profile; standard serving. Every part runs in a process of
its own, for as long as it may: one that takes longer is ended, and what it had measured by then is
kept. A part that does not fit into what is left of the time is left out. Either is said in the
file, which is written after every part, so that a run that is cut off has something to show.

Without weights, `--shape` takes Qwen3's shapes with made-up ones, which step as fast.
`--device cpu --models SMALL LARGE` tries all of it without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from standard_serving import (
    Load,
    about_this_machine,
    each_of_ours,
    each_of_peer,
    executor_config,
    lengths,
)

from trmodel.profile import load_profile
from trmodel.runtime.bench.engine_profile import measure_engines
from trmodel.runtime.bench.running import running
from trmodel.runtime.bench.validate import validate
from trmodel.runtime.config import ServerConfig

SHAPES = {
    "0.6b": dict(hidden=1024, inner=3072, layers=28, heads=16, tied=True),
    "1.7b": dict(hidden=2048, inner=6144, layers=28, heads=16, tied=True),
    "4b": dict(hidden=2560, inner=9728, layers=36, heads=32, tied=True),
    "8b": dict(hidden=4096, inner=12288, layers=36, heads=32, tied=False),
    "14b": dict(hidden=5120, inner=17408, layers=40, heads=40, tied=False),
    "32b": dict(hidden=5120, inner=25600, layers=64, heads=64, tied=False),
}
"""Of Qwen3 by size; all have 8 heads of keys and values, 128 wide."""
VOCABULARY = 151_936
Found = Iterator[tuple[str, Any]]
"""Names of figures, and the figures."""


def made_up(folder: Path, size: str) -> str:
    """Write the folder of a model without weights; SGLang makes them up (``dummy``)."""
    shape = SHAPES[size]
    path = folder / size
    path.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "vocab_size": VOCABULARY,
        "hidden_size": shape["hidden"],
        "intermediate_size": shape["inner"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_act": "silu",
        "max_position_embeddings": 40_960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "tie_word_embeddings": shape["tied"],
        "eos_token_id": 0,
    }
    vocabulary = {f"<{token}>": token for token in range(1024)}
    tokenizer = {"version": "1.0", "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return str(path)


@dataclass(frozen=True)
class Plan:
    """What all parts are about."""

    config: ServerConfig
    load: Load
    sizes: tuple[int, ...]
    """The three N."""
    seconds: float
    """Of a window."""
    profile: str
    """File of the measured profile."""


def profile(plan: Plan) -> Found:
    """Measure steps, slow-downs, the executor's overhead and handoffs."""
    found = measure_engines(
        plan.config,
        max(plan.sizes),
        contexts=[plan.load.context // 2],
        seconds=plan.seconds / 4.0,
        warm_up=0.5,
        progress=lambda done, of: say(f"  profile: {done} of {of}"),
    )
    document = found.model_dump_json(by_alias=True, indent=1)
    Path(plan.profile).write_text(document, encoding="utf-8")
    yield "profile", json.loads(document)


def loops(plan: Plan) -> Found:
    """Measure three N by three thresholds, and predict them if there is a profile."""
    largest = max(plan.sizes)
    config = plan.config.model_copy(update={"max_live": largest})
    points = []
    with running(config) as target:
        for N in plan.sizes:
            load = replace(plan.load, N=N, seconds=plan.seconds, warm_up=1.0)
            for B in ((1, 1), (1, max(N // 2, 2)), (max(N // 2, 2), 1)):
                points.append(load.measure(target, B, min(load.tokens)))
                yield f"N = {N}, B = {B}", points[-1]
    if Path(plan.profile).exists():
        yield "validation", validate(points, load_profile(plan.profile), p=plan.load.p).to_dict()


def ours(plan: Plan) -> Found:
    """Measure the executor under the load of standard serving."""
    yield from named(each_of_ours(plan.config, plan.load))


def peer_with_radix_cache(plan: Plan) -> Found:
    """Measure standard serving with a radix cache."""
    yield from named(each_of_peer(plan.config, plan.load, radix=True))


def peer(plan: Plan) -> Found:
    """Measure standard serving without one."""
    yield from named(each_of_peer(plan.config, plan.load, radix=False))


def named(points: Iterator[dict[str, Any]]) -> Found:
    """Name points by their length of replies."""
    return ((f"{point['reply_tokens']} tokens", point) for point in points)


@dataclass(frozen=True)
class Part:
    """A part, the seconds without which it is not begun, and the most it may take."""

    measure: Callable[[Plan], Found]
    least_s: float
    most_s: float


PARTS = (
    Part(profile, 60.0, 150.0),
    Part(loops, 60.0, 120.0),
    Part(ours, 45.0, 90.0),
    Part(peer_with_radix_cache, 45.0, 120.0),
    Part(peer, 45.0, 120.0),
)
"""Those that matter most first."""


def within(seconds: float, part: Part, plan: Plan) -> dict[str, Any]:
    """Run a part in a process of its own, for so long at most."""
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=_send, args=(sending, part.measure, plan))
    started = time.monotonic()
    process.start()
    sending.close()
    found: dict[str, Any] = {"state": "cut off", "found": {}}
    try:
        while receiving.poll(max(started + seconds - time.monotonic(), 0.0)):
            name, value = receiving.recv()
            if name == "":
                found |= value
                break
            found["found"][name] = value
            say(f"  {name}{_throughput(value)}")
    except EOFError:
        found["state"] = "failed"
        found["why"] = "its process ended"
    _end(process)
    return found | {"took_s": time.monotonic() - started}


def _throughput(value: Any) -> str:
    speed = value.get("throughput_tok_s") if isinstance(value, dict) else None
    return "" if speed is None else f": {speed:.0f} tok/s"


def _send(sending: Connection, measure: Callable[[Plan], Found], plan: Plan) -> None:
    os.setsid()  # so that it ends with all processes that it starts
    try:
        for each in measure(plan):
            sending.send(each)
        sending.send(("", {"state": "whole"}))
    except Exception as error:
        sending.send(("", {"state": "failed", "why": f"{type(error).__name__}: {error}"}))


def _end(process: Any) -> None:
    """Let a process end by itself, or end it and all that it started."""
    process.join(10.0)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.join()


def say(text: str) -> None:
    """Tell how far it is."""
    print(text, file=sys.stderr, flush=True)


def measure_all(
    plan: Plan, parts: Sequence[Part], limit_s: float, write: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run the parts one after the other, as far as there is time."""
    end = time.monotonic() + limit_s
    found: dict[str, Any] = {}
    for part in parts:
        name, left = part.measure.__name__, end - time.monotonic()
        if left < part.least_s:
            why = f"{left:.0f} s were left, it needs {part.least_s:.0f}"
            found[name] = {"state": "left out", "why": why}
        else:
            say(f"{name}: at most {min(left, part.most_s):.0f} of {left:.0f} s")
            found[name] = within(min(left, part.most_s), part, plan)
        say(f"{name}: {found[name]['state']} {found[name].get('why', '')}".rstrip())
        write(found)
    return found


def main() -> None:
    """Measure; fail unless every part was whole."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--models", nargs=2, metavar=("SMALL", "LARGE"), help="folders")
    which.add_argument("--shape", help="two sizes of Qwen3, such as 0.6b,8b, without weights")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--N", type=lengths, default=(4, 8, 16), help="three, such as 4,8,16")
    parser.add_argument("--tokens", type=lengths, default=(128, 512), help="of a reply")
    parser.add_argument("--seconds", type=float, default=4.0, help="of every window")
    parser.add_argument("--limit", type=float, default=460.0, help="seconds, of the whole run")
    parser.add_argument("--only", nargs="+", choices=[part.measure.__name__ for part in PARTS])
    parser.add_argument("-o", type=Path, required=True, help="file of everything measured, JSON")
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        sizes = given.shape.split(",") if given.shape else []
        if given.shape and (len(sizes) != 2 or not set(sizes) <= set(SHAPES)):
            parser.error(f"--shape: two of {', '.join(SHAPES)}")
        paths = given.models or [made_up(Path(folder), size) for size in sizes]
        load = Load(8, given.tokens, seconds=2.0 * given.seconds, warm_up=2.0)
        config = executor_config(
            dict(zip(("small", "large"), paths, strict=True)),
            replace(load, N=max(load.N, *given.N)),
            given.device,
            "float32" if given.device == "cpu" else "bfloat16",
            {"load_format": "dummy"} if given.shape else None,
        )
        plan = Plan(config, load, given.N, given.seconds, str(Path(folder, "measured.json")))
        about = about_this_machine() | {"models": given.models or sizes}

        def write(found: dict[str, Any]) -> None:
            document = {"schema": "trmodel/gpu-run", "schema_version": 1, **about, "parts": found}
            given.o.write_text(json.dumps(document, indent=1), encoding="utf-8")

        parts = [p for p in PARTS if not given.only or p.measure.__name__ in given.only]
        left_s = given.limit - (time.monotonic() - started)
        found = measure_all(plan, parts, left_s, write)
    say(f"{time.monotonic() - started:.0f} s in all; {given.o}")
    sys.exit(any(part["state"] != "whole" for part in found.values()))


if __name__ == "__main__":
    main()
