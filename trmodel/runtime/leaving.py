"""A process that is told to end does so in time, whatever it is doing.

Python runs a handler of a signal between two of its own instructions: while a model is imported or
loaded, or in the middle of a long step, that may be much later. So a thread of its own hears of the
signal, and ends the process when the rest of it does not.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Collection

log = logging.getLogger(__name__)

LEAVE_S = 3.0
"""So long the running step may go on; `trmodel.runtime.front` kills after a while longer."""
_CHECK_EVERY_S = 0.1


class Leaving:
    """Ends this process within `LEAVE_S` of a signal, or of the end of the one that started it.

    To be made on the main thread, before anything that takes long.

    Parameters
    ----------
    signals
        Numbers of the signals that end it.
    orphaned
        Whether the process that started it is gone.
    last
        What is done before it ends without further ado.
    """

    def __init__(
        self,
        signals: Collection[int],
        orphaned: Callable[[], bool] = lambda: False,
        last: Callable[[], None] = lambda: None,
    ) -> None:
        self._signals, self._orphaned, self._last = frozenset(signals), orphaned, last
        self._stop: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._code = 1
        self.told = False
        """Whether it is to end."""
        self._heard, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in self._signals:
            signal.signal(number, lambda *_: None)  # the wake-up needs a handler
        threading.Thread(target=self._watch, name="leaving", daemon=True).start()

    def by(self, stop: Callable[[], None]) -> None:
        """From now on end by calling this, on a thread of its own; until then at once."""
        with self._lock:
            self._stop = stop
            if self.told:
                stop()

    def _watch(self) -> None:
        while not self._is_told():
            pass
        with self._lock:
            self.told = True
            stop = self._stop
            if stop is not None:
                stop()
        if stop is not None:
            time.sleep(LEAVE_S)
            log.warning("%g s are over; what is still under way is given up", LEAVE_S)
        self._last()
        os._exit(self._code)

    def _is_told(self) -> bool:
        if select.select([self._heard], [], [], _CHECK_EVERY_S)[0]:
            heard = self._signals.intersection(os.read(self._heard, 64))
            self._code = 128 + min(heard, default=0)
            return bool(heard)
        return self._orphaned()
