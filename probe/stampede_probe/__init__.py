"""Which requests wait for a full worker although another worker is free, and which line of code fills it, live.

    stampede-probe run gunicorn shop.wsgi

starts a server with the probe. ``wsgi`` and ``asgi`` put it around an application by hand. ``metrics()`` is text for
Prometheus, ``snapshot()`` the same as a dictionary.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["asgi", "metrics", "snapshot", "wsgi"]

if TYPE_CHECKING:
    from stampede_probe.serve import metrics, snapshot
    from stampede_probe.wrap import asgi, wsgi


def __getattr__(name: str) -> Any:
    """Import what is asked for; each Python process of a server pays for no more than the hooks."""
    from importlib import import_module

    if name in ("metrics", "snapshot"):
        return getattr(import_module("stampede_probe.serve"), name)
    if name in ("asgi", "wsgi"):
        return getattr(import_module("stampede_probe.wrap"), name)
    raise AttributeError(name)
