"""Every notebook runs from top to bottom, as a notebook and as a script, and makes its report."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
import nbclient
import numpy as np
import pytest
from matplotlib.image import imread

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
KERNEL = "trmodel-tests"
TIMEOUT_S = 600

pytestmark = pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture
def copied(tmp_path, source):
    """The notebook in a copy of its folder, so that what it writes stays out of the tree."""
    shutil.copytree(source.parent, tmp_path / "notebooks")
    return tmp_path / "notebooks" / source.name


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A kernel of this interpreter, whatever kernels and settings the user has."""
    folder = tmp_path / "jupyter" / "kernels" / KERNEL
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": KERNEL, "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    return KERNEL


def reports_of(copied):
    folder = copied.parent.parent / "reports"
    return {path.name: path for path in folder.iterdir()}


def test_it_runs_as_a_notebook(source, copied, kernel):
    notebook = jupytext.read(copied)
    client = nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name=kernel,
        resources={"metadata": {"path": str(copied.parent)}},
    )
    client.execute()  # raises with the cell's traceback
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    figures = [path for path in reports_of(copied).values() if path.suffix == ".png"]
    assert figures
    for path in figures:
        pixels = imread(path)
        assert min(pixels.shape[:2]) > 200, path.name
        assert np.std(pixels[..., :3]) > 0.05, f"{path.name} is blank"
    shown = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(shown) == len(figures), "every figure is shown in the notebook too"


def test_it_runs_as_a_script_from_anywhere_and_its_numbers_are_those_reported(
    source, copied, tmp_path
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, copied],
        cwd=elsewhere,
        env=os.environ | {"MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert not list(elsewhere.iterdir())
    made = reports_of(copied)
    text = made[f"{source.stem}.md"].read_text(encoding="utf-8")
    assert text == (ROOT / "reports" / f"{source.stem}.md").read_text(encoding="utf-8")
    for name in made:
        assert (ROOT / "reports" / name).is_file(), f"{name} is not in reports/"
        if name.endswith(".png"):
            assert f"({name})" in text
