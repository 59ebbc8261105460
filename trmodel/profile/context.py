"""The context length that a question is about: one number of tokens, or a growing one."""

from __future__ import annotations

from trmodel.errors import UsageError
from trmodel.profile.schema import Profile
from trmodel.system_checks import is_int

Context = int | tuple[int, int]
"""Tokens, or (low, high) for a context that grows evenly from low to high over a reply."""
DEFAULT_CONTEXT = 2048


def context_range(profile: Profile, context: Context | None = None) -> tuple[int, int]:
    """Return the context as (low, high), equal for a context that does not grow.

    Parameters
    ----------
    profile
        Gives the context when none is asked for: its ``context_tokens``, or else the one context
        for which its decode tables are listed, or else 2048.
    context
        Tokens, or (low, high).

    Raises
    ------
    UsageError
        If the context is not a whole number of at least 1, or two with low <= high.
    """
    if context is None:
        single = {
            model.decode.context_tokens
            for model in profile.models
            if isinstance(model.decode.context_tokens, int)
        }
        listed = next(iter(single)) if len(single) == 1 else DEFAULT_CONTEXT
        return (profile.context_tokens or listed or DEFAULT_CONTEXT,) * 2
    ends = context if isinstance(context, (tuple, list)) else (context, context)
    whole = [int(end) for end in ends if is_int(end)]
    if len(ends) != 2 or len(whole) != 2 or not 0 <= whole[0] <= whole[1] or whole[1] < 1:
        raise UsageError(
            "context: must be a whole number of tokens of at least 1, or two of them, from low to "
            f"high, got {context}"
        )
    return whole[0], whole[1]


def recorded_context(profile: Profile, context: Context | None = None) -> int | list[int] | None:
    """Return the context used, as it is recorded with a result.

    Parameters
    ----------
    profile, context
        As for :func:`context_range`, ``context`` being the one asked for.

    Returns
    -------
    Tokens, or [low, high] of a context that grows; None if neither the question nor the profile
    names any.
    """
    named = profile.context_tokens or any(m.decode.contexts for m in profile.models)
    if context is None and not named:
        return None
    low, high = context_range(profile, context)
    return low if low == high else [low, high]
