"""Declare each script of k6/ and clients/ once: its settings, how much it sends, and how long it waits for answers.

The lab finds a wrong setting here, before anything starts. It also computes here what follows from several settings,
and passes the result to the script in environment variables. A script that lacks a variable does not start.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from analysis.metrics.visits import rates_per_s
from analysis.records.classes import OwnRequestClass, RequestClass, read_classes, read_own_classes
from analysis.records.nearest import nearest_first
from analysis.records.run import LoadKind
from lab.errors import Misplaced
from lab.settings import ANSWER_WITHIN_S, GIVES_UP, AskedFor, Described, Number, Word

USERS_MAX = 16_000
"""Most virtual users of one k6 container. Each user has a connection, and a container may open 16384 files."""
RATE_MAX_RPS = 20_000
"""Most requests per second of one k6 container. On two cores, k6 sends 16 to 17 thousand."""
QUICKEST_S = 0.0005
"""A response time that no server of the lab undercuts (docs/benchmarks.md, "The floor")."""
HOUR_S = 3600
GRACE_S = 60
"""How long k6 waits for the last answers after a load: longer than any wait that a trial should show."""
CLIENT_GRACE_S = GRACE_S - 5
"""The same for a client beside k6, which must end before k6 ends."""
VISIT_REQUESTS = 3
VISIT_SLACK_S = 5
"""After a load of visits, k6 waits for the longest possible visit and these seconds."""
RELATIVE = frozenset({"first_per_s", "last_per_s"})
"""The settings that give a rate of visits. A load whose rate is relative leaves these settings out."""

Settings = Mapping[str, int | float | str]
Numbers = Mapping[str, float]


class WrongSetting(Misplaced):
    """A setting that is unknown, missing or out of bounds."""

    def __init__(self, message: str, *place: str) -> None:
        super().__init__(message, "settings", *place)


@dataclass(frozen=True)
class LoadScript:
    """One script: its settings by name, its kind of load, and the most that it sends.

    ``users`` names the settings whose sum is the number of virtual users (or connections) at once. ``rate_rps`` returns
    the requests per second that the script sends if every answer comes as soon as possible. In an ``open_loop`` the
    script sends at this rate whether or not earlier requests were answered. ``fits`` raises WrongSetting if the
    settings contradict each other. ``grace_s`` returns how many seconds the script waits for the last answers after a
    load of the given number of seconds. ``hands_over`` returns variables that follow from the settings and the
    duration (e.g. ``7s``).
    """

    settings: Mapping[str, Number | Word | Described]
    users: tuple[str, ...]
    rate_rps: Callable[[Numbers], float]
    kind: LoadKind = "steady"
    open_loop: bool = False
    fits: Callable[[Numbers], None] = lambda _: None
    grace_s: Callable[[Numbers, float], float] = lambda _asked, _duration_s: GRACE_S
    hands_over: Callable[[Settings, str], dict[str, str]] = lambda _settings, _duration: {}

    def check(self, name: str, values: Settings, generators: int, *, relative: bool = False) -> None:
        """Raise WrongSetting for the first setting that is unknown, missing, out of bounds or too much for k6.

        ``generators`` k6 containers share the users and the rate. ``relative``: the rate follows from another load.
        """
        needed = self.declared(values)
        words = self._words()
        for setting, value in sorted(values.items(), key=lambda item: item[0] not in words):
            if setting not in needed:
                there = nearest_first(setting, list(needed))
                raise WrongSetting(f"{name} has no setting {setting}{self._where(values)}; it has {there}", setting)
            if problem := needed[setting].problem(value):
                raise WrongSetting(problem, setting)
        said = values.keys() | (RELATIVE if relative else set())
        if missing := sorted(needed.keys() - said):
            raise WrongSetting(f"{name} also needs {', '.join(missing)}{self._where(values)}")
        numbers = _numbers(values)
        self.fits(numbers)
        share = self.users_at_once(values) / generators
        if share > USERS_MAX:
            most = max(self.users, key=lambda setting: numbers[setting])
            raise WrongSetting(f"{share:,.15g} virtual users are more than the {USERS_MAX:,} {_ONE_HAS_FILES}", most)
        if self.open_loop and not relative and (rate := self.rate_rps(numbers) / generators) > RATE_MAX_RPS:
            rates = [setting for setting in numbers if setting.endswith(("_rps", "_per_s"))]
            most = max(rates, key=lambda setting: numbers[setting])
            raise WrongSetting(f"{rate:,.15g} requests a second are more than the {RATE_MAX_RPS:,} {_ONE_SENDS}", most)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the settings, for editors. A relative rate makes the settings in RELATIVE optional."""
        plain = {name: setting.schema for name, setting in self.settings.items()}
        words = [(name, setting.needs) for name, setting in self.settings.items() if isinstance(setting, Word)]
        if not words:
            return _closed(plain)
        [(name, needs)] = words
        kinds = [
            _closed(plain | {name: {"const": word}} | {further: setting.schema for further, setting in numbers.items()})
            for word, numbers in needs.items()
        ]
        return {"oneOf": kinds}

    def handed_over(self, settings: Settings, duration: str) -> dict[str, str]:
        """Return the variables that follow from checked settings and a duration (e.g. ``7s``)."""
        grace_s = self.grace_s(_numbers(settings), in_seconds(duration))
        return {"GRACE_S": f"{grace_s:.10g}", **self.hands_over(settings, duration)}

    def users_at_once(self, values: Settings) -> float:
        """Return the number of virtual users (or connections) at once."""
        numbers = _numbers(values)
        return sum(numbers[name] for name in self.users)

    def rate_at_most_rps(self, values: Settings, generators: int) -> float:
        """Return the most requests per second. If the rate is not known yet, return as many as k6 can send."""
        numbers = _numbers(values)
        known = self.rate_rps(numbers) if numbers.keys() >= self.declared(values).keys() - self._words() else inf
        return min(known, RATE_MAX_RPS * generators)

    def _words(self) -> set[str]:
        return {name for name, setting in self.settings.items() if isinstance(setting, Word)}

    def declared(self, values: Settings) -> dict[str, Number | Word | Described]:
        """Return the settings of this script by name, including the settings that words among the values require."""
        needed = dict(self.settings)
        for name, setting in self.settings.items():
            if isinstance(setting, Word):
                needed |= setting.needs.get(str(values.get(name)), {})
        return needed

    def _where(self, values: Settings) -> str:
        """Return the words among the values that decide which settings are required, as part of a sentence."""
        return "".join(f" with {name}: {values[name]}" for name in sorted(self._words() & values.keys()))


def _numbers(values: Settings) -> Numbers:
    """Return the settings that are numbers. Classes count as their users, and have a rate (``classes_per_s``)."""
    numbers: dict[str, float] = {name: value for name, value in values.items() if not isinstance(value, str)}
    if isinstance(described := values.get("classes"), str):
        classes = _classes(described).values()
        numbers["classes"] = sum(described.users_at_once for described in classes)
        numbers["classes_per_s"] = sum(described.at_most_per_second for described in classes)
    return numbers


def _classes(described: str) -> Mapping[str, RequestClass] | Mapping[str, OwnRequestClass]:
    """Return classes of requests that sleep, or classes that somebody's own application is asked for."""
    return read_own_classes(described) if '"path":' in described else read_classes(described)


def _users_max(settings: Settings, _duration: str = "") -> dict[str, str]:
    users = {name: described.users_at_once for name, described in _classes(str(settings["classes"])).items()}
    return {"USERS_MAX": json.dumps(users)}


def _of_classes(settings: Settings, _duration: str) -> dict[str, str]:
    return _users_max(settings) | {"LONGEST_S": str(ANSWER_WITHIN_S)}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    required = [name for name in properties if name not in RELATIVE]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def in_seconds(duration: str) -> int:
    """Return a duration such as 90s or 5m in seconds."""
    return int(duration[:-1]) * (60 if duration[-1] == "m" else 1)


def as_variables(settings: Settings) -> dict[str, str]:
    """Return settings as the upper-case environment variables that a script reads."""
    return {name.upper(): str(value) for name, value in settings.items()}


def request(settings: Settings) -> tuple[str, float]:
    """Return the path that each request of a load asks for, and the service time of the request in ms."""
    if "cpu_ms" in settings:
        asked = "&".join(f"{name}={settings[name]}" for name in ("rounds", "wait_ms", "cpu_ms", "cpu"))
        return f"/work?{asked}", _work_ms(_numbers(settings))
    path = "/call" if settings.get("does") == "call" else "/"
    return f"{path}?delay={settings['delay_s']}", 1000 * float(settings["delay_s"])


def asks(path: str, service_time_ms: float) -> dict[str, str]:
    """Return the variables that tell a script which path to ask for, and the service time of that path in ms."""
    return {"ASKS": path, "ASKED_MS": f"{service_time_ms:.10g}"}


def _asks_unless_calibrated(settings: Settings, _duration: str) -> dict[str, str]:
    """Return what to ask for, unless requests compute: then each trial finds it out (lab/trial/calibration.py)."""
    return {} if "cpu_ms" in settings else asks(*request(settings))


def _step_s(asked: Numbers, duration_s: float) -> float:
    """Return how long one step of a climbing rate lasts: ``step_s``, but at most as long as the load."""
    return min(asked["step_s"], duration_s)


def _visit_grace_s(asked: Numbers, duration_s: float) -> float:
    return VISIT_REQUESTS * asked["timeout_steps"] * _step_s(asked, duration_s) + VISIT_SLACK_S


def _visit_steps(settings: Settings, duration: str) -> dict[str, str]:
    asked = _numbers(settings)
    step_s = _step_s(asked, in_seconds(duration))
    return {
        "RATES_PER_S": ",".join(map(str, rates_per_s(as_variables(settings), duration))),
        "STEP_LASTS_S": f"{step_s:.10g}",
        "TIMEOUT_S": f"{asked['timeout_steps'] * step_s:.10g}",
    }


def _each(users: float, takes_s: float) -> float:
    """Return the requests per second of a closed loop whose users need ``takes_s`` for a request and its pause."""
    return users / max(takes_s, QUICKEST_S)


def _work_ms(asked: Numbers) -> float:
    return asked["rounds"] * (asked["wait_ms"] + asked["cpu_ms"])


def _work_ends(asked: Numbers) -> None:
    if "rounds" in asked and (takes_s := _work_ms(asked) / 1000) > ANSWER_WITHIN_S:
        sum_ = f"{asked['rounds']:g} x ({asked['wait_ms']:g} + {asked['cpu_ms']:g}) ms"
        raise WrongSetting(f"a request takes {sum_} = {takes_s:,.10g} s, but {GIVES_UP}", "rounds")


def _delays_are_in_order(asked: Numbers) -> None:
    least, most = asked["delay_min_s"], asked["delay_max_s"]
    if least > most:
        raise WrongSetting(f"{most:g} must be at least delay_min_s, which is {least:g}", "delay_max_s")


def _patience_ends(asked: Numbers) -> None:
    if (waits_s := asked["timeout_steps"] * asked["step_s"]) > ANSWER_WITHIN_S:
        product = f"{asked['timeout_steps']:g} x {asked['step_s']:g} s"
        raise WrongSetting(f"a visitor waits {product} = {waits_s:,.10g} s, but {GIVES_UP}", "timeout_steps")


_ONE_HAS_FILES = "that one k6 container has files for; reduce them, or increase generators (the k6 containers)"
_ONE_SENDS = "that one k6 container can send; reduce them, or increase generators (the k6 containers)"
_MANY = Number(1, whole=True)
"""A number of users or requests. Its upper bound depends on the number of k6 containers: see ``LoadScript.check``."""
_DELAY_S = Number(0, ANSWER_WITHIN_S, GIVES_UP)
_PAUSE_S = Number(0, HOUR_S)
_CONNECTIONS = Number(1, 500, "a client is one process, which may open 1024 files", whole=True)
_WORK_MS = Number(0, ANSWER_WITHIN_S * 1000, GIVES_UP)
_WORK = {"rounds": Number(1, 60_000, GIVES_UP, whole=True), "wait_ms": _WORK_MS, "cpu_ms": _WORK_MS}

K6_SCRIPTS = {
    "arrivals.js": LoadScript(
        {"rate_rps": _MANY, "users_max": _MANY, "delay_s": _DELAY_S},
        users=("users_max",),
        rate_rps=lambda asked: asked["rate_rps"],
        open_loop=True,
    ),
    "burst.js": LoadScript(
        {
            "burst": _MANY,
            "every_s": Number(1, HOUR_S),
            "does": Word({"wait": {"delay_s": _DELAY_S}, "compute": _WORK, "call": {"delay_s": _DELAY_S}}),
        },
        users=("burst",),
        rate_rps=lambda asked: asked["burst"] / asked["every_s"],
        kind="burst",
        fits=_work_ends,
        hands_over=_asks_unless_calibrated,
    ),
    "calls.js": LoadScript(
        {
            "call_rps": _MANY,
            "call_delay_s": _DELAY_S,
            "quick_rps": _MANY,
            "quick_delay_s": _DELAY_S,
            "users_max": _MANY,
        },
        users=("users_max", "users_max"),  # each of the two classes has users_max users
        rate_rps=lambda asked: asked["call_rps"] + asked["quick_rps"],
        open_loop=True,
    ),
    "classes.js": LoadScript(
        {"classes": Described()},
        users=("classes",),
        rate_rps=lambda asked: asked["classes_per_s"],
        hands_over=_of_classes,
    ),
    "crash.js": LoadScript(
        {"before": _MANY, "after": _MANY, "crash_after_s": Number(0.1, ANSWER_WITHIN_S), "delay_s": _DELAY_S},
        users=("before", "after"),
        rate_rps=lambda _: 0.0,  # it sends every request once
        kind="crash",
    ),
    "fibonacci.js": LoadScript(
        {"users": _MANY, "n": Number(1, 35, "35 takes seconds", whole=True)},
        users=("users",),
        rate_rps=lambda asked: _each(asked["users"], 0),  # how long the computing takes is not known beforehand
    ),
    "heavy-mix.js": LoadScript(
        {"light_vus": _MANY, "light_delay_max_s": _DELAY_S, "heavy_vus": _MANY, "heavy_delay_s": _DELAY_S},
        users=("light_vus", "heavy_vus"),
        rate_rps=lambda asked: (
            _each(asked["light_vus"], asked["light_delay_max_s"] / 2)
            + _each(asked["heavy_vus"], asked["heavy_delay_s"])
        ),
    ),
    "own.js": LoadScript(
        {"classes": AskedFor()},
        users=("classes",),
        rate_rps=lambda asked: asked["classes_per_s"],
        hands_over=_users_max,
    ),
    "replay.js": LoadScript(
        {"classes": AskedFor(), "users_max": _MANY},
        users=("users_max",),
        rate_rps=lambda asked: asked["classes_per_s"],
        open_loop=True,
    ),
    "rounds.js": LoadScript(
        {"users": _MANY, **_WORK},
        users=("users",),
        rate_rps=lambda asked: _each(asked["users"], _work_ms(asked) / 1000),
        fits=_work_ends,
    ),
    "users.js": LoadScript(
        {"users": _MANY, "delay_min_s": _DELAY_S, "delay_max_s": _DELAY_S, "pause_s": _PAUSE_S},
        users=("users",),
        rate_rps=lambda asked: _each(
            asked["users"], (asked["delay_min_s"] + asked["delay_max_s"]) / 2 + asked["pause_s"]
        ),
        fits=_delays_are_in_order,
    ),
    "visits.js": LoadScript(
        {
            "first_per_s": _MANY,
            "last_per_s": _MANY,
            "step_s": Number(1, HOUR_S),
            "timeout_steps": Number(0.1, ANSWER_WITHIN_S),
            "users_max": _MANY,
        },
        users=("users_max",),
        rate_rps=lambda asked: VISIT_REQUESTS * max(asked["first_per_s"], asked["last_per_s"]),
        kind="visits",
        open_loop=True,
        fits=_patience_ends,
        grace_s=_visit_grace_s,
        hands_over=_visit_steps,
    ),
}
"""The scripts of k6/ by name."""

CLIENT_SCRIPTS = {
    "lingering.py": LoadScript(
        {"connections": _CONNECTIONS, "linger_s": Number(0.1, HOUR_S), "pause_s": _PAUSE_S},
        users=("connections",),
        grace_s=lambda _asked, _duration_s: CLIENT_GRACE_S,
        rate_rps=lambda asked: _each(asked["connections"], asked["linger_s"] + asked["pause_s"]),
    ),
    "silent.py": LoadScript(
        {"connections": _CONNECTIONS, "silent_s": Number(0.1, HOUR_S)},
        users=("connections",),
        grace_s=lambda _asked, _duration_s: CLIENT_GRACE_S,
        rate_rps=lambda asked: _each(asked["connections"], asked["silent_s"]),
    ),
}
"""The scripts of clients/ by name."""
