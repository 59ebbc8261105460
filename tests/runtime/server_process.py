"""A server as its users run it: ``trmodel serve`` in a process of its own."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import psutil

TRMODEL = [sys.executable, "-m", "trmodel"]
SETTINGS = {
    "profile": "a100-paper",
    "thresholds": "eager",
    "max_live": 8,
    "max_queue": 8,
    "max_tokens": 2000,
    "max_context": 4000,
    "http": {"port": 0, "max_body_bytes": 100_000},
}


BODY = {"model": "trmodel", "prompt": "a", "stream": True}


class Server:
    """Started by `start`, ended by `end`; ``url`` is where it listens."""

    def __init__(self, folder, **changes):
        self.folder = folder
        settings = SETTINGS | changes
        settings["http"] = SETTINGS["http"] | changes.get("http", {})
        (folder / "server.yaml").write_text(json.dumps(settings))  # JSON is YAML
        self.log = folder / "log.txt"
        self.process = self.url = None

    def start(self, *options):
        with self.log.open("w") as log:
            command = [*TRMODEL, "serve", "--config", str(self.folder / "server.yaml"), *options]
            self.process = subprocess.Popen(command, stderr=log, stdout=subprocess.PIPE)
        return self

    def ready(self, timeout_s=60.0):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and self.process.poll() is None:
            if "serving at " in (said := self.log.read_text()):
                self.url = said.split("serving at ")[1].split()[0]
                return self
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    @property
    def models(self):
        """The processes of the models, in order."""
        return [psutil.Process(each["pid"]) for each in self.stats()["counted"]]

    def stats(self):
        return httpx.get(f"{self.url}/stats").json()

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def end(self):
        """End it; return its exit code."""
        if self.process.poll() is None:
            self.signal()
        try:
            return self.process.wait(20.0)
        except subprocess.TimeoutExpired:
            for child in psutil.Process(self.process.pid).children():
                child.kill()
            self.process.kill()
            raise
        finally:
            self.process.stdout.close()

    def wait_until_empty(self, timeout_s=10.0):
        """Wait until no request and no KV is left anywhere."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            stats = self.stats()
            held = [(each["held"], each["kv_tokens"]) for each in stats["counted"]]
            if stats["n"] == stats["queued"] == 0 and held == [(0, 0)] * len(held):
                return
            time.sleep(0.1)
        raise AssertionError(stats)


class Stream(threading.Thread):
    """Reads a stream of text to its end."""

    def __init__(self, server, **changes):
        super().__init__(daemon=True)
        self.url, self.body = f"{server.url}/v1/completions", BODY | changes
        self.lines, self.begun = [], threading.Event()
        self.start()
        assert self.begun.wait(10.0)

    def run(self):
        try:
            with httpx.stream("POST", self.url, json=self.body, timeout=60.0) as reply:
                for line in reply.iter_lines():
                    if line:
                        self.lines.append(line.removeprefix("data: "))
                        self.begun.set()
        except httpx.HTTPError as error:
            self.lines.append(repr(error))
        self.begun.set()

    @property
    def text(self):
        parts = [json.loads(line) for line in self.lines if line.startswith("{")]
        return "".join(part["choices"][0]["text"] for part in parts if "choices" in part)


def gone(processes, within_s):
    """Whether all end in time; whoever inherits them may take longer to look at them."""
    end = time.monotonic() + within_s
    while any(_runs(process) for process in processes):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _runs(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free_ports(count):
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in made]
    for each in made:
        each.close()
    return ports
