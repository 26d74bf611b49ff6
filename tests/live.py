"""A page that watches a run, without a browser."""

import json
import time
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from tests.conftest import PATIENCE_S

FIELDS = ("trial", "number", "request", "sent", "began", "ended", "answered", "worker", "thread", "error")


def ask(port: int, path: str, host: str | None = None) -> tuple[HTTPResponse, bytes]:
    """Ask the lab for a path, perhaps by another name of its host; return the answer and its content."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def watch_all(port: int) -> list[dict[str, Any]]:
    """Ask as a page does until the lab has ended, and return all rows, each with the name of its variant."""
    rows: list[dict[str, Any]] = []
    batch = after = 0
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        time.sleep(0.3)
        try:
            told = json.loads(ask(port, f"/requests?batch={batch}&after={after}")[1])
        except OSError:
            if batch:
                return rows
            continue
        batch, after = told["batch"], told["after"]
        for row in told["rows"]:
            values = dict(zip(FIELDS, row, strict=True))
            rows.append(values | {"variant": told["trials"][values["trial"]]["variant"]})
    raise TimeoutError
