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

    module = {"asgi": "wrap", "wsgi": "wrap", "metrics": "serve", "snapshot": "serve"}.get(name)
    if module is None:
        raise AttributeError(name)
    return getattr(import_module(f"stampede_probe.{module}"), name)
