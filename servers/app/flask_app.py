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
    """Do the work that the path asks for (see ``workload``)."""
    environ = request.environ
    server = environ.get("SERVER_SOFTWARE", "unknown")
    return workload.answer(f"/{path}", request.query_string.decode(), server, connection(environ))


@app.errorhandler(workload.Failure)
def failed(failure: workload.Failure) -> tuple[dict[str, str], int]:
    """Answer with the reason why the work failed."""
    return {"error": str(failure)}, failure.status
