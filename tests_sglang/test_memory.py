"""A model's cache is what the plan says, whatever else is on its device."""

import subprocess
import sys
from pathlib import Path

from crowded_memory import KV_TOKENS


def test_a_cache_is_as_large_as_planned_beside_others(models):
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "crowded_memory.py", models["small"]],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=180.0,
    )
    assert int(done.stdout.splitlines()[-1]) == KV_TOKENS
