"""The requests of a load as theory simulates them: how they come, and what each of them does at the server."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import Field

from stampede.records.classes import Mean, Range, read_classes
from stampede.records.duration import in_seconds
from stampede.records.model import Record


class Work(Record):
    """One step of a request's work, of one kind.

    ``does`` is ``wait``, ``compute`` (with the interpreter lock), ``call``, or ``stream``: wait, and send a part.
    ``takes_s`` is a constant, two ends, the mean of exponential durations, or durations of which each is as likely.
    """

    does: str = "wait"
    takes_s: float | Range | Mean | list[float]

    @property
    def mean_s(self) -> float:
        """The mean duration."""
        match self.takes_s:
            case Range(least=least, most=most):
                return (least + most) / 2
            case Mean(mean=mean):
                return mean
            case list(measured):
                return sum(measured) / len(measured)
            case seconds:
                return seconds


class TrafficClass(Record):
    """One class of requests, which repeat their ``work`` as often as ``rounds`` says.

    The requests come from ``users`` who wait for each answer and then pause, at a rate, at ``rates_rps`` one after the
    other, which share the duration equally, or ``burst`` requests at once ``every_s`` seconds. A request that is not
    answered within ``patience_s`` fails; None: it waits for as long as it takes.
    """

    users: int | None = None
    pause_s: float = 0.0
    per_second: float | None = None
    patience_s: float | None = None
    rates_rps: list[int] = Field([], exclude_if=lambda value: not value)
    burst: int | None = None
    every_s: float = 0.0
    work: list[Work]
    rounds: int = 1


class Traffic(Record):
    """The classes of requests of a load by name; or, in ``missing``, what theory lacks to simulate the load."""

    classes: dict[str, TrafficClass] = Field({})
    missing: str | None = None


Asked = Mapping[str, Any]
"""The settings of a script by their names in lower case."""


def _waiting_class(takes_s: object, does: str = "wait", **arrivals: Any) -> TrafficClass:  # noqa: ANN401
    return TrafficClass(work=[Work.model_validate({"does": does, "takes_s": takes_s})], **arrivals)


def _computing_class(asked: Asked, **arrivals: Any) -> TrafficClass:  # noqa: ANN401
    """Return the class of requests that wait and compute in turns."""
    waits = [Work(takes_s=asked["wait_ms"] / 1000)] if asked["wait_ms"] else []
    work = [*waits, Work(does="compute", takes_s=asked["cpu_ms"] / 1000)]
    return TrafficClass(work=work, rounds=asked["rounds"], **arrivals)


def climbing_rates(first: float, last: float, steps: int) -> list[int]:
    """Return rates that climb from the first to the last in so many steps, by equal factors."""
    return [math.floor(first * (last / first) ** (step / max(1, steps - 1)) + 0.5) for step in range(steps)]


def rates_per_s(settings: Mapping[str, str], duration: str) -> list[int]:
    """Return how many visits are due per second in each level; empty if one of the three settings is missing.

    Each level lasts STEP_S seconds. The rate of the first level is FIRST_PER_S, and the rate of the last level is
    LAST_PER_S. From each level to the next, the rate grows by the same factor.
    """
    if not {"FIRST_PER_S", "LAST_PER_S", "STEP_S"} <= settings.keys():
        return []
    levels = max(1, math.floor(in_seconds(duration) / float(settings["STEP_S"])))
    return climbing_rates(float(settings["FIRST_PER_S"]), float(settings["LAST_PER_S"]), levels)


def climbing_rates_rps(asked: Asked) -> list[int]:
    """Return the rates of a load that climbs from ``first_rps`` to ``last_rps`` in ``steps``."""
    return climbing_rates(asked["first_rps"], asked["last_rps"], int(asked["steps"]))


def _class_of(asked: Asked, **arrivals: Any) -> TrafficClass:  # noqa: ANN401
    """Return the class of requests that do what the setting ``does`` says."""
    if asked["does"] == "compute":
        return _computing_class(asked, **arrivals)
    return _waiting_class(asked["delay_s"], asked["does"], **arrivals)


TRAFFIC: Mapping[str, Callable[[Asked], dict[str, TrafficClass]]] = {
    "arrivals.js": lambda asked: {"arrival": _waiting_class(asked["delay_s"], per_second=asked["rate_rps"])},
    "burst.js": lambda asked: {"burst": _class_of(asked, burst=asked["burst"], every_s=asked["every_s"])},
    "calls.js": lambda asked: {
        "call": _waiting_class(asked["call_delay_s"], "call", per_second=asked["call_rps"]),
        "quick": _waiting_class(asked["quick_delay_s"], per_second=asked["quick_rps"]),
    },
    "classes.js": lambda asked: {
        name: _waiting_class(of.takes_s, users=of.users, pause_s=of.pause_s, per_second=of.per_second)
        for name, of in read_classes(asked["classes"]).items()
    },
    "heavy-mix.js": lambda asked: {
        "light": _waiting_class(Range(least=0, most=asked["light_delay_max_s"]), users=asked["light_vus"]),
        "heavy": _waiting_class(asked["heavy_delay_s"], users=asked["heavy_vus"]),
    },
    "probe.js": lambda asked: {
        "user": _waiting_class(Range(least=asked["delay_min_s"], most=asked["delay_max_s"]), users=asked["users"]),
        "probe": _waiting_class(0.0, per_second=1 / asked["probe_every_s"], patience_s=asked["probe_timeout_s"]),
    },
    "rounds.js": lambda asked: {"work": _computing_class(asked, users=asked["users"])},
    "steps.js": lambda asked: {"arrival": _class_of(asked, rates_rps=climbing_rates_rps(asked))},
    "streams.js": lambda asked: {
        "stream": TrafficClass(
            users=asked["viewers"], work=[Work(does="stream", takes_s=asked["every_s"])], rounds=asked["parts"]
        ),
        "quick": _waiting_class(asked["quick_delay_s"], per_second=asked["quick_rps"]),
    },
    "users.js": lambda asked: {
        "user": _waiting_class(
            Range(least=asked["delay_min_s"], most=asked["delay_max_s"]),
            users=asked["users"],
            pause_s=asked["pause_s"],
        )
    },
}
"""The classes of requests that the scripts of k6/ send, as theory simulates them."""
NOT_SIMULATED = {
    "crash.js": "workers that are killed",
    "fibonacci.js": "how long this machine computes",
    "idle.js": "connections that the server closes while a request comes",
    "queries.js": "a pool of connections that requests share",
    "visits.js": "visitors who give up, and the application's own work and database",
    **dict.fromkeys(("replay.js", "user-service.js"), "how long somebody's own application works on a request"),
}
"""What theory lacks to simulate the others."""


def traffic_of_settings(script: str, settings: Mapping[str, str]) -> Traffic | None:
    """Return the traffic of a load whose record does not say it; None: it is not known.

    ``settings`` are the script's variables. Raise KeyError with the name of a setting that the record lacks.
    """
    if script not in TRAFFIC:
        return Traffic(missing=NOT_SIMULATED[script]) if script in NOT_SIMULATED else None
    words = {name.lower(): settings[name] for name in ("DOES", "CLASSES") if name in settings}
    numbers = {}
    for name, value in settings.items():
        with suppress(ValueError):  # it is no number
            numbers[name.lower()] = float(value)
    return Traffic(classes=TRAFFIC[script](numbers | words))
