"""The declaration of a load script: its settings, what it sends, and how long it waits for answers.

The lab finds a wrong setting here, before anything starts. It also computes here what follows from several settings,
and passes the result to the script in environment variables. A script that lacks a variable does not start.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from pydantic import ValidationError

from stampede.errors import Misplaced
from stampede.records.classes import LOAD_CLASSES, OWN_CLASSES, LoadClass, OwnRequestClass
from stampede.records.mistakes import Kind, reason_in_json
from stampede.records.run import LoadKind
from stampede.records.traffic import Traffic, TrafficClass, in_seconds
from stampede.records.words import nearest_first

USERS_MAX = 16_000
"""Most virtual users of one k6 container. Each user has a connection, and a container may open 16384 files."""
RATE_MAX_RPS = 20_000
"""Most requests per second of one k6 container. On two cores, k6 sends 16 to 17 thousand."""
K6_MIB = 128
"""The memory limit of k6 without users: k6 needs 43 MiB; the rest is for the output that it writes to disk."""
USER_MIB = 0.6
"""The limit for each virtual user. A user needs 0.17 MiB without requests, and up to 0.42 when k6 waits for a CPU."""
REQUEST_MIB = 0.0005
"""The limit for each request. k6 keeps 0.00024 MiB of each request for its summary (docs/develop/benchmarks.md)."""
QUICKEST_S = 0.0005
"""A response time that no server of the lab undercuts (docs/develop/benchmarks.md, "The floor")."""
ANSWER_WITHIN_S = 60
"""How long k6 waits for the answer to one request."""
GRACE_S = 60
"""How long k6 waits for the last answers after a load: longer than any wait that a trial should show."""
RELATIVE = frozenset({"first_per_s", "last_per_s"})
"""The settings that give a rate of visits. A load whose rate is relative leaves these settings out."""

Settings = Mapping[str, int | float | str]
Numbers = Mapping[str, float]


class WrongSetting(Misplaced):
    """A setting that is unknown, missing or out of bounds."""

    def __init__(self, message: str, *place: str) -> None:
        super().__init__(message, "settings", *place)


@dataclass(frozen=True)
class Number:
    """A setting that is a number from ``least`` to ``most``; ``why`` gives the reason for ``most``.

    The ``example`` of a setting is its value when somebody starts the script by hand.
    """

    example: float
    least: float
    most: float = inf
    why: str = ""
    whole: bool = False

    def problem(self, value: float | str) -> str | None:
        """Return what is wrong with a value; None if the value is allowed."""
        bounds = f", at least {self.least:g}" if self.most == inf else f" from {self.least:g} to {self.most:,.10g}"
        allowed = ("a whole number" if self.whole else "a number") + bounds
        if isinstance(value, str):
            return f"{value!r} must be {allowed}"
        if not self.least <= value <= self.most or (self.whole and value != int(value)):
            return f"{value:,.15g} must be {allowed}{f': {self.why}' if self.why and value > self.most else ''}"
        return None


@dataclass(frozen=True)
class Word:
    """A setting that is one of a few words. ``needs`` holds the further settings that each word requires."""

    example: str
    needs: Mapping[str, Mapping[str, Number]]

    def problem(self, value: float | str) -> str | None:
        """Return what is wrong with a value; None if the value is allowed."""
        there = nearest_first(str(value), list(self.needs))
        return None if value in self.needs else f"{value!r} must be one of {there}"


@dataclass(frozen=True)
class Described:
    """A setting that is JSON of a kind, which ``read`` reads (stampede/records/classes.py)."""

    example: str
    kind: Kind
    read: Callable[[str], object]
    allowed: str

    def problem(self, value: float | str) -> str | None:
        """Return what is wrong with a value; None if the value is allowed."""
        if not isinstance(value, str):
            return f"{value!r} must be {self.allowed}"
        try:
            self.read(value)
        except ValidationError as error:
            whole = "" if error.errors()[0]["loc"] else f"; it must be {self.allowed}"
            return reason_in_json(error, self.kind, value) + whole
        except ValueError as error:
            return str(error)
        return None


@dataclass(frozen=True)
class LoadScript:
    """One script: what it sends, in Markdown, its settings by name, its kind of load, and the most that it sends.

    ``users`` names the settings whose sum is the number of virtual users (or connections) at once. In an ``open_loop``
    the script sends whether or not earlier requests were answered. ``traffic`` returns the classes of requests as
    theory simulates them, or what theory lacks. A script that theory cannot simulate has its ``classes`` of requests
    (empty: those of its setting ``classes``), and, unless it has that setting, ``rate_rps``: how many requests it sends
    per second if every answer comes as soon as possible.

    ``fits`` raises WrongSetting if the settings contradict each other. ``grace_s`` returns how many seconds the script
    waits for the last answers after a load of the given number of seconds, and ``last_sent_s`` after how many seconds
    it sends its last requests. ``variables`` returns variables that follow from the settings and the duration (e.g.
    ``7s``). ``needs`` says, to people who start the script by hand, what else must run. ``optional`` has the settings
    that may be left out.
    """

    sends: str
    settings: Mapping[str, Number | Word | Described]
    users: tuple[str, ...]
    traffic: Callable[[Settings], Traffic] = lambda _: Traffic()
    classes: tuple[str, ...] = ()
    rate_rps: Callable[[Numbers], float] | None = None
    kind: LoadKind = "steady"
    open_loop: bool = False
    fits: Callable[[Numbers], None] = lambda _: None
    grace_s: Callable[[Numbers, float], float] = lambda _asked, _duration_s: GRACE_S
    last_sent_s: Callable[[Numbers, float], float] = lambda _asked, duration_s: duration_s
    variables: Callable[[Settings, str], dict[str, str]] = lambda _settings, _duration: {}
    needs: str = ""
    optional: Mapping[str, Described] = field(default_factory=dict)

    def check(self, name: str, values: Settings, generators: int, *, relative: bool = False) -> None:
        """Raise WrongSetting for the first setting that is unknown, missing, out of bounds or too much for k6.

        ``generators`` k6 containers share the users and the rate. ``relative``: the rate follows from another load.
        """
        if relative and (twice := RELATIVE & values.keys()):
            raise WrongSetting("relative already gives the rate; delete this setting or relative", min(twice))
        needed = self.declared(values)
        allowed = {**needed, **self.optional}
        words = {word for word, setting in self.settings.items() if isinstance(setting, Word)}
        where = "".join(f" with {word}: {values[word]}" for word in sorted(words & values.keys()))
        for setting, value in sorted(values.items(), key=lambda item: item[0] not in words):
            if setting not in allowed:
                there = nearest_first(setting, list(needed))
                raise WrongSetting(f"{name} has no setting {setting}{where}; it has {there}", setting)
            if problem := allowed[setting].problem(value):
                raise WrongSetting(problem, setting)
        if missing := sorted(needed.keys() - values.keys() - (RELATIVE if relative else set())):
            raise WrongSetting(f"{name} also needs {', '.join(missing)}{where}")
        numbers = numbers_of(values)
        self.fits(numbers)
        rates = [setting for setting in numbers if setting.endswith(("_rps", "_per_s"))]
        rate = self._rate_rps(values) if self.open_loop and not relative else 0
        if "classes" in values:  # how many requests users send depends on the answers
            rates, rate = ["classes"], sum(of.per_second or 0 for of in described_classes(values).values())
        for count, most, things, can, settings in (
            (self.users_at_once(values), USERS_MAX, "virtual users", "has files for", self.users),
            (rate, RATE_MAX_RPS, "requests a second", "can send", rates),
        ):
            if count / generators > most:
                setting = max(settings, key=lambda name: numbers[name])
                problem = f"{count / generators:,.15g} {things} are more than the {most:,} that one k6 container {can}"
                problem += "; reduce them, or increase generators (the k6 containers)"
                raise Misplaced(problem, setting) if setting == "classes" else WrongSetting(problem, setting)

    def derived_environment(self, settings: Settings, duration: str) -> dict[str, str]:
        """Return the variables that follow from checked settings and a duration (e.g. ``7s``)."""
        grace_s = self.grace_s(numbers_of(settings), in_seconds(duration))
        return {"GRACE_S": f"{grace_s:.10g}", **self.variables(settings, duration)}

    def request_classes(self, settings: Settings) -> list[str]:
        """Return the names of the classes of requests that the script sends with checked settings."""
        if "classes" in settings:
            return list(described_classes(settings))
        return list(self.traffic(settings).classes or self.classes)

    def users_at_once(self, values: Settings) -> float:
        """Return the number of virtual users (or connections) at once."""
        numbers = numbers_of(values)
        return sum(numbers[name] for name in self.users)

    def rate_at_most_rps(self, values: Settings, generators: int) -> float:
        """Return the most requests per second. If the rate is not known yet, return as many as k6 can send."""
        known = self._rate_rps(values) if values.keys() >= self.declared(values).keys() else inf
        return min(known, RATE_MAX_RPS * generators)

    @property
    def example(self) -> dict[str, int | float | str]:
        """The settings with which people start the script by hand."""
        words = {name: setting.example for name, setting in self.settings.items()}
        return {name: setting.example for name, setting in self.declared(words).items()}

    def _rate_rps(self, values: Settings) -> float:
        numbers = numbers_of(values)
        if "classes_per_s" in numbers:
            return numbers["classes_per_s"]
        if self.rate_rps:
            return self.rate_rps(numbers)
        return sum(map(_most_per_second, self.traffic(values).classes.values()))

    def declared(self, values: Settings) -> dict[str, Number | Word | Described]:
        """Return the settings of this script by name, including the settings that words among the values require."""
        needed = dict(self.settings)
        for name, setting in self.settings.items():
            if isinstance(setting, Word):
                needed |= setting.needs.get(str(values.get(name)), {})
        return needed


def numbers_of(values: Settings) -> Numbers:
    """Return the settings that are numbers. Classes count as their users, and have a rate (``classes_per_s``)."""
    numbers: dict[str, float] = {name: value for name, value in values.items() if not isinstance(value, str)}
    if "classes" in values:
        classes = described_classes(values).values()
        numbers["classes"] = sum(described.users_at_once for described in classes)
        numbers["classes_per_s"] = sum(described.at_most_per_second for described in classes)
    return numbers


def described_classes(settings: Settings) -> Mapping[str, LoadClass] | Mapping[str, OwnRequestClass]:
    """Return classes of requests of the lab's application, or those that somebody's own application is asked for."""
    described = str(settings["classes"])
    return (OWN_CLASSES if '"path":' in described else LOAD_CLASSES).validate_json(described)


def computing_class(settings: Settings) -> LoadClass | None:
    """Return the class whose requests compute for longest; None: no class of the lab's application computes."""
    classes = described_classes(settings).values() if "classes" in settings else ()
    found = [of for of in classes if isinstance(of, LoadClass) and of.computes]
    return max(found, key=lambda of: of.mean_s, default=None)


def as_variables(settings: Settings) -> dict[str, str]:
    """Return settings as the upper-case environment variables that a script reads."""
    return {name.upper(): str(value) for name, value in settings.items()}


def request_path(settings: Settings) -> str:
    """Return the path that a request of a load asks for: of several classes, one that computes."""
    if of := computing_class(settings):
        return f"{of.path_of(of.mean_s)}&cpu={settings['cpu']}"
    if "cpu_ms" in settings:
        return "/work?" + "&".join(f"{name}={settings[name]}" for name in ("rounds", "wait_ms", "cpu_ms", "cpu"))
    return f"{'/call' if settings.get('does') == 'call' else '/'}?delay={settings['delay_s']}"


def service_time_ms(settings: Settings) -> float:
    """Return the service time of a request of a load: of several classes, one that computes."""
    if of := computing_class(settings):
        return 1000 * of.mean_s
    if "cpu_ms" in settings:
        asked = numbers_of(settings)
        return asked["rounds"] * (asked["wait_ms"] + asked["cpu_ms"])
    return 1000 * float(settings["delay_s"])


def calls_of(settings: Settings) -> int:
    """Return how many calls of about a millisecond a request makes that holds the interpreter lock."""
    if of := computing_class(settings):
        return of.rounds * round(1000 * (of.computes or 0) * of.mean_s / of.rounds)
    return int(settings["rounds"]) * round(float(settings["cpu_ms"]))


def request_environment(settings: Settings, further: str = "") -> dict[str, str]:
    """Return the variables that tell a script what to ask for: the path with further parameters, the service time.

    A load of several classes is told how those that compute do it.
    """
    if "classes" in settings:
        return {"COMPUTING": f"&cpu={settings['cpu']}{further}"}
    return {"ASKS": request_path(settings) + further, "ASKED_MS": f"{service_time_ms(settings):.10g}"}


def closed_loop_rps(users: float, takes_s: float) -> float:
    """Return the requests per second of a closed loop whose users need ``takes_s`` for a request and its pause."""
    return users / max(takes_s, QUICKEST_S)


def _most_per_second(asked: TrafficClass) -> float:
    """Return how many requests of a class come per second if every answer comes as soon as possible."""
    if asked.users:
        return closed_loop_rps(asked.users, asked.rounds * sum(work.mean_s for work in asked.work) + asked.pause_s)
    return asked.burst / asked.every_s if asked.burst else asked.per_second or max(asked.rates_rps, default=0.0)
