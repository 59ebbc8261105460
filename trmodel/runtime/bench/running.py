"""A server for the time of a measurement: started here from its file, or there already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from trmodel.errors import TrmodelError
from trmodel.runtime.bench.point import told
from trmodel.runtime.bench.target import InProcess, Target, Url
from trmodel.runtime.config import ServerConfig


@contextmanager
def running(
    config: ServerConfig | None = None, url: str | None = None, admin_key: str | None = None
) -> Iterator[Target]:
    """Yield a server that is ready.

    Parameters
    ----------
    config
        Start this one in this process, without its HTTP face, and stop it afterwards.
    url
        Or use the one that is there.
    admin_key
        What its changes of thresholds need.

    Raises
    ------
    TrmodelError
        One of its subclasses; if it does not start or answer.
    """
    if config is None:
        with closing(Url(url or "http://127.0.0.1:8000", admin_key)) as target:
            told(target)
            yield target
        return
    from trmodel.runtime.front import Front
    from trmodel.runtime.plan import make_plan

    front = Front(make_plan(config.model_copy(update={"thresholds": "eager"})))
    front.start()
    try:
        if not front.wait_until_ready():
            raise TrmodelError(front.failed or "the subservers did not get ready")
        started = InProcess(front)
        told(started)
        yield started
    finally:
        front.stop()
