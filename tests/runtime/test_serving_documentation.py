"""What the documents show of serving is what happens."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from pydantic import BaseModel

from trmodel.runtime.config import ModelConfig, ServerConfig, load_config
from trmodel.runtime.server.ask import IGNORED

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SERVING = (ROOT / "docs" / "serving.md").read_text()
REAL_MODELS = (ROOT / "docs" / "sglang.md").read_text()
PROGRAM = Path(sys.executable).with_name("trmodel")


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as made:
        return made.getsockname()[1]


def run(script, folder, python=""):
    """Run what a document shows, on a free port, with the program installed here."""
    port = str(free_port())
    script = re.sub(r"^trmodel serve", f"trmodel serve --port {port}", script, flags=re.MULTILINE)
    (folder / "client.py").write_text(python.replace("8000", port))
    end = f"{sys.executable} client.py\nkill %1\nwait %1\n"
    done = subprocess.run(
        ["bash", "-ec", script.replace("8000", port) + end],
        cwd=folder,
        env=os.environ | {"PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples use curl")
def test_the_quick_starts_run(tmp_path):
    (script,) = blocks(README, "bash")
    shown = run(script, tmp_path)
    assert '"status":"ready"' in shown
    assert '"completion_tokens":20' in shown
    assert 'trmodel:batch_size_bucket{le="1.0",model="Qwen3-0.6B"}' in shown
    _, start, thresholds = blocks(SERVING, "bash")
    shown = run(start + thresholds, tmp_path, blocks(SERVING, "python")[0])
    assert "data: [DONE]" in shown
    assert '"version":2' in shown
    printed = shown.rsplit("}")[-1].removesuffix("\n")  # by the client of the example
    assert len(printed) == 20


def test_the_policy_shown_works(servers, tmp_path, monkeypatch):
    policy = next(block for block in blocks(SERVING, "python") if "Policy" in block)
    settings = next(block for block in blocks(SERVING, "yaml") if "mine:Every" in block)
    (tmp_path / "mine.py").write_text(policy)
    monkeypatch.chdir(tmp_path)
    server = servers(**yaml.safe_load(settings)).start().ready()
    body = {"model": "trmodel", "prompt": "a", "max_tokens": 30}
    assert httpx.post(f"{server.url}/v1/completions", json=body).status_code == 200
    server.wait_until_empty()
    small, large = server.stats()["counted"]
    assert (sum(small["committed"]), sum(large["committed"])) == (20, 10)


def test_the_example_and_the_settings_shown_are_valid(tmp_path):
    load_config(ROOT / "examples" / "r2r.yaml")
    for number, block in enumerate(blocks(SERVING, "yaml")):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block)
        load_config(path)


def fields(cls, prefix=""):
    for name, field in cls.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from fields(inner, f"{name}.")
        else:
            yield prefix + name


@pytest.mark.parametrize("name", list(fields(ServerConfig)))
def test_every_setting_is_documented(name):
    assert f"`{name}`" in SERVING + REAL_MODELS


@pytest.mark.parametrize("name", ModelConfig.model_fields)
def test_every_setting_of_a_model_is_documented(name):
    assert f"`models.NAME.{name}`" in REAL_MODELS


@pytest.mark.parametrize("name", IGNORED)
def test_every_field_without_effect_is_documented(name):
    assert f"`{name}`" in SERVING + REAL_MODELS


def test_every_metric_is_documented(server):
    text = httpx.get(f"{server.url}/metrics").text
    names = set(re.findall(r"^# TYPE trmodel:(\w+) ", text, re.MULTILINE))
    for name in names:
        assert name.endswith("_created") or f"`{name}`" in SERVING, name
