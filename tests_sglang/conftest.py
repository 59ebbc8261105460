"""What the tests that need SGLang share: an environment for the CPU, and tiny models."""

import importlib.util
from pathlib import Path

import pytest

from trmodel.runtime.engines.sglang.environment import prepare_cpu

prepare_cpu()  # before anything else imports torch or SGLang

from filelock import FileLock  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("trmodel", deadline=None, derandomize=True)
settings.load_profile("trmodel")

ROOT = Path(__file__).parents[1]


def pytest_configure(config):
    # A warning is an error in our own code only.
    for package in ("sglang", "torch", "transformers", "compressed_tensors", "importlib"):
        config.addinivalue_line("filterwarnings", f"ignore::Warning:{package}")
    # As an error this one breaks modules made by SWIG: Python crashes when it ends.
    config.addinivalue_line("filterwarnings", "ignore:builtin type .* has no __module__")


@pytest.fixture(scope="session")
def models(tmp_path_factory, worker_id):
    """Folders of three tiny models with one tokenizer: small, middle and large."""
    root = tmp_path_factory.getbasetemp()
    folder = (root if worker_id == "master" else root.parent) / "models"
    names = ("small", "middle", "large")
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            script("make_tiny_models").make(folder, names)
    return {name: folder / name for name in names}


def script(name):
    """Import a script of the repository."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
