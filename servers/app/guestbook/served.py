"""Who served a page and when, or which error of the database kept it from being served, in headers of the answer."""

import json
import os
import time
from collections.abc import Callable
from http import HTTPStatus
from importlib.metadata import version

import workload
from django.db import Error
from django.http import HttpRequest, HttpResponse, JsonResponse
from wsgi import connection

Next = Callable[[HttpRequest], HttpResponse]


class Served:
    """Middleware around all others."""

    def __init__(self, get_response: Next) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began = time.time()
        response = self._get_response(request)
        if not isinstance(response, JsonResponse):  # which says it itself
            told = workload.who_and_when(began, server(request), connection(request.META))
            response["Lab-Served"] = json.dumps(told)
        return response

    def process_exception(self, _: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer that there is no database: one that is gone is not a bug of the page."""
        if not isinstance(error, Error):
            return None
        said = f"database error {': '.join(map(str, error.args))}"
        return HttpResponse(said, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Lab-Error": " ".join(said.split())})


def server(request: HttpRequest) -> str:
    """Return the name and version of the server, which ASGI does not tell."""
    name = os.environ.get("LAB_SERVER", "unknown")
    return request.META.get("SERVER_SOFTWARE") or f"{name}/{version(name)}"
