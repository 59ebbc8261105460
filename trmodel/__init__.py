"""trmodel: model and tune token-level routing servers."""

from trmodel._version import __version__

__all__ = ["__version__"]
