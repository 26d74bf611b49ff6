"""The bare WSGI application for granian, which neither counts what it serves nor names itself."""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import wsgi
from counters import Counters

SERVER = f"granian/{version('granian')}"
_counters = Counters("served")


def app(environ: dict[str, Any], start_response: wsgi.StartResponse) -> Iterable[bytes]:
    """Serve a request as ``wsgi`` does, and count it."""
    body = wsgi.app(environ | {"SERVER_SOFTWARE": SERVER}, start_response)
    _counters.add("served")
    return body
