"""What all tests share."""

import json
from pathlib import Path

import pytest
from hypothesis import settings

# The first call of a compiled function takes seconds, so time says nothing about an example; and
# a run must not depend on the luck of the draw.
settings.register_profile("trmodel", deadline=None, derandomize=True)
settings.load_profile("trmodel")


@pytest.fixture(scope="session")
def published():
    """Numbers printed in arXiv:2610.12242 or computed by an independent implementation."""
    path = Path(__file__).parent / "fixtures" / "delayed_batching.json"
    return json.loads(path.read_text(encoding="utf-8"))
