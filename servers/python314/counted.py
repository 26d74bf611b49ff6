"""The application for granian, which neither counts what it serves nor names itself."""

import os
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version
from typing import Any

import wsgi
from counters import Counters

SERVER = f"granian/{version('granian')}"
_MODULE, _NAME = os.environ.get("LAB_COUNTED", "wsgi:app").split(":")
_APP = getattr(import_module(_MODULE), _NAME)
_counters = Counters("served")


def app(environ: dict[str, Any], start_response: wsgi.StartResponse) -> Iterable[bytes]:
    """Serve a request as the application does, and count it."""
    body: Iterable[bytes] = _APP(environ | {"SERVER_SOFTWARE": SERVER}, start_response)
    _counters.add("served")
    return body
