"""Lengths of replies: measured ones from a file, or memoryless ones of a mean."""

from __future__ import annotations

import math

import numpy as np

from trmodel.documents import StrPath, parse_json, read_text, shown
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
        raise UsageError(f"reply_tokens: the mean must be from 1 to {MAX_TOKENS:g}, got {mean:g}")
    if mean == 1.0:
        return (1.0,)
    u = (np.arange(QUANTILES) + 0.5) / QUANTILES
    return tuple(np.ceil(np.log1p(-u) / math.log1p(-1.0 / mean)).tolist())


def load_lengths(path: StrPath) -> tuple[float, ...]:
    """Read measured lengths in tokens: a JSON list, or numbers between blanks or line breaks.

    Raises
    ------
    InputError
        One line for each that is not a positive number; if the file cannot be read or is empty.
    """
    where = shown(path)
    text, _ = read_text(path, "lengths in tokens")
    values = parse_json(text, where) if text.lstrip()[:1] in "[{" else text.split()
    if not isinstance(values, list) or not values:
        raise InputError(f"{where}: must be a list of lengths in tokens")
    lengths = [_length(value) for value in values]
    problems = [
        f"{where}: length {i}: must be above 0 and at most {MAX_TOKENS:g}, got {str(value)[:40]}"
        for i, (value, length) in enumerate(zip(values, lengths, strict=True))
        if not 0.0 < length <= MAX_TOKENS
    ]
    if problems:
        raise InputError(problems[:10])
    return tuple(lengths)


def _length(value: object) -> float:
    try:
        return math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan
