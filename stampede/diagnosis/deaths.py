"""Which workers of somebody's own service ended under the load: who ended them, when, and which requests paid for it.

The evidence is what the server wrote to its log (with the engine's times), the processes that were there before and
after the load, the kernel's count of processes that it killed for lack of memory, what stampede-probe noted in the
workers, and the requests.
"""

import json
import math
import re
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from stampede.diagnosis.model import Bottleneck, Limit
from stampede.evaluate.metrics.waiting import Answered
from stampede.evaluate.read import OF_TRIAL, of_trial
from stampede.evaluate.read.observation import Observation, read_containers
from stampede.records.folder import SERVED, read_trial, trial_folder
from stampede.records.run import VariantRecord
from stampede.records.summary import Summary
from stampede.records.words import plural
from stampede.report.spread import word_list
from stampede.report.wording import number
from stampede.servers.program import PROGRAMS

Cause = Literal["limit", "timeout", "memory", "exit", "signal", "unknown"]
"""Who ended a worker: its limit of requests, the server's time limit, the kernel for lack of memory, the application
itself with an exit code, or a signal; unknown: the evidence does not tell."""
LIMIT_OF: Mapping[Cause, Limit] = {"limit": "max-requests", "timeout": "worker-timeout"}
"""The limits that a change of the server's settings can lift; all others are ``worker-deaths``."""
WAITED_S = 0.05
"""From this wait on, a request waited because a worker's place was empty."""
NEARLY = 0.9
"""A worker that served this part of its limit of requests may have reached the limit: the server counts more."""
NEAR_S = 1
"""A request that fails so soon before or after a worker ends, and that no worker began, is lost with this worker."""
SLOW_START_S = 0.5
"""From this time on, to load the application before workers are forked makes starts noticeably shorter."""
TOGETHER = 0.25
"""Workers are replaced at nearly the same moment if they differ by less than this part of the time between."""
_MOST_TIMES = 5

_PATTERNS: Sequence[tuple[str, str]] = (
    ("timeout", r"WORKER TIMEOUT \(pid:\s*(\d+)\)()"),
    ("timeout", r"HARAKIRI ON WORKER \d+ \(pid: (\d+)()"),
    ("limit", r"\[(\d+)\].*(?:Autorestarting worker after current request|Maximum request limit of \d+ exceeded)()"),
    ("limit", r"The work of process (\d+) is done()"),
    ("exit", r"Worker \(pid:\s*(\d+)\) exited with code (\d+)"),
    ("signal", r"Worker \(pid:\s*(\d+)\) was sent (SIG\w+)"),
    ("signal", r"worker \d+ \(pid: (\d+)\) died, killed by signal (\d+)"),
    ("unknown", r"Child process \[(\d+)\] died()"),
    ("unknown", r"worker \d+ \(pid: (\d+)\) died :\(()"),
    ("finished", r"Worker exiting \(pid: (\d+)\)()"),
    ("finished", r"Finished server process \[(\d+)\]()"),
    ("booted", r"Booting worker with pid: (\d+)()"),
    ("booted", r"Respawned uWSGI worker \d+ \(new pid: (\d+)\)()"),
)
"""What gunicorn, uvicorn and uWSGI write when a worker ends or begins, with its process and a detail. hypercorn and
granian write nothing of the kind: they end as a whole when a worker ends."""
_ENDED = {"exit", "signal", "unknown", "finished"}
_TOLD: Sequence[Cause] = ("timeout", "limit", "exit", "signal")
"""What a server's log tells of who ended a worker; the first that it tells is so."""
_TIMED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)\d*Z (.*)")

_LONG_WORK = "A longer timeout lets such requests end, but others wait behind them; long work belongs elsewhere."
_SENTENCES: Mapping[tuple[Cause, str], tuple[str, str]] = {
    ("limit", ""): (
        "{limit} ended {workers} under the load, {when}; it was neither a crash nor a lack of memory.",
        "A larger max_requests with a jitter, or none, lets workers end more rarely and not together{preload}.",
    ),
    ("timeout", "uvicorn"): (
        "uvicorn's supervisor killed {workers}, {when}: for {detail}, which is --timeout-worker-healthcheck, the "
        "worker gave no sign of life while it had requests at work. So its threads kept Python's interpreter lock. It "
        "was neither a crash nor a lack of memory.",
        "A longer --timeout-worker-healthcheck ends the killing, not the stalls; code that keeps the lock belongs into "
        "processes of its own.",
    ),
    ("timeout", "uwsgi"): (
        "uWSGI's harakiri killed {workers}, {when}, because a request took longer than it allows.", _LONG_WORK,
    ),
    ("timeout", ""): (
        "gunicorn's arbiter killed {workers}, {when} (WORKER TIMEOUT): the worker gave no sign of life for longer than "
        "its timeout of {detail}. {held}", _LONG_WORK,
    ),
    ("memory", ""): (
        "The kernel killed {workers}, {when}, because the container reached its limit of memory, {memory} MiB "
        "(served.memory_mib).",
        "Requests that need less memory, fewer workers, or more memory help.",
    ),
    ("exit", ""): (
        "The application itself ended {workers}, {when}, with exit code {detail}: sys.exit, os._exit, or an exception "
        "that nobody caught. Its log in the trial's folder may say why.", "",
    ),
    ("signal", ""): ("The signal {detail} ended {workers}, {when}; the kernel counted no lack of memory.", ""),
    ("unknown", ""): (
        "{workers} died, {when}. It was no lack of memory and no limit of the server that the lab knows; whether it "
        "was an exit or a signal, the server does not say.", "",
    ),
}  # fmt: skip
"""What is said of workers that ended, and what helps: by the cause and the server, without one for all others."""


class Death(NamedTuple):
    """A worker (host:pid) that ended under the load.

    ``detail`` is an exit code, the name of a signal, or for how long a worker may be silent. ``at_s`` is when, in epoch
    seconds; ``after_s`` is the same from the first request on. ``back_s`` is when another worker had taken its place;
    inf: none had when the load ended.
    """

    trial: int
    worker: str
    cause: Cause
    detail: str
    at_s: float
    after_s: float
    back_s: float


class Toll(NamedTuple):
    """What deaths cost requests of one class: how many requests were lost, how many waited, and for how long at most.

    ``of`` is how many requests of the class were sent in all. ``cost_s`` is how long requests waited, and how long
    those that were lost took, in all.
    """

    request_class: str
    lost: int
    waited: int
    longest_s: float
    of: int
    cost_s: float


class Deaths(NamedTuple):
    """The deaths of one kind in all trusted trials of a variant.

    ``loads_s`` is how long a process took to load the application; None: nobody noted it, or it was loaded before the
    workers were forked.
    """

    found: Sequence[Death]
    tolls: Sequence[Toll]
    loads_s: float | None = None


DeathsByLimit = Mapping[Limit, Deaths]


_Said = Mapping[str, tuple[float, str]]
"""What the log says of a process: when it said so, in epoch seconds, and a detail."""


class _Noted(NamedTuple):
    """What a process noted: when it noted something last, and how long loading the application took and when it ended.

    ``at_work``: it began a request that it did not end.
    """

    last_s: float
    loads_s: float | None
    loaded_s: float | None
    at_work: bool


_NOTES = """
WITH notes AS (FROM read_csv($files, header = false, delim = ',', columns = {
    'what': 'VARCHAR', 'id': 'VARCHAR', 'worker': 'VARCHAR', 'thread': 'DOUBLE', 'connection': 'VARCHAR',
    'time': 'DOUBLE'}))
SELECT split_part(worker, ':', 2)::BIGINT, max(time),
    max(connection::DOUBLE) FILTER (WHERE what = 'loaded'), max(time) FILTER (WHERE what = 'loaded'),
    bool_or(what = 'began' AND id NOT IN (SELECT id FROM notes WHERE what = 'ended' AND id IS NOT NULL))
FROM notes WHERE starts_with(worker, $host) GROUP BY 1
"""
_SPAN = f"SELECT epoch(min(sent)), epoch(max(answered)) FROM requests WHERE {OF_TRIAL}"  # noqa: S608  # a constant
_TOLLS = """
WITH deaths AS (SELECT unnest($trials) AS trial, unnest($workers) AS worker, unnest($ats) AS died_s,
    unnest($backs) AS back_s),
sent AS (SELECT *, epoch(requests.sent) AS sent_s, epoch(answered) AS answered_s FROM requests
    WHERE variant = $variant AND trial IN (SELECT trial FROM deaths)),
judged AS (SELECT request_class, sent_s, answered_s, began - sent_s AS wait_s,
    error IS NOT NULL AND EXISTS (FROM deaths WHERE deaths.trial = sent.trial AND (
        (deaths.worker = sent.worker AND answered_s >= died_s - $near)
        OR (sent.worker IS NULL AND answered_s BETWEEN died_s - $near AND died_s + $near))) AS lost,
    EXISTS (FROM deaths WHERE deaths.trial = sent.trial AND sent_s < back_s AND began > died_s
        AND began - sent_s > $waited) AS waited
    FROM sent)
SELECT request_class, count(*) FILTER (WHERE lost), count(*) FILTER (WHERE waited),
    coalesce(max(wait_s) FILTER (WHERE waited), 0), count(*),
    coalesce(sum(CASE WHEN lost THEN answered_s - sent_s ELSE wait_s END) FILTER (WHERE lost OR waited), 0)
FROM judged GROUP BY request_class ORDER BY request_class
"""


def read_deaths(
    rows: duckdb.DuckDBPyConnection, run_folder: Path, summary: Summary, variant: VariantRecord
) -> DeathsByLimit:
    """Return the workers that ended in the trusted trials of a variant, by limit. ``rows`` has the requests."""
    found: defaultdict[Limit, list[Death]] = defaultdict(list)
    loads_s, known = list[float](), PROGRAMS.get(_program(variant))
    silence_s = float(variant.settings.get("timeout_s") or (known.silent_s if known else 0))  # 0: it is not known
    for trial in summary.trials:
        if trial.variant != variant.name or not trial.is_trusted:
            continue
        folder = trial_folder(run_folder, *trial.key)
        [(began_s, ended_s)] = rows.execute(_SPAN, of_trial(trial.key)).fetchall()
        files, told = [*map(str, folder.glob(SERVED))], read_trial(folder).settings
        for container in read_containers(folder) if began_s is not None else ():
            with suppress(ValueError, TypeError, KeyError):  # another server, or an interrupt has cut the settings
                silence_s = float(json.loads(told.get(container.name, ""))["timeout"]) or silence_s
            before, after = container.before, container.after
            if not (before and after and (before.workers or after.workers)):
                continue
            of_host = {"files": files, "host": f"{after.host}:"}
            read = rows.execute(_NOTES, of_host).fetchall() if files else []
            notes = {process: _Noted(*noted) for process, *noted in read}
            log = folder / f"{container.name}.log"
            lines = _read_log(log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")
            for death in _deaths(trial.trial, before, after, lines, notes, variant, silence_s, (began_s, ended_s)):
                found[LIMIT_OF.get(death.cause, "worker-deaths")].append(death)
            loaded = {process: noted.loads_s for process, noted in notes.items() if noted.loads_s is not None}
            if loaded.keys() & (before.counts.keys() | after.counts.keys()):  # not before the workers were forked
                loads_s += loaded.values()
    by_limit: dict[Limit, Deaths] = {}
    for limit, deaths in found.items():
        asked = {
            "variant": variant.name, "near": NEAR_S, "waited": WAITED_S, "trials": [death.trial for death in deaths],
            "workers": [death.worker for death in deaths], "ats": [death.at_s for death in deaths],
            "backs": [death.back_s for death in deaths],
        }  # fmt: skip
        tolls = [Toll(*toll) for toll in rows.execute(_TOLLS, asked).fetchall()]
        by_limit[limit] = Deaths(deaths, tolls, median(loads_s) if loads_s else None)
    return by_limit


def _read_log(text: str) -> Mapping[int, _Said]:
    """Return what a server's log says of each process; of lines that say the same, the first."""
    found: defaultdict[int, dict[str, tuple[float, str]]] = defaultdict(dict)
    for timed in filter(None, map(_TIMED.match, text.splitlines())):
        for what, pattern in _PATTERNS:
            if said := re.search(pattern, timed[2]):
                at_s = datetime.fromisoformat(f"{timed[1]}+00:00").timestamp()
                found[int(said[1])].setdefault(what, (at_s, said[2]))
    return found


def _deaths(
    trial: int, before: Observation, after: Observation, lines: Mapping[int, _Said],
    notes: Mapping[int, _Noted], variant: VariantRecord, silence_s: float, load_s: tuple[float, float],
) -> Iterator[Death]:  # fmt: skip
    """Yield the workers of one container that ended under the load, from and to ``load_s``, in the order of time."""
    began_s, ended_s = load_s
    at_work = {process for process, noted in notes.items() if noted.at_work}
    gone = (before.workers | after.counts.keys() | at_work) - (before.counts.keys() - before.workers)
    gone |= {process for process, said in lines.items() if said.keys() & _ENDED}
    at_s: dict[int, float] = {}
    for process in gone - after.workers:
        said, noted = lines.get(process, {}), notes.get(process)
        timed = [(what not in _ENDED, line_s) for what, (line_s, _) in said.items() if what != "booted"]
        when_s = min(timed)[1] if timed else noted.last_s if noted else began_s
        if began_s - NEAR_S <= when_s <= ended_s + NEAR_S:
            at_s[process] = when_s
    # when each worker that was not there before the load had loaded the application, or else was forked
    began = {process: noted.loaded_s for process, noted in notes.items() if noted.loaded_s is not None}
    if not began.keys() & before.counts.keys():  # workers load nothing
        began = {process: said["booted"][0] for process, said in lines.items() if "booted" in said}
    backs_s = sorted(back_s for process, back_s in began.items() if process not in before.counts)
    killed = max(0, (after.out_of_memory or 0) - (before.out_of_memory or 0))
    for process, when_s in sorted(at_s.items(), key=lambda each: each[1]):
        said, noted, served = lines.get(process, {}), notes.get(process), after.counts.get(process, {}).get("served", 0)
        is_silent = noted is not None and noted.at_work and 0 < silence_s <= when_s - noted.last_s
        cause = _cause(said, served, variant, is_silent=is_silent)
        detail = f"{silence_s:g} s" if cause == "timeout" else said.get(cause, (0.0, ""))[1]
        if cause == "signal" and detail.isdecimal():
            detail = signal.Signals(int(detail)).name
        if killed and (cause == "unknown" or detail == "SIGKILL"):
            killed, cause, detail = killed - 1, "memory", ""
        back_s = next((each for each in backs_s if when_s < each <= ended_s), math.inf)
        if back_s in backs_s:
            backs_s.remove(back_s)
        yield Death(trial, f"{after.host}:{process}", cause, detail, when_s, max(0.0, when_s - began_s), back_s)


def _cause(said: _Said, served: int, variant: VariantRecord, *, is_silent: bool) -> Cause:
    """Return who ended a worker that served so many requests: what the log says of it, or else what fits."""
    told: Cause = next((each for each in _TOLD if each in said), "unknown")
    most = int(variant.settings.get("max_requests") or 0)
    if told != "timeout" and most and ("finished" in said or served >= NEARLY * most):
        return "limit"
    return "timeout" if told == "unknown" and is_silent and _program(variant) == "uvicorn" else told


def _program(variant: VariantRecord) -> str:
    return str(variant.settings.get("server", "")).partition("-")[0]


def waited_for_places(by_limit: DeathsByLimit, trial: int, answered: Answered) -> NDArray[np.bool_]:
    """Return which answered requests of a trial waited because a worker's place was empty."""
    waited = np.zeros(answered.sent_s.shape, bool)
    for death in (death for deaths in by_limit.values() for death in deaths.found if death.trial == trial):
        waited |= (answered.first + answered.sent_s < death.back_s) & (answered.first + answered.began_s > death.at_s)
    return waited & (answered.began_s - answered.sent_s > WAITED_S)


def is_always_said(found: Bottleneck) -> bool:
    """Whether a limit is told even if it explains little: workers died, or requests were lost with them."""
    return found.limit in ("worker-timeout", "worker-deaths") or found.numbers.get("lost", 0) > 0


def death_bottlenecks(
    by_limit: DeathsByLimit, variant: VariantRecord, part_of_lost: Callable[[float], float]
) -> Iterator[Bottleneck]:
    """Yield a bottleneck for each way in which workers end. Replacing workers is one only if requests pay for it.

    ``part_of_lost`` returns which part of all the lost time some seconds are.
    """
    server, most = _program(variant), variant.settings.get("max_requests")
    is_sync = str(variant.settings.get("server")).endswith("sync")
    for limit, (found, tolls, loads_s) in by_limit.items():
        paid = [toll for toll in tolls if toll.lost or toll.waited]
        if limit == "max-requests" and not paid:
            continue
        starts_slowly = (loads_s or 0.0) >= SLOW_START_S
        said, cures = list[str](), dict[str, None]()
        for (cause, detail), count in Counter((death.cause, death.detail) for death in found).items():
            after_s = sorted(death.after_s for death in found if (death.cause, death.detail) == (cause, detail))
            times = [f"{number(each)} s" for each in after_s]
            when = f"from {times[0]} to {times[-1]}" if count > _MOST_TIMES else word_list(times)
            words = {
                "workers": plural(count, "worker"), "when": f"{when} after the load began", "detail": detail,
                "memory": variant.settings.get("memory_mib"),
                "held": "In a sync worker, this is a request that takes longer." if is_sync else
                        "Something held up its event loop, or its main thread.",
                "limit": f"max_requests = {most}" if most else "Their limit of requests",
                "preload": "; preload_app makes starts short" if starts_slowly and server == "gunicorn" else "",
            }  # fmt: skip
            says, cure = _SENTENCES.get((cause, server)) or _SENTENCES[cause, ""]
            said.append(says.format(**words))
            cures[cure.format(**words)] = None
        empty_s = [death.back_s - death.at_s for death in found]
        if refilled_s := [each for each in empty_s if each < math.inf]:
            longest = f" (up to {number(max(refilled_s))} s)" if len(refilled_s) > 1 else ""
            loading = f"; to load the application takes {number(loads_s)} s" if starts_slowly else ""
            said.append(f"The place of such a worker was empty for {number(median(refilled_s))} s{longest}{loading}.")
        if still_empty := empty_s.count(math.inf):
            said.append(f"When the load ended, {plural(still_empty, 'place')} still had no worker.")
        of = {toll: plural(toll.of, f"{toll.request_class} request") for toll in paid}
        lost = [f"{toll.lost} of {sent}" for toll, sent in of.items() if toll.lost]
        waited = [f"{toll.waited} of {sent} for up to {number(toll.longest_s)} s" for toll, sent in of.items()
                  if toll.waited]  # fmt: skip
        said.append(f"Requests lost with these workers: {word_list(lost) if lost else 'none'}.")
        said += [f"Meanwhile, requests waited for a worker: {word_list(waited)}."] if waited else []
        yield Bottleneck(
            limit=limit, requests=[toll.request_class for toll in paid], sentences=[*said, *filter(None, cures)],
            numbers={"lost": sum(toll.lost for toll in paid), **({} if loads_s is None else {"loads_s": loads_s})},
            explains=part_of_lost(sum(toll.cost_s for toll in paid)),
        )  # fmt: skip


def preload_helps(bottlenecks: Sequence[Bottleneck]) -> bool:
    """Whether workers are replaced that take noticeably long to load the application."""
    return any(
        found.numbers.get("loads_s", 0) >= SLOW_START_S for found in bottlenecks if found.limit in LIMIT_OF.values()
    )


def replacement_sentence(settings: Mapping[str, object], per_second: float, workers: int) -> str:
    """Say how often workers are replaced, which is in the numbers; empty: the settings do not replace them."""
    most, jitter = (int(str(settings.get(name) or 0)) for name in ("max_requests", "max_requests_jitter"))
    if not most:
        return ""
    said = f"max_requests replaces each worker after {most}{f' to {most + jitter}' if jitter else ''} requests"
    if per_second:
        every_s = (most + jitter / 2) * workers / per_second
        who = f"all {workers} workers" if workers > 1 else "the worker"
        said += f": at the measured rate, {who} about every {number(every_s)} s"
        if workers > 1 and jitter < TOGETHER * most:
            said += f", and at nearly the same moment, because the jitter is only {jitter}"
    return f"{said}. Waits while workers are replaced are in these numbers."
