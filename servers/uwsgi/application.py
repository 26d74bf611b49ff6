"""The application for uWSGI, with the server's name and the connection's socket in ``environ``, as with gunicorn."""

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import uwsgi
import wsgi
from counters import Counters

SERVER = f"uwsgi/{uwsgi.version.decode()}"
_MODULE, _NAME = os.environ["LAB_APP"].split(":")
_APP = getattr(import_module(_MODULE), _NAME)
_COUNTERS = Counters("served")  # uWSGI forgets the counts of workers that it replaces


def app(environ: dict[str, Any], start_response: wsgi.StartResponse) -> Iterable[bytes]:
    """Pass the request on to the application."""
    environ["SERVER_SOFTWARE"] = SERVER
    environ["lab.connection_fd"] = uwsgi.connection_fd()
    answer: Iterable[bytes] = _APP(environ, start_response)
    _COUNTERS.add("served")
    return answer
