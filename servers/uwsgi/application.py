"""The workload as uWSGI serves it: its name, and the socket of each request, are told as gunicorn tells them."""

from collections.abc import Iterable
from typing import Any

import uwsgi
import wsgi

SERVER = f"uwsgi/{uwsgi.version.decode()}"


def app(environ: dict[str, Any], start_response: wsgi.StartResponse) -> Iterable[bytes]:
    """Serve what ``wsgi.app`` serves."""
    environ["SERVER_SOFTWARE"] = SERVER
    environ["lab.connection_fd"] = uwsgi.connection_fd()
    return wsgi.app(environ, start_response)
