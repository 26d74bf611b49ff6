"""The requests of a load as theory simulates them: how they come, and what each of them does at the server."""

from collections.abc import Mapping

from pydantic import Field

from analysis.records.classes import Between, Mean, RequestClass, read_classes
from analysis.records.model import Record


class Range(Record):
    """Durations in seconds of which every length between two ends is as likely."""

    least: float
    most: float


class Work(Record):
    """One step of a request's work: ``does`` is ``wait``, ``compute`` (with the interpreter lock) or ``call``.

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

    The requests come from ``users`` who wait for each answer and then pause, at a rate, or ``burst`` requests at once
    ``every_s`` seconds.
    """

    users: int | None = None
    pause_s: float = 0.0
    per_second: float | None = None
    burst: int | None = None
    every_s: float = 0.0
    work: list[Work]
    rounds: int = 1


class Traffic(Record):
    """The classes of requests of a load by name; or, in ``missing``, what theory lacks to simulate the load."""

    classes: dict[str, TrafficClass] = Field({})
    missing: str | None = None


def described_traffic(classes: Mapping[str, RequestClass]) -> dict[str, TrafficClass]:
    """Return classes that a person describes, whose requests only wait."""
    return {name: _waiting_class(described) for name, described in classes.items()}


def _waiting_class(described: RequestClass) -> TrafficClass:
    takes = described.takes_s
    work = [Work(takes_s=Range(least=takes.least, most=takes.most) if isinstance(takes, Between) else takes)]
    if described.users:
        return TrafficClass(users=described.users, pause_s=described.pause_s, work=work)
    return TrafficClass(per_second=described.per_second, work=work)


def computing_rounds(asked: Mapping[str, float]) -> tuple[list[Work], int]:
    """Return the work of a request that waits and computes in turns, and how often it does."""
    wait_s, compute_s = asked["wait_ms"] / 1000, asked["cpu_ms"] / 1000
    waits = [Work(takes_s=wait_s)] if wait_s else []
    return [*waits, Work(does="compute", takes_s=compute_s)], int(asked["rounds"])


def traffic_of_older_records(script: str, settings: Mapping[str, str]) -> Traffic | None:
    """Return the traffic of a load whose record does not say it; None: it is not known.

    ``settings`` are the script's variables. A script that is not here has always recorded its traffic. Raise KeyError
    with the name of a setting that the record lacks.
    """
    asked = {name.lower(): float(value) for name, value in settings.items() if _is_number(value)}

    def waits(takes_s: float | Range, does: str = "wait") -> list[Work]:
        return [Work(does=does, takes_s=takes_s)]

    match script:
        case "heavy-mix.js":
            light = waits(Range(least=0, most=asked["light_delay_max_s"]))
            heavy = waits(asked["heavy_delay_s"])
            classes = {
                "light": TrafficClass(users=int(asked["light_vus"]), work=light),
                "heavy": TrafficClass(users=int(asked["heavy_vus"]), work=heavy),
            }
        case "users.js":
            work = waits(Range(least=asked["delay_min_s"], most=asked["delay_max_s"]))
            classes = {"user": TrafficClass(users=int(asked["users"]), pause_s=asked["pause_s"], work=work)}
        case "rounds.js":
            work, rounds = computing_rounds(asked)
            classes = {"work": TrafficClass(users=int(asked["users"]), work=work, rounds=rounds)}
        case "arrivals.js":
            classes = {"arrival": TrafficClass(per_second=asked["rate_rps"], work=waits(asked["delay_s"]))}
        case "calls.js":
            call, quick = waits(asked["call_delay_s"], "call"), waits(asked["quick_delay_s"])
            classes = {
                "call": TrafficClass(per_second=asked["call_rps"], work=call),
                "quick": TrafficClass(per_second=asked["quick_rps"], work=quick),
            }
        case "burst.js":
            does = settings["DOES"]
            work, rounds = computing_rounds(asked) if does == "compute" else (waits(asked["delay_s"], does), 1)
            burst = TrafficClass(burst=int(asked["burst"]), every_s=asked["every_s"], work=work, rounds=rounds)
            classes = {"burst": burst}
        case "classes.js":
            classes = described_traffic(read_classes(settings["CLASSES"]))
        case _:
            return Traffic(missing=_MISSING[script]) if script in _MISSING else None
    return Traffic(classes=classes)


_USER_SERVICE = "how long somebody's own application works on a request"
_MISSING = {
    "fibonacci.js": "how long this machine computes",
    "crash.js": "workers that are killed",
    "own.js": _USER_SERVICE,
    "replay.js": _USER_SERVICE,
    "visits.js": "visitors who give up, and the application's own work and database",
}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
