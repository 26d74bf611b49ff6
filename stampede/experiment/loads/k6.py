"""The scripts of k6/, with one declaration for each."""

import json
from math import ceil

from stampede.experiment.loads.script import (
    LoadScript,
    Numbers,
    Settings,
    WrongSetting,
    as_variables,
    described_classes,
    numbers_of,
    request_environment,
    service_time_ms,
)
from stampede.experiment.loads.settings import (
    ANSWER_WITHIN_S,
    GIVES_UP,
    HOUR_S,
    LOAD_CLASSES_OF_THE_LAB,
    LOGIN,
    Number,
    Word,
    count,
    delay_s,
    own_classes,
    rounds,
)
from stampede.records.classes import LOAD_CLASSES
from stampede.records.traffic import NOT_SIMULATED, TRAFFIC, climbing_rates_rps, rates_per_s
from stampede.records.words import in_seconds

VISIT_REQUESTS = 3
VISIT_SLACK_S = 5
"""After a load of visits, k6 waits for the longest possible visit and these seconds."""
ALL_ARE_THERE_S = 2
"""How long k6 waits before a first burst, as k6/lib/shapes.js says, so that all of its users are there."""
MOST_SESSIONS = 100
"""How many users log in at most before a load. Many applications take half a second to check a password."""


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


def _rate_steps(settings: Settings, duration: str) -> dict[str, str]:
    rates = climbing_rates_rps(settings)
    # what requests that compute ask for, each trial finds out (stampede/run/trial/calibration.py)
    asks = {} if "cpu_ms" in settings else request_environment(settings)
    lasts_s = in_seconds(duration) / len(rates)
    return {"RATES_RPS": ",".join(map(str, rates)), "STEP_LASTS_S": f"{lasts_s:.10g}", **asks}


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


def _of_classes(settings: Settings) -> dict[str, str]:
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
            "burst": count(10),
            "every_s": Number(10, 1, HOUR_S),
            "does": Word(
                "wait",
                {
                    "wait": {"delay_s": delay_s(1)},
                    "compute": rounds(5, wait_ms=10, cpu_ms=10),
                    "call": {"delay_s": delay_s(1)},
                },
            ),
        },
        users=("burst",),
        traffic=TRAFFIC["burst.js"],
        kind="burst",
        fits=_work_ends,
        last_sent_s=_last_burst_s,
        # what requests that compute ask for, each trial finds out (stampede/run/trial/calibration.py)
        variables=lambda asked, _: {} if "cpu_ms" in asked else request_environment(asked),
    ),
    "classes.js": LoadScript(
        "classes of requests: of users who wait for each answer and pause, or at a rate, and what each of them does",
        {"classes": LOAD_CLASSES_OF_THE_LAB},
        users=("classes",),
        traffic=TRAFFIC["classes.js"],
        variables=lambda asked, _: _of_classes(asked),
    ),
    "crash.js": LoadScript(
        "some requests at the same moment, one that kills its worker, and some more",
        {
            "before": count(5),
            "after": count(5),
            "crash_after_s": Number(0.25, 0.1, ANSWER_WITHIN_S),
            "delay_s": delay_s(1),
        },
        users=("before", "after"),
        missing=NOT_SIMULATED["crash.js"],
        classes=("before", "crash", "after"),
        rate_rps=lambda _: 0.0,  # it sends every request once
        kind="crash",
        last_sent_s=lambda asked, _: ALL_ARE_THERE_S + 2 * asked["crash_after_s"],
    ),
    "idle.js": LoadScript(
        "GET and POST requests at about the same moment, again every `every_s`, whose connections are idle meanwhile; "
        "and requests that compute, one at a time",
        {
            "gets": count(15),
            "posts": count(15),
            "every_s": Number(5, 1, HOUR_S),
            "spread_s": Number(0.1, 0, 1),
            "delay_s": delay_s(0.1),
            "busy_ms": Number(20, 1, 1000),
        },
        users=("gets", "posts"),
        missing=NOT_SIMULATED["idle.js"],
        classes=("get", "post", "busy"),
        rate_rps=lambda asked: (asked["gets"] + asked["posts"]) / asked["every_s"] + 500 / asked["busy_ms"],
        last_sent_s=lambda asked, duration_s: max(duration_s, _last_burst_s(asked, duration_s) + asked["spread_s"]),
    ),
    "replay.js": LoadScript(
        "the requests of an access log to [your own application]"
        "(../how-to/your-service.md#can-i-send-the-requests-of-a-log), at the times at which they came",
        {
            "classes": own_classes(
                '{"home": {"path": "/", "per_second": 2}, "report": {"path": "/report", "per_second": 1}}'
            ),
            "users_max": count(10),
        },
        users=("users_max",),
        missing=NOT_SIMULATED["replay.js"],
        rate_rps=lambda asked: asked["classes_per_s"],
        open_loop=True,
        variables=lambda asked, _: _sessions(asked),
        needs="It sends the requests of replay.json to the lab's application.",
        optional={"login": LOGIN},
    ),
    "steps.js": LoadScript(
        "requests at a rate that climbs in `steps` by the same factor each, whether or not earlier requests were "
        "answered; they wait or compute, and `late_ms` and `late_share` say "
        "[what rate to look for](../explain/measures.md#the-highest-rate)",
        {
            "first_rps": count(10),
            "last_rps": count(40),
            "steps": Number(5, 2, 100, whole=True),
            "users_max": count(100),
            "late_ms": Number(100, 1, ANSWER_WITHIN_S * 1000, GIVES_UP),
            "late_share": Number(0.01, 0.0001, 1),
            "does": Word("wait", {"wait": {"delay_s": delay_s(0.1)}, "compute": rounds(1, wait_ms=20, cpu_ms=5)}),
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
            "classes": own_classes(
                '{"home": {"path": "/?delay=0.1", "users": 5, "pause_s": 1}, '
                '"report": {"path": "/?delay=2", "per_second": 0.5}}'
            )
        },
        users=("classes",),
        missing=NOT_SIMULATED["user-service.js"],
        rate_rps=lambda asked: asked["classes_per_s"],
        variables=lambda asked, _: _users_max(asked) | _sessions(asked),
        needs="The paths are those of the lab's own application.",
        optional={"login": LOGIN},
    ),
    "visits.js": LoadScript(
        "visits to the guest book, at a rate that climbs in steps: page, form, new entry",
        {
            "first_per_s": count(5),
            "last_per_s": count(20),
            "step_s": Number(5, 1, HOUR_S),
            "timeout_steps": Number(1, 0.1, ANSWER_WITHIN_S),
            "users_max": count(200),
        },
        users=("users_max",),
        missing=NOT_SIMULATED["visits.js"],
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
