"""The log of a server's processes: one line for each thing, on stderr."""

from __future__ import annotations

import logging
import os

NO_BARS = {"TQDM_DISABLE": "1", "TQDM_DELAY": "1e9"}
"""What keeps bars of progress out of it.

tqdm reads both when it is imported, as defaults. SGLang's loader says itself whether a bar is
disabled, but not that one must wait before it is drawn.
"""


def log_to_stderr(level: str = "WARNING") -> None:
    """Begin to log; to be called before torch, which imports tqdm."""
    for name, value in NO_BARS.items():
        os.environ.setdefault(name, value)
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=level)
