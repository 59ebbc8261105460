"""What this machine has."""

from __future__ import annotations

import os


def memory_bytes() -> int:
    """Return the bytes of its main memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
