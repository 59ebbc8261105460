"""Hold many streams open at once, and see what that costs and whether any fails.

    python benchmarks/streams.py --streams 1000 --idle-s 60

Starts a server of its own on the replay engine, opens the streams, waits for their ends, lets the
server idle, and loads it again. Prints one JSON document: failures, tokens, and the server's
memory and descriptors before, during and after.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

SETTINGS = {
    "profile": "a100-paper",
    "thresholds": "eager",
    "max_live": 64,
    "max_batch": 32,
    "http": {"port": 0},
}


async def read_stream(client: httpx.AsyncClient, seed: int, tokens: int) -> int:
    """Read one stream to its end; return how many tokens came, or raise."""
    body = {"model": "trmodel", "prompt": "a", "max_tokens": tokens, "seed": seed, "stream": True}
    came, last = 0, ""
    async with client.stream("POST", "/v1/completions", json=body) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                came += len(json.loads(line[6:])["choices"][0]["text"])
            last = line or last
    if last != "data: [DONE]" or came != tokens:
        raise RuntimeError(f"{came} of {tokens} tokens, ended in {last[:100]}")
    return came


def footprint(server: psutil.Process) -> dict[str, Any]:
    """Memory and descriptors of the front end and its subservers together."""
    processes = [server, *server.children()]
    return {
        "memory_mib": round(sum(p.memory_info().rss for p in processes) / 2**20, 1),
        "front_memory_mib": round(server.memory_info().rss / 2**20, 1),
        "descriptors": sum(p.num_fds() for p in processes),
    }


async def load(url: str, server: psutil.Process, streams: int, tokens: int) -> dict[str, Any]:
    """Open all streams at once and read them to their ends."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    started = time.monotonic()
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=600.0) as client:
        tasks = [asyncio.create_task(read_stream(client, n, tokens)) for n in range(streams)]
        most: dict[str, Any] = {}
        while not all(task.done() for task in tasks):
            now = await asyncio.to_thread(footprint, server)
            most = {key: max(value, most.get(key, 0)) for key, value in now.items()}
            await asyncio.wait(tasks, timeout=1.0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
    failures = [repr(result) for result in results if isinstance(result, BaseException)]
    took = time.monotonic() - started
    came = sum(result for result in results if isinstance(result, int))
    return {
        "streams": streams,
        "failures": len(failures),
        "examples": failures[:3],
        "took_s": round(took, 1),
        "tokens_per_s": round(came / took, 1),
        "most": most,
    }


def measure(streams: int, tokens: int, rounds: int, idle_s: float) -> dict[str, Any]:
    """Start a server, load it several times with an idle time between, and end it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "server.yaml"
        config.write_text(json.dumps(SETTINGS | {"max_queue": streams}))
        process = subprocess.Popen(
            [sys.executable, "-m", "trmodel", "serve", "--config", str(config)],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            if not line.startswith("serving at "):
                raise SystemExit(line)
            url, server = line.split()[2], psutil.Process(process.pid)
            asyncio.run(load(url, server, 8, 4))  # what is imported late is counted as before
            result: dict[str, Any] = {"before": footprint(server), "rounds": []}
            for number in range(rounds):
                if number:
                    time.sleep(idle_s)
                found = asyncio.run(load(url, server, streams, tokens))
                time.sleep(2.0)
                result["rounds"].append(found | {"after": footprint(server)})
            stats = httpx.get(f"{url}/stats").json()
            result["left"] = {
                "requests": stats["n"] + stats["queued"],
                "kv_tokens": sum(each["kv_tokens"] for each in stats["counted"]),
            }
            return result
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30.0)
            process.stderr.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=32, help="of each reply")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle-s", type=float, default=60.0, help="between rounds")
    given = parser.parse_args()
    print(json.dumps(measure(given.streams, given.tokens, given.rounds, given.idle_s), indent=2))


if __name__ == "__main__":
    main()
