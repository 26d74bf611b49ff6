"""The workload behind Flask."""

from typing import Any

import workload
from flask import Flask, request
from wsgi import connection

app = Flask(__name__)


@app.get("/-/ready")
def ready() -> dict[str, Any]:
    """Say that this worker has loaded the application."""
    return {"ready": True}


@app.get("/", defaults={"path": ""})
@app.get("/<path:path>")
def work(path: str) -> dict[str, Any]:
    """Do what the paths of ``workload`` ask for."""
    environ = request.environ
    server = environ.get("SERVER_SOFTWARE", "unknown")
    return workload.answer(f"/{path}", request.query_string.decode(), server, connection(environ))


@app.errorhandler(workload.Failure)
def failed(failure: workload.Failure) -> tuple[dict[str, str], int]:
    """Say why there is no answer."""
    return {"error": str(failure)}, failure.status
