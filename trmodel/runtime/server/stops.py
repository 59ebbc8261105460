"""Find where a reply must stop, in text that comes piece by piece."""

from __future__ import annotations

from collections.abc import Sequence


class StopFinder:
    """Passes text on up to the first stop string that is complete.

    Text that may be the beginning of a stop string is held back until that is known, so that what
    is passed on does not depend on where the pieces end.

    Parameters
    ----------
    stops
        None of them empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False
        """Whether a stop string was complete; nothing more is passed on then."""

    def feed(self, piece: str) -> str:
        """Return the text that can be passed on."""
        if self.found:
            return ""
        text = self._held + piece
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.found, self._held = True, ""
            _, at = min(ends)
            return text[:at]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def end(self) -> str:
        """Return what is held back, when no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of a text with which a stop string begins."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
