"""Who served a page and when, and which error of the database kept it from being served, in headers of the answer."""

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
    """Have the answers of a view say who gave them and when."""

    @wraps(view)
    def told(request: HttpRequest) -> HttpResponse:
        began = time.time()
        response = view(request)
        response["Lab-Served"] = json.dumps(workload.who_and_when(began, server(request), connection(request.META)))
        return response

    return told


def refused(view: View) -> View:
    """Have a view answer with the error of the database where that refuses something."""

    @wraps(view)
    def told(request: HttpRequest) -> HttpResponse:
        try:
            return view(request)
        except Error as error:
            said = " ".join(f"database error {': '.join(map(str, error.args))}".split())
            return HttpResponse(said, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Lab-Error": said})

    return told


def server(request: HttpRequest) -> str:
    """Return the name and version of the server, which ASGI does not tell."""
    return request.META.get("SERVER_SOFTWARE") or _by_its_package()


@cache
def _by_its_package() -> str:
    name = os.environ.get("LAB_SERVER", "unknown")
    return f"{name}/{version(name)}"
