"""The package's errors: a small family, each with the exit code the command line gives it.

Exit codes: 0 an answer was given; 1 an internal error; 2 wrong usage; 3 nothing feasible;
4 a bad profile or other input; 5 a limit was reached (the best answer so far was given, if any).
"""

from __future__ import annotations

from collections.abc import Sequence


class TrmodelError(Exception):
    """Base of every error that trmodel raises on purpose."""

    exit_code = 1


class UsageError(TrmodelError, ValueError):
    """An argument that makes no sense, such as N = 0 or a malformed range."""

    exit_code = 2


class InfeasibleError(TrmodelError):
    """No threshold can work as asked, or the one given can deadlock."""

    exit_code = 3


class InputError(TrmodelError, ValueError):
    """A profile, routing or system that is wrong; holds every problem found, not only the first.

    Parameters
    ----------
    problems
        One line each: the path to the field, what is wrong, what to do.
    """

    exit_code = 4

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class LimitError(TrmodelError):
    """A state, memory or time limit was reached before the answer was complete."""

    exit_code = 5


class NotConvergedError(TrmodelError):
    """A solver stopped before its residual met the tolerance."""
