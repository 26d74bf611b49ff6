"""The scripts of k6/ and clients/, with a declaration for each."""

import json
from collections.abc import Callable
from functools import partial
from math import ceil

from stampede.experiment.loads.script import (
    ANSWER_WITHIN_S,
    GRACE_S,
    Described,
    LoadScript,
    Number,
    Numbers,
    Settings,
    Word,
    WrongSetting,
    as_variables,
    closed_loop_rps,
    described_classes,
    numbers_of,
    request_environment,
    service_time_ms,
)
from stampede.records.classes import LOAD_CLASSES, OWN_CLASSES, Login
from stampede.records.traffic import NOT_SIMULATED, TRAFFIC, Traffic, climbing_rates_rps, in_seconds, rates_per_s

HOUR_S = 3600
GIVES_UP = f"k6 gives up a request after {ANSWER_WITHIN_S} s"
VISIT_REQUESTS, VISIT_SLACK_S = 3, 5
"""After a load of visits, k6 waits for the longest possible visit of so many requests, and these seconds."""
ALL_ARE_THERE_S = 2
"""How long k6 waits before a first burst, as k6/lib/shapes.js says, so that all of its users are there."""
MOST_SESSIONS = 100
"""How many users log in at most before a load. Many applications take half a second to check a password."""


def _read_classes(value: str) -> None:
    for name, described in LOAD_CLASSES.validate_json(value).items():
        if described.longest_s > ANSWER_WITHIN_S or (described.timeout_s or 0) > ANSWER_WITHIN_S:
            takes_s = described.timeout_s or described.longest_s
            raise ValueError(f"{name}: a request takes {takes_s:g} s, but {GIVES_UP}")


_count = partial(Number, least=1, whole=True)
"""A number of users or requests. How many k6 can send depends on its containers."""
_delay_s = partial(Number, least=0, most=ANSWER_WITHIN_S, why=GIVES_UP)
_ms = partial(Number, least=0, most=1000 * ANSWER_WITHIN_S, why=GIVES_UP)
_own_classes = partial(
    Described, kind=OWN_CLASSES, read=OWN_CLASSES.validate_json,
    allowed='JSON of classes by name, e.g. {"page": {"path": "/", "users": 5}}',
)  # fmt: skip
"""What somebody's own application is asked for."""
_LOGIN = {
    "login": Described(
        "", Login, Login.model_validate_json, 'JSON of a request, e.g. {"path": "/login", "body": "user=ada"}'
    )
}
"""How users log in to somebody's own application."""


def _rounds(example: int, wait_ms: float, cpu_ms: float) -> dict[str, Number]:
    """Return the settings of requests that wait and compute in turns."""
    rounds = Number(example, 1, 1000 * ANSWER_WITHIN_S, GIVES_UP, whole=True)
    return {"rounds": rounds, "wait_ms": _ms(wait_ms), "cpu_ms": _ms(cpu_ms)}


def _not_simulated(script: str) -> Callable[[Settings], Traffic]:
    return lambda _: Traffic(missing=NOT_SIMULATED[script])


def _work_ends(asked: Numbers) -> None:
    if "rounds" in asked and (takes_s := service_time_ms(asked) / 1000) > ANSWER_WITHIN_S:
        sum_ = f"{asked['rounds']:g} x ({asked['wait_ms']:g} + {asked['cpu_ms']:g}) ms"
        raise WrongSetting(f"a request takes {sum_} = {takes_s:,.10g} s, but {GIVES_UP}", "rounds")


def _climbs(asked: Numbers) -> None:
    first, last = asked["first_rps"], asked["last_rps"]
    if first >= last:
        raise WrongSetting(f"{last:g} must be above first_rps, which is {first:g}", "last_rps")
    _work_ends(asked)
    takes_s = (service_time_ms(asked) + asked["late_ms"]) / 1000
    if asked["users_max"] < (needed := ceil(last * takes_s)):
        said = f"{asked['users_max']:g} users cannot show that requests are late at last_rps, {last:g} requests/s"
        raise WrongSetting(f"{said}; it takes {last:g} x {takes_s:g} s = {needed}", "users_max")


def _asks(settings: Settings) -> dict[str, str]:
    """Return what requests ask for. For those that compute, each trial finds it out (run/trial/calibration.py)."""
    return {} if "cpu_ms" in settings else request_environment(settings)


def _rate_steps(settings: Settings, duration: str) -> dict[str, str]:
    rates = climbing_rates_rps(settings)
    lasts_s = in_seconds(duration) / len(rates)
    return {"RATES_RPS": ",".join(map(str, rates)), "STEP_LASTS_S": f"{lasts_s:.10g}", **_asks(settings)}


def _patience_ends(asked: Numbers) -> None:
    if (waits_s := asked["timeout_steps"] * asked["step_s"]) > ANSWER_WITHIN_S:
        product = f"{asked['timeout_steps']:g} x {asked['step_s']:g} s"
        raise WrongSetting(f"a visitor waits {product} = {waits_s:,.10g} s, but {GIVES_UP}", "timeout_steps")


def _timeout_s(asked: Numbers, duration_s: float) -> float:
    """Return how long a visitor waits: some steps of the rate, each of them at most as long as the load."""
    return asked["timeout_steps"] * min(asked["step_s"], duration_s)


def _visit_steps(settings: Settings, duration: str) -> dict[str, str]:
    asked, lasts_s = numbers_of(settings), in_seconds(duration)
    return {
        "RATES_PER_S": ",".join(map(str, rates_per_s(as_variables(settings), duration))),
        "STEP_LASTS_S": f"{min(asked['step_s'], lasts_s):.10g}",
        "TIMEOUT_S": f"{_timeout_s(asked, lasts_s):.10g}",
    }


def _of_classes(settings: Settings, _: str) -> dict[str, str]:
    """Return also what each class asks for, in which {s} stands for the seconds that a request takes."""
    paths = {name: of.path for name, of in LOAD_CLASSES.validate_json(str(settings["classes"])).items()}
    return _users_max(settings) | {"PATHS": json.dumps(paths), "LONGEST_S": str(ANSWER_WITHIN_S)}


def _users_max(settings: Settings) -> dict[str, str]:
    users = {name: described.users_at_once for name, described in described_classes(settings).items()}
    return {"USERS_MAX": json.dumps(users)}


def _sessions(settings: Settings) -> dict[str, str]:
    """Return how many users log in before the load; k6/lib/sessions.js shares these sessions among all users."""
    users = sum(numbers_of(settings).get(name, 0) for name in ("users_max", "classes"))
    return {"SESSIONS": f"{min(users, MOST_SESSIONS):g}"} if "login" in settings else {}


def _last_burst_s(asked: Numbers, duration_s: float) -> float:
    """Return when the last burst is sent: bursts come for as many times as fit into the load, and at least once."""
    return ALL_ARE_THERE_S + (max(1, duration_s // asked["every_s"]) - 1) * asked["every_s"]


K6_SCRIPTS = {
    "burst.js": LoadScript(
        "many requests at the same moment, again every `every_s`; they wait, compute or call",
        {
            "burst": _count(10),
            "every_s": Number(10, 1, HOUR_S),
            "does": Word(
                "wait",
                {"wait": {"delay_s": _delay_s(1)}, "compute": _rounds(5, 10, 10), "call": {"delay_s": _delay_s(1)}},
            ),
        },
        users=("burst",),
        traffic=TRAFFIC["burst.js"],
        kind="burst",
        fits=_work_ends,
        last_sent_s=_last_burst_s,
        variables=lambda asked, _: _asks(asked),
    ),
    "classes.js": LoadScript(
        "classes of requests: of users who wait for each answer and pause, or at a rate, and what each of them does",
        {
            "classes": Described(
                '{"light": {"users": 5, "takes_s": {"least": 0, "most": 1}}, "heavy": {"users": 2, "takes_s": 10}}',
                LOAD_CLASSES,
                _read_classes,
                'JSON of classes by name, e.g. {"page": {"users": 5, "takes_s": 0.1}}',
            )
        },
        users=("classes",),
        traffic=TRAFFIC["classes.js"],
        variables=_of_classes,
    ),
    "crash.js": LoadScript(
        "some requests at the same moment, one that kills its worker, and some more",
        {
            "before": _count(5),
            "after": _count(5),
            "crash_after_s": Number(0.25, 0.1, ANSWER_WITHIN_S),
            "delay_s": _delay_s(1),
        },
        users=("before", "after"),
        traffic=_not_simulated("crash.js"),
        classes=("before", "crash", "after"),
        rate_rps=lambda _: 0.0,  # it sends every request once
        kind="crash",
        last_sent_s=lambda asked, _: ALL_ARE_THERE_S + 2 * asked["crash_after_s"],
    ),
    "idle.js": LoadScript(
        "GET and POST requests at about the same moment, again every `every_s`, whose connections are idle meanwhile; "
        "and requests that compute, one at a time",
        {
            "gets": _count(15),
            "posts": _count(15),
            "every_s": Number(5, 1, HOUR_S),
            "spread_s": Number(0.1, 0, 1),
            "delay_s": _delay_s(0.1),
            "busy_ms": Number(20, 1, 1000),
        },
        users=("gets", "posts"),
        traffic=_not_simulated("idle.js"),
        classes=("get", "post", "busy"),
        rate_rps=lambda asked: (asked["gets"] + asked["posts"]) / asked["every_s"] + 500 / asked["busy_ms"],
        last_sent_s=lambda asked, duration_s: max(duration_s, _last_burst_s(asked, duration_s) + asked["spread_s"]),
    ),
    "replay.js": LoadScript(
        "the requests of an access log to [your own application]"
        "(../how-to/your-service.md#can-i-send-the-requests-of-a-log), at the times at which they came",
        {
            "classes": _own_classes(
                '{"home": {"path": "/", "per_second": 2}, "report": {"path": "/report", "per_second": 1}}'
            ),
            "users_max": _count(10),
        },
        users=("users_max",),
        traffic=_not_simulated("replay.js"),
        open_loop=True,
        variables=lambda asked, _: _sessions(asked),
        needs="It sends the requests of replay.json to the lab's application.",
        optional=_LOGIN,
    ),
    "steps.js": LoadScript(
        "requests at a rate that climbs in `steps` by the same factor each, whether or not earlier requests were "
        "answered; they wait or compute, and `late_ms` and `late_share` say "
        "[what rate to look for](../explain/measures.md#the-highest-rate)",
        {
            "first_rps": _count(10),
            "last_rps": _count(40),
            "steps": Number(5, 2, 100, whole=True),
            "users_max": _count(100),
            "late_ms": _ms(100, least=1),
            "late_share": Number(0.01, 0.0001, 1),
            "does": Word("wait", {"wait": {"delay_s": _delay_s(0.1)}, "compute": _rounds(1, 20, 5)}),
        },
        users=("users_max",),
        traffic=TRAFFIC["steps.js"],
        open_loop=True,
        fits=_climbs,
        variables=_rate_steps,
    ),
    "user-service.js": LoadScript(
        "the requests of `stampede try` to [your own application](../how-to/your-service.md): classes of paths, with "
        "headers, bodies, and users or a rate",
        {
            "classes": _own_classes(
                '{"home": {"path": "/?delay=0.1", "users": 5, "pause_s": 1}, '
                '"report": {"path": "/?delay=2", "per_second": 0.5}}'
            )
        },
        users=("classes",),
        traffic=_not_simulated("user-service.js"),
        variables=lambda asked, _: _users_max(asked) | _sessions(asked),
        needs="The paths are those of the lab's own application.",
        optional=_LOGIN,
    ),
    "visits.js": LoadScript(
        "visits to the guest book, at a rate that climbs in steps: page, form, new entry",
        {
            "first_per_s": _count(5),
            "last_per_s": _count(20),
            "step_s": Number(5, 1, HOUR_S),
            "timeout_steps": Number(1, 0.1, ANSWER_WITHIN_S),
            "users_max": _count(200),
        },
        users=("users_max",),
        traffic=_not_simulated("visits.js"),
        classes=("page", "post", "newest"),
        rate_rps=lambda asked: VISIT_REQUESTS * max(asked["first_per_s"], asked["last_per_s"]),
        kind="visits",
        open_loop=True,
        fits=_patience_ends,
        grace_s=lambda asked, lasts_s: VISIT_REQUESTS * _timeout_s(asked, lasts_s) + VISIT_SLACK_S,
        variables=_visit_steps,
        needs="The application must be Django, and its database must run, too.",
    ),
}
"""The scripts of k6/ by name."""


def _client(sends: str, request_class: str, connections: int, settings: dict[str, Number], *takes: str) -> LoadScript:
    """Return the declaration of a client whose every connection ``takes`` so long for a request and its pauses."""
    why = "a client is one process, which may open 1024 files"
    return LoadScript(
        sends,
        {"connections": Number(connections, 1, 500, why, whole=True), **settings},
        users=("connections",),
        classes=(request_class,),
        rate_rps=lambda asked: closed_loop_rps(asked["connections"], sum(asked[name] for name in takes)),
        grace_s=lambda _asked, _duration_s: GRACE_S - 5,  # it must end before k6 ends
    )


CLIENT_SCRIPTS = {
    "lingering.py": _client(
        "gets its answer, and keeps the connection open for `linger_s`", "lingering", 1,
        {"linger_s": Number(3, 0.1, HOUR_S), "pause_s": Number(1, 0, HOUR_S)}, "linger_s", "pause_s",
    ),
    "silent.py": _client(
        "connects, says nothing for `silent_s`, and then sends its request", "silent", 2,
        {"silent_s": Number(10, 0.1, HOUR_S)}, "silent_s",
    ),
    "uploading.py": _client(
        "sends a request with a body of `kib` KiB, slowly, so that it takes `upload_s`", "uploading", 4,
        {"kib": Number(256, 1, 1024, "nginx refuses a larger body", whole=True), "upload_s": Number(5, 0.1, HOUR_S)},
        "upload_s",
    ),
}  # fmt: skip
"""The scripts of clients/ by name, which misbehave beside k6 in ways that k6 cannot."""
