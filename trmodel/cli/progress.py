"""A progress bar on stderr, where somebody can see it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trmodel.cli.streams import is_terminal


@contextmanager
def progress_bar(quiet: bool, what: str = "chains") -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar while the body runs; yields what to call with those done and in all.

    Without a terminal, or if ``quiet``, there is no bar and nothing to call.
    """
    if quiet or not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield report
