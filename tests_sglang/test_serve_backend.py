"""SGLang's own command as it starts this server: help, errors, and a server's whole life."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[1]
GROUP = "sglang.serve_backends"
COMMAND = [str(Path(sys.executable).parent / "sglang"), "serve", "--model-type", "trmodel"]
SETTINGS = {"profile": "a100-paper", "thresholds": "eager", "http": {"port": 0}}
CALLS = {
    "help": ["--help"],
    "option": ["--config", "server.yaml", "--colour", "red"],
    "setting": ["--config", "wrong.yaml"],
    "model": ["models/Qwen3-0.6B", "--config", "server.yaml"],
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """All calls and a server, begun at once: what takes long is that SGLang imports itself."""
    folder = tmp_path_factory.mktemp("serving")
    (folder / "server.yaml").write_text(json.dumps(SETTINGS))  # JSON is YAML
    (folder / "wrong.yaml").write_text("max_live: none\n")
    environment = with_entry_point(folder)

    def begin(name, options):
        with (folder / f"{name}.out").open("w") as out, (folder / f"{name}.err").open("w") as err:
            return subprocess.Popen(
                [*COMMAND, *options], cwd=folder, env=environment, stdout=out, stderr=err
            )

    processes = {name: begin(name, options) for name, options in CALLS.items()}
    processes["server"] = begin("server", ["--config", "server.yaml"])
    yield folder, processes
    for process in processes.values():
        process.kill()
        process.wait()


def with_entry_point(folder):
    """Return an environment in which SGLang finds what pyproject.toml declares.

    That is there where the package is installed, and put there where only its source is.
    """
    environment = dict(os.environ)
    if not entry_points(group=GROUP, name="trmodel"):
        declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
        made = folder / "trmodel-0.dist-info"
        made.mkdir()
        (made / "METADATA").write_text("Metadata-Version: 2.1\nName: trmodel\nVersion: 0\n")
        lines = [f"{name} = {value}\n" for name, value in declared[GROUP].items()]
        (made / "entry_points.txt").write_text(f"[{GROUP}]\n{''.join(lines)}")
        path = [str(folder), str(ROOT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return environment


def ended(begun, name):
    """Return exit code, stdout, and what trmodel said on stderr among SGLang's warnings."""
    folder, processes = begun
    code = processes[name].wait(120.0)
    told = (folder / f"{name}.err").read_text()
    assert "Traceback" not in told
    lines = [line for line in told.splitlines() if line.startswith("trmodel: ")]
    return code, (folder / f"{name}.out").read_text(), lines


def test_help_is_that_of_serve(begun):
    code, shown, complaints = ended(begun, "help")
    assert (code, complaints) == (0, [])
    for option in ("--config", "--profile", "--thresholds", "--force", "--host", "--port"):
        assert option in shown


def test_an_unknown_option_is_one_line(begun):
    code, shown, complaints = ended(begun, "option")
    assert (code, shown) == (2, "")
    assert complaints == ["trmodel: error: No such option: --colour; see 'trmodel serve --help'"]


def test_a_wrong_setting_is_one_line(begun):
    code, shown, complaints = ended(begun, "setting")
    assert (code, shown) == (4, "")
    assert len(complaints) == 1
    assert complaints[0].startswith("trmodel: error: wrong.yaml: max_live")


def test_a_path_of_a_model_is_refused(begun):
    code, shown, complaints = ended(begun, "model")
    assert (code, shown) == (2, "")
    assert len(complaints) == 1
    assert "models/Qwen3-0.6B" in complaints[0]
    assert "--config" in complaints[0]


def test_a_server_serves_and_ends(begun):
    folder, processes = begun
    server = processes["server"]
    url = where(folder / "server.err", server)
    assert httpx.get(f"{url}/health").status_code == 200
    asked = {"model": "trmodel", "prompt": "Once", "max_tokens": 8, "seed": 1}
    reply = httpx.post(f"{url}/v1/completions", json=asked, timeout=30.0)
    assert reply.json()["usage"]["completion_tokens"] == 8
    models = [each["pid"] for each in httpx.get(f"{url}/stats").json()["counted"]]
    assert len(models) == 2
    server.send_signal(signal.SIGTERM)
    assert server.wait(60.0) == 0
    assert not [pid for pid in models if Path(f"/proc/{pid}").exists()]
    assert "Traceback" not in (folder / "server.err").read_text()


def where(log, process, timeout_s=120.0):
    """Wait until a server says where it serves."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and process.poll() is None:
        if "serving at " in (said := log.read_text()):
            return said.split("serving at ")[1].split()[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text())
