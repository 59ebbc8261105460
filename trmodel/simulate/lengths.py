"""Lengths of replies: measured ones from a file, or memoryless ones of a mean."""

from __future__ import annotations

import math

import numpy as np

from trmodel.documents import StrPath, read_text, shown
from trmodel.errors import InputError, UsageError
from trmodel.system_checks import MAX_TOKENS, is_positive

QUANTILES = 1000


def geometric_lengths(mean: float) -> tuple[float, ...]:
    """Return `QUANTILES` quantiles of the geometric distribution (from 1 token on) of a mean.

    Raises
    ------
    UsageError
        If the mean is below 1 or too large.
    """
    if not (is_positive(mean) and 1.0 <= mean <= MAX_TOKENS):
        raise UsageError(f"reply_tokens: a mean from 1 to {MAX_TOKENS:g} is needed, got {mean:g}")
    if mean == 1.0:
        return (1.0,)
    u = (np.arange(QUANTILES) + 0.5) / QUANTILES
    return tuple(np.ceil(np.log1p(-u) / math.log1p(-1.0 / mean)).tolist())


def read_lengths(path: StrPath) -> tuple[float, ...]:
    """Read measured lengths in tokens from a text file with one number on each line.

    Raises
    ------
    InputError
        One line for each that is not a positive number; if the file cannot be read or is empty.
    """
    lengths, problems = [], []
    text, _ = read_text(path, "a length on each line")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            length = float(line)
        except ValueError:
            length = math.nan
        if 0.0 < length <= MAX_TOKENS:
            lengths.append(length)
        else:
            problems.append(f"{shown(path)}: line {number}: must be a number of tokens")
    if problems:
        raise InputError(problems[:10])
    return tuple(lengths)
