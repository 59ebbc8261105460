"""What all tests share."""

import json
from pathlib import Path

import pytest
from hypothesis import settings

import trmodel

# The first call of a compiled function takes seconds, so time says nothing about an example; and
# a run must not depend on the luck of the draw.
settings.register_profile("trmodel", deadline=None, derandomize=True)
settings.load_profile("trmodel")


def _forget_stale_code():
    """Delete compiled code older than any source that is compiled.

    Numba sees that the file of a compiled function changed, but not the files of those it calls:
    after an edit of the launch rule the enumeration would go on with the old one.
    """
    package = Path(trmodel.__file__).parent
    sources = [path for path in package.rglob("*.py") if "njit" in path.read_text("utf-8")]
    newest = max(path.stat().st_mtime for path in [package / "launch.py", *sources])
    for index in package.rglob("*.nbi"):
        if index.stat().st_mtime < newest:
            index.unlink(missing_ok=True)


_forget_stale_code()


@pytest.fixture(scope="session")
def published():
    """Numbers printed in arXiv:2610.12242 or computed by an independent implementation."""
    path = Path(__file__).parent / "fixtures" / "delayed_batching.json"
    return json.loads(path.read_text(encoding="utf-8"))
