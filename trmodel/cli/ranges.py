"""Values as the command line takes them, ranges above all: ``4..16``, ``4,8,16``, ``4..64:4``.

Both ends belong to a range. Numbers are read as decimals, so that 0.05..0.6:0.05 contains 0.15
and not 0.15000000000000002.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from trmodel.errors import UsageError

if TYPE_CHECKING:
    from trmodel.markov import Limits
    from trmodel.routing import Completion

MAX_VALUES = 10_000
"""More values than this in one range are a slip of the finger."""

_WHOLE = re.compile(r"[+-]?\d{1,12}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d{1,20}\.?\d{0,20}|\.\d{1,20})(e[+-]?\d{1,2})?", re.ASCII | re.I)


def whole_numbers(text: str, option: str) -> list[int]:
    """Read a range of whole numbers of at least 1; sorted, each once.

    Raises
    ------
    UsageError
        One line that begins with the option.
    """
    values = sorted({int(v) for v in _values(text, option, _WHOLE, "a whole number", Decimal(1))})
    if values[0] < 1:
        raise UsageError(f"{option}: must be at least 1, got {values[0]}")
    return values


def whole_number(text: str, option: str) -> int:
    """Read one whole number as ranges hold them: no ``4.0``, no ``1_000``.

    Raises
    ------
    UsageError
        One line that begins with the option.
    """
    return int(_read(text, option, _WHOLE, "a whole number"))


def numbers(text: str, option: str) -> list[float]:
    """Read a range of numbers, in the order given, each once; ``a..b`` needs a step ``a..b:s``.

    Raises
    ------
    UsageError
        One line that begins with the option.
    """
    return list(dict.fromkeys(map(float, _values(text, option, _NUMBER, "a number", None))))


def vector(text: str, option: str) -> tuple[int, ...]:
    """Read a comma list of whole numbers, such as the thresholds ``1,3``.

    Raises
    ------
    UsageError
        One line that begins with the option.
    """
    return tuple(int(_read(part, option, _WHOLE, "a whole number")) for part in text.split(","))


def context_of(text: str | None) -> int | tuple[int, int] | None:
    """Read a context in tokens: ``2048``, or ``1024..3072`` for one that grows over a reply.

    Raises
    ------
    UsageError
        One line that begins with the option.
    """
    if text is None:
        return None
    first, dots, last = text.partition("..")
    low = int(_read(first, "--context", _WHOLE, "a number of tokens"))
    high = int(_read(last, "--context", _WHOLE, "a number of tokens")) if dots else low
    if low < 1 or high < low:
        raise UsageError(
            f"--context: must be like 2048 or 1024..3072, from 1 token on, got {_cut(text)}"
        )
    return (low, high) if dots else low


def sweep_of_p(text: str) -> list[float]:
    """Read ``p=RANGE``, the only sweep there is.

    Raises
    ------
    UsageError
        One line that begins with the option.
    """
    name, equals, values = text.partition("=")
    if not equals or name.strip() != "p":
        raise UsageError(
            f"--sweep: must be like p=0.05..0.6:0.05 (only p is swept), got {_cut(text)}"
        )
    return numbers(values, "--sweep")


def _values(
    text: str, option: str, pattern: re.Pattern[str], kind: str, step: Decimal | None
) -> list[Decimal]:
    """Read all parts of a mix; ``step`` is that of ranges which give none, if they may."""
    values: list[Decimal] = []
    for part in text.split(","):
        ends, colon, given = part.partition(":")
        first, dots, last = ends.partition("..")
        low = _read(first, option, pattern, kind)
        if not dots and not colon:
            values.append(low)
            continue
        if not dots or not (colon or step):
            raise UsageError(f"{option}: a range with a step is written 4..64:4, got {_cut(part)}")
        high = _read(last, option, pattern, kind)
        by = _read(given, option, pattern, kind) if colon else step
        if by is None or by <= 0:
            raise UsageError(f"{option}: the step must be above 0, got {_cut(part)}")
        if high < low:
            raise UsageError(f"{option}: {_cut(part)} is empty; write the smaller end first")
        count = int((high - low) / by) + 1
        if count + len(values) > MAX_VALUES:
            raise UsageError(f"{option}: {_cut(text)} has more than {MAX_VALUES} values")
        values += [low + k * by for k in range(count)]
    return values


def _read(text: str, option: str, pattern: re.Pattern[str], kind: str) -> Decimal:
    if re.fullmatch(r"\d{13,}", text.strip()):
        raise UsageError(f"{option}: {_cut(text)} is too large")
    if not pattern.fullmatch(text.strip()):
        raise UsageError(f'{option}: "{_cut(text)}" is not {kind}')
    return Decimal(text.strip())


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def completion_of(
    reply_tokens: float | None, prompt_tokens: int | None, prefill_ms: float | None
) -> Completion | None:
    """Gather the options that say how long replies and prompts are.

    Raises
    ------
    UsageError
        One line that begins with the option.
    """
    if reply_tokens is None:
        for option, value in (("prompt-tokens", prompt_tokens), ("prefill-ms", prefill_ms)):
            if value is not None:
                raise UsageError(f"--{option}: replies have no end; give --reply-tokens as well")
        return None
    from trmodel.routing import Completion

    return Completion(reply_tokens, prompt_tokens, prefill_ms)


def limits_of(max_states: int | None) -> dict[str, Limits]:
    """Return the argument ``limits`` that an option asks for, or none.

    Raises
    ------
    UsageError, LimitError
        One line that begins with the option.
    """
    if max_states is None:
        return {}
    from trmodel.markov import Limits

    return {"limits": Limits.up_to(max_states)}
