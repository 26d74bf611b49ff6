"""The requests of a load as theory simulates them: how they come, and what each of them does at the server."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import Field

from stampede.records.classes import LOAD_CLASSES, Between, LoadClass, Mean, Range, Takes, spread_s
from stampede.records.model import Model


class Work(Model):
    """One step of a request's work, of one kind.

    ``does`` is ``wait``, ``compute`` (with the interpreter lock), ``call``, or ``stream``: wait, and send a part.
    """

    does: str = "wait"
    takes_s: Takes

    @property
    def mean_s(self) -> float:
        """The mean duration."""
        return spread_s(self.takes_s)[1]


class TrafficClass(Model):
    """One class of requests, which repeat their ``work`` in ``rounds``, and fail if nobody answers in ``patience_s``.

    They come from ``users`` who wait for each answer and then pause, at a rate, at ``rates_rps`` one after the other,
    which share the duration equally, or ``burst`` requests at once ``every_s`` seconds.
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


class Traffic(Model):
    """The classes of requests of a load by name; or, in ``missing``, what theory lacks to simulate the load."""

    classes: dict[str, TrafficClass] = Field({})
    missing: str | None = None


Asked = Mapping[str, Any]
"""The settings of a script by their names in lower case."""


def of_classes(classes: Mapping[str, LoadClass]) -> Traffic:
    """Return the traffic of a load whose classes a file describes."""
    if any(of.does == "query" for of in classes.values()):
        return Traffic(missing="a pool of connections that requests share")
    if any(of.asks for of in classes.values()):
        return Traffic(missing="what the application does on a path")
    found = {}
    for name, of in classes.items():
        takes: Takes = of.mean_s / of.rounds if of.does == "stream" else of.takes_s
        work = [Work(does=of.does if of.does in ("call", "stream") else "wait", takes_s=takes)]
        if of.computes:
            parts = ((1 - of.computes, "wait"), (of.computes, "compute"))
            work = [Work(does=does, takes_s=_part(takes, part / of.rounds)) for part, does in parts if part]
        found[name] = TrafficClass(work=work, rounds=of.rounds, users=of.users, pause_s=of.pause_s,
                                   per_second=of.per_second, patience_s=of.timeout_s)  # fmt: skip
    return Traffic(classes=found)


def _part(takes: Takes, part: float) -> Takes:
    """Return a part of durations, without the last digits of a division."""
    match takes:
        case Range(least=least, most=most):
            return Range(least=round(part * least, 12), most=round(part * most, 12))
        case Mean(mean=mean):
            return Mean(mean=round(part * mean, 12))
        case list(measured):
            return [round(part * seconds, 12) for seconds in measured]
        case seconds:
            return round(part * seconds, 12)


def _asked(settings: Asked, **arrivals: Any) -> TrafficClass:  # noqa: ANN401
    """Return the class of requests that a script asks for in one way: they wait, call, or wait and compute in turns."""
    if settings.get("does", "compute") == "compute":
        parts = (("wait", settings["wait_ms"]), ("compute", settings["cpu_ms"]))
        work = [Work(does=does, takes_s=round(ms / 1000, 12)) for does, ms in parts if ms or does == "compute"]
        return TrafficClass(work=work, rounds=settings["rounds"], **arrivals)
    return TrafficClass(work=[Work(does=settings["does"], takes_s=settings["delay_s"])], **arrivals)


def in_seconds(duration: str) -> int:
    """Return a duration such as 90s or 5m in seconds."""
    return int(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]


def climbing_rates(first: float, last: float, steps: int) -> list[int]:
    """Return rates that climb from the first to the last in so many steps, by equal factors."""
    return [math.floor(first * (last / first) ** (step / max(1, steps - 1)) + 0.5) for step in range(steps)]


def rates_per_s(settings: Mapping[str, str], duration: str) -> list[int]:
    """Return how many visits are due per second in each level of STEP_S seconds; empty if a setting is missing.

    From FIRST_PER_S to LAST_PER_S, the rate grows by the same factor from each level to the next.
    """
    if not {"FIRST_PER_S", "LAST_PER_S", "STEP_S"} <= settings.keys():
        return []
    levels = max(1, math.floor(in_seconds(duration) / float(settings["STEP_S"])))
    return climbing_rates(float(settings["FIRST_PER_S"]), float(settings["LAST_PER_S"]), levels)


def climbing_rates_rps(asked: Asked) -> list[int]:
    """Return the rates of a load that climbs from ``first_rps`` to ``last_rps`` in ``steps``."""
    return climbing_rates(asked["first_rps"], asked["last_rps"], int(asked["steps"]))


TRAFFIC: Mapping[str, Callable[[Asked], Traffic]] = {
    "burst.js": lambda asked: Traffic(classes={"burst": _asked(asked, burst=asked["burst"], every_s=asked["every_s"])}),
    "classes.js": lambda asked: of_classes(LOAD_CLASSES.validate_json(asked["classes"])),
    "steps.js": lambda asked: Traffic(classes={"arrival": _asked(asked, rates_rps=climbing_rates_rps(asked))}),
}
"""The classes of requests that the scripts of k6/ send, as theory simulates them."""
EARLIER: Mapping[str, Callable[[Asked], Traffic]] = {
    "calls.js": lambda asked: of_classes({
        "call": LoadClass(per_second=asked["call_rps"], does="call", takes_s=asked["call_delay_s"]),
        "quick": LoadClass(per_second=asked["quick_rps"], takes_s=asked["quick_delay_s"]),
    }),
    "heavy-mix.js": lambda asked: of_classes({
        "light": LoadClass(users=int(asked["light_vus"]), takes_s=Between(least=0, most=asked["light_delay_max_s"])),
        "heavy": LoadClass(users=int(asked["heavy_vus"]), takes_s=asked["heavy_delay_s"]),
    }),
    "rounds.js": lambda asked: Traffic(classes={"work": _asked(asked, users=asked["users"])}),
    "users.js": lambda asked: Traffic(classes={
        "user": TrafficClass(
            work=[Work(takes_s=Range(least=asked["delay_min_s"], most=asked["delay_max_s"]))],
            users=asked["users"], pause_s=asked["pause_s"],
        )
    }),
}  # fmt: skip
"""The same for scripts of earlier releases, whose runs do not record their traffic."""
NOT_SIMULATED = {
    "crash.js": "workers that are killed",
    "fibonacci.js": "how long this machine computes",
    "idle.js": "connections that the server closes while a request comes",
    "visits.js": "visitors who give up, and the application's own work and database",
    **dict.fromkeys(("replay.js", "user-service.js"), "how long somebody's own application works on a request"),
}
"""What theory lacks to simulate the others."""


def traffic_of_settings(script: str, settings: Mapping[str, str]) -> Traffic | None:
    """Return the traffic of a load whose record does not say it; None: it is not known.

    ``settings`` are the script's variables. Raise KeyError with the name of a setting that the record lacks.
    """
    known = {**TRAFFIC, **EARLIER}
    if script not in known:
        return Traffic(missing=NOT_SIMULATED[script]) if script in NOT_SIMULATED else None
    words = {name.lower(): settings[name] for name in ("DOES", "CLASSES") if name in settings}
    numbers = {}
    for name, value in settings.items():
        with suppress(ValueError):  # it is no number
            numbers[name.lower()] = float(value)
    return known[script](numbers | words)
