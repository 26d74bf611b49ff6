"""How long requests to somebody's own application take while nobody else asks, before the load."""

import time
from collections.abc import Mapping
from urllib.parse import unquote

from python_on_whales.exceptions import DockerException

from analysis.classes import Asked
from lab.trial.containers import Seen

REQUESTS = 3
"""How many requests of each class are sent; the first one is not counted, because applications load modules late."""
WITHIN_S = 20
MOST_S = 60
"""After this time, no further class is asked."""
_HARMLESS = ("GET", "HEAD")


def alone_ms(front: Seen, port: int, asked: Mapping[str, Asked]) -> dict[str, list[float]]:
    """Return the response times of single requests by class, in ms, measured in the container of the balancer.

    ``asked`` is as a setting of the load has it, with percent-encoded headers. Classes that may change data, that need
    a secret or a body, or that are not answered with success in time are left out.
    Raise DockerException if the engine fails.
    """
    found: dict[str, list[float]] = {}
    began_s = time.monotonic()
    for name, one in asked.items():
        if time.monotonic() - began_s > MOST_S:
            break
        if one.method not in _HARMLESS or one.names_of_secrets or one.body:
            continue
        times = [_ask(front, port, one) for _ in range(REQUESTS)][1:]
        if all(times):
            found[name] = [one_ms for one_ms in times if one_ms is not None]
    return found


def _ask(front: Seen, port: int, one: Asked) -> float | None:
    headers = [word for name, value in one.headers.items() for word in ("--header", f"{name}: {unquote(value)}")]
    method = ["--head"] if one.method == "HEAD" else []
    command = ["curl", "--silent", "--fail", "--globoff", "--output", "/dev/null", "--max-time", str(WITHIN_S), *method,
               *headers, "--write-out", "%{time_total}", f"http://127.0.0.1:{port}{one.path}"]  # fmt: skip
    try:
        return 1000 * float(front.execute(command))
    except DockerException as error:
        if error.return_code in _OF_CURL:
            return None
        raise


_OF_CURL = range(1, 100)
"""The exit codes of curl; those of the engine itself are 125 to 127."""
