"""The application as uWSGI serves it: its name, and the socket of each request, are told as gunicorn tells them."""

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import uwsgi
import wsgi

SERVER = f"uwsgi/{uwsgi.version.decode()}"
_MODULE, _NAME = os.environ["LAB_APP"].split(":")
_APP = getattr(import_module(_MODULE), _NAME)


def app(environ: dict[str, Any], start_response: wsgi.StartResponse) -> Iterable[bytes]:
    """Serve what the application serves."""
    environ["SERVER_SOFTWARE"] = SERVER
    environ["lab.connection_fd"] = uwsgi.connection_fd()
    answer: Iterable[bytes] = _APP(environ, start_response)
    return answer
