"""Lengths of replies: from a mean, or from a file of those that a server has seen."""

from __future__ import annotations

import math

import numpy as np

from trmodel.documents import StrPath, parse_json, read_text, shown
from trmodel.errors import InputError, UsageError
from trmodel.system_checks import is_positive

DEFAULT_MEAN = 1000.0
"""Of the order of a reasoning reply; only a server's own lengths say how long they are."""
_QUANTILES = 1000


def geometric_lengths(mean: float) -> tuple[float, ...]:
    """Lengths that end after each token with probability 1 / mean, as evenly likely quantiles.

    Of all distributions on 1, 2, ... with this mean this one assumes the least: how many tokens
    there have been says nothing about how many will follow.

    Raises
    ------
    UsageError
        If the mean is below 1.
    """
    if not (is_positive(mean) and mean >= 1.0):
        raise UsageError(f"reply_tokens: the mean must be at least 1 token, got {mean}")
    if mean == 1.0:
        return (1.0,)
    middle = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    return tuple(np.ceil(np.log1p(-middle) / math.log1p(-1.0 / mean)).tolist())


def load_lengths(path: StrPath) -> tuple[float, ...]:
    """Read lengths in tokens: a JSON list, or numbers separated by blanks or line breaks.

    Raises
    ------
    InputError
        If the file cannot be read or holds anything else.
    """
    where = shown(path)
    text, _ = read_text(path, "lengths in tokens")
    values = parse_json(text, where) if text.lstrip()[:1] in "[{" else text.split()
    if not isinstance(values, list):
        raise InputError(f"{where}: must be a list of lengths in tokens")
    lengths = []
    for i, value in enumerate(values):
        try:
            length = float(value)
        except (TypeError, ValueError):
            length = math.nan
        if isinstance(value, bool) or not (math.isfinite(length) and length > 0.0):
            raise InputError(
                f"{where}: length {i}: must be a number above 0, got {str(value)[:40]}"
            )
        lengths.append(length)
    if not lengths:
        raise InputError(f"{where}: at least one length is needed")
    return tuple(lengths)
