"""Headers of the answer: which worker served a page and when, or which error of the database occurred."""

import json
import os
import time
from collections.abc import Callable
from functools import cache, wraps
from http import HTTPStatus
from importlib.metadata import version

import workload
from django.db import Error
from django.http import HttpRequest, HttpResponse
from wsgi import connection

View = Callable[[HttpRequest], HttpResponse]


def served(view: View) -> View:
    """Add a header to the answers of a view: which worker answered, and when."""

    @wraps(view)
    def told(request: HttpRequest) -> HttpResponse:
        began = time.time()
        response = view(request)
        response["Lab-Served"] = json.dumps(workload.who_and_when(began, server(request), connection(request.META)))
        return response

    return told


def refused(view: View) -> View:
    """Answer with status 503 and the error if the database raises an error in a view."""

    @wraps(view)
    def told(request: HttpRequest) -> HttpResponse:
        try:
            return view(request)
        except Error as error:
            said = " ".join(f"database error {': '.join(map(str, error.args))}".split())
            return HttpResponse(said, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Lab-Error": said})

    return told


def server(request: HttpRequest) -> str:
    """Return the name and version of the server. Under ASGI they come from the package, as ASGI does not tell them."""
    return request.META.get("SERVER_SOFTWARE") or _by_its_package()


@cache
def _by_its_package() -> str:
    name = os.environ.get("LAB_SERVER", "unknown")
    return f"{name}/{version(name)}"
