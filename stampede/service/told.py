"""What a server said of itself when its start command was followed, in the words of a description."""

from typing import Any

from pydantic import ValidationError

from stampede.errors import LabError
from stampede.records.mistakes import reason_of
from stampede.servers.program import GRANIAN_BACKLOG, PROGRAMS, SERVED_BY
from stampede.service.answers import Record
from stampede.service.description import BESIDE_COMMAND, Served, UserService

_NUMBERS = ("workers", "threads", "backpressure", "worker_connections", "max_requests", "max_requests_jitter",
            "timeout_s")  # fmt: skip


def numbers_of(told: Record) -> dict[str, Any]:
    """Return the class of workers and the numbers that a server said, by their keys in a description.

    What stands in for a server that cannot be measured has the numbers of that server.
    """
    server = SERVED_BY.get(told.server, told.server)
    program = PROGRAMS[server]
    found: dict[str, Any] = {}
    if server == "gunicorn":
        named = str(told.settings.get("worker_class") or "sync") if told.server == "gunicorn" else "gthread"
        found["worker_class"] = next((each for each in (named, told.kind) if each in program.kinds), named)
    if server == "granian":
        found["interface"] = str(told.settings.get("interface") or "").removesuffix("nl")  # without a lifespan
    for key in _NUMBERS:
        value = told.settings.get(program.names.get(key, ""))
        if str(value).isdecimal() and (int(str(value)) or key.startswith("max_")):
            found[key] = int(str(value))
    found.setdefault("workers", 1)
    kind = program.kinds.get(found.get(program.kind_by, ""))
    if not kind or kind.threads <= 1:
        found.pop("threads", None)
    elif server in ("gunicorn", "uwsgi"):
        found.setdefault("threads", 1)
    usual = max(1, GRANIAN_BACKLOG // found["workers"])
    if found.get("backpressure") == usual:
        del found["backpressure"]
    if not found.get("max_requests"):
        found |= {"max_requests": 0, "max_requests_jitter": 0}
    return {name: value for name, value in found.items() if value or not name.startswith("max_")}


def not_served(told: Record) -> str:
    """Return what a server said of its workers that the lab cannot serve, and a way out; empty: it can serve them."""
    if told.server in ("granian", "gunicorn"):
        program = PROGRAMS[told.server]
        kind = numbers_of(told)[program.kind_by]
        way = "; if the application has another, add --interface asgi or --interface wsgi" if kind == "rsgi" else ""
        return "" if kind in program.kinds else f"{told.server}'s {program.kind_by} {kind}{way}"
    loops = ("gevent", "async", "asyncio", "ugreen", "greenlet", "tornado", "fiber", "pypy-home")
    named = next((name for name in loops if told.server == "uwsgi" and name in told.settings), "")
    return f"uwsgi's {named} {told.settings[named]}, only its processes and threads" if named else ""


def as_told(service: UserService, told: Record) -> UserService:
    """Return a service with the numbers that its server said. Raise LabError if the lab cannot measure it.

    A server for development, and one that the lab does not know, has another server in its place.
    """
    server, is_own = SERVED_BY.get(told.server, told.server), told.server in PROGRAMS
    if unknown := not_served(told):
        raise LabError(f"The lab does not serve {unknown}.")
    kept = {name: getattr(service.served, name) for name in BESIDE_COMMAND & service.served.model_fields_set
            if name == server or name not in PROGRAMS}  # fmt: skip
    kept[server] = (told.release if is_own else "") or kept.get(server) or PROGRAMS[server].release
    if told.processes.isdecimal() and int(told.processes) > 1:
        kept.setdefault("replicas", int(told.processes))
    values = numbers_of(told) | kept
    try:
        served = Served.model_validate(values)
    except ValidationError as error:
        raise LabError(f"{told.server} says what cannot be measured: {reason_of(error, Served, values)}.") from None
    changed = {"served": served}
    if is_own:
        return service.model_copy(update=changed)
    application = service.application.model_copy(update={"command": "", "callable": told.callable})
    return service.model_copy(update={**changed, "application": application})
