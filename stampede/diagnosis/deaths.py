"""Which workers of somebody's own service ended under the load: who ended them, when, and which requests paid for it.

The evidence is what the server wrote to its log (with the engine's times), the processes that were there before and
after the load, the kernel's count of processes that it killed for lack of memory, what stampede-probe noted in the
workers, and the requests.
"""

import json
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from stampede.evaluate.read.observation import Container, Observation, read_containers
from stampede.records.files import SERVED
from stampede.records.folder import read_trial, trial_folder
from stampede.records.plural import plural
from stampede.records.run import VariantRecord
from stampede.records.summary import Summary
from stampede.report.spread import word_list
from stampede.report.wording import number
from stampede.servers.program import PROGRAMS

Cause = Literal["limit", "timeout", "memory", "exit", "signal", "unknown"]
"""Who ended a worker: its limit of requests, the server's time limit, the kernel for lack of memory, the application
itself with an exit code, or a signal; unknown: the evidence does not tell."""
WAITED_S = 0.05
"""From this wait on, a request waited because a worker's place was empty."""
NEARLY = 0.9
"""A worker that served this part of its limit of requests may have reached the limit: the server counts more."""
NEAR_S = 1
"""A request that fails so soon before or after a worker ends, and that no worker began, is lost with this worker."""
SLOW_START_S = 0.5
"""From this time on, to load the application before workers are forked makes starts noticeably shorter."""
_MOST_TIMES = 5

_LINES: Sequence[tuple[str, str]] = (
    ("timeout", r"WORKER TIMEOUT \(pid:\s*(\d+)\)"),
    ("timeout", r"HARAKIRI ON WORKER \d+ \(pid: (\d+)"),
    ("limit", r"\[(\d+)\].*(?:Autorestarting worker after current request|Maximum request limit of \d+ exceeded)"),
    ("limit", r"The work of process (\d+) is done"),
    ("exit", r"Worker \(pid:\s*(\d+)\) exited with code (\d+)"),
    ("signal", r"Worker \(pid:\s*(\d+)\) was sent (SIG\w+)"),
    ("signal", r"worker \d+ \(pid: (\d+)\) died, killed by signal (\d+)"),
    ("unknown", r"Child process \[(\d+)\] died"),
    ("unknown", r"worker \d+ \(pid: (\d+)\) died :\("),
    ("finished", r"Worker exiting \(pid: (\d+)\)"),
    ("finished", r"Finished server process \[(\d+)\]"),
    ("booted", r"Booting worker with pid: (\d+)"),
    ("booted", r"Respawned uWSGI worker \d+ \(new pid: (\d+)\)"),
)
"""What gunicorn, uvicorn and uWSGI write when a worker ends or begins, with its process. hypercorn and granian write
nothing of the kind: they end as a whole when a worker ends."""
_ENDED = ("exit", "signal", "unknown", "finished")
_TIMED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)\d*Z (.*)")


class Death(NamedTuple):
    """A worker (host:pid) that ended under the load.

    ``detail`` is an exit code or the name of a signal. ``at_s`` is when, in epoch seconds; ``after_s`` is the same from
    the first request on. ``back_s`` is when another worker had taken its place; None: none had when the load ended.
    """

    worker: str
    cause: Cause
    detail: str
    at_s: float
    after_s: float
    back_s: float | None


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
    workers were forked. ``silence_s`` is for how long a worker may be silent; 0: it is not known.
    """

    found: Sequence[Death]
    tolls: Sequence[Toll]
    loads_s: float | None = None
    silence_s: float = 0.0


DeathsByLimit = Mapping[Limit, Deaths]
LIMIT_OF: Mapping[Cause, Limit] = {"limit": "max-requests", "timeout": "worker-timeout"}
"""The limits that a change of the server's settings can lift; all others are ``worker-deaths``."""


def read_deaths(
    rows: duckdb.DuckDBPyConnection, run_folder: Path, summary: Summary, variant: VariantRecord
) -> DeathsByLimit:
    """Return the workers that ended in the trusted trials of a variant, by limit. ``rows`` has the requests."""
    found: dict[Limit, list[Death]] = {}
    tolls: dict[Limit, list[Toll]] = {}
    loads_s: list[float] = []
    silent_s = silence_s(variant)
    for trial in summary.trials:
        if trial.variant != variant.name or not trial.is_trusted:
            continue
        folder, key = trial_folder(run_folder, *trial.key), of_trial(trial.key)
        [(began_s, ended_s)] = rows.execute(_SPAN, key).fetchall()
        if began_s is None:
            continue
        by_limit: dict[Limit, list[Death]] = {}
        told = read_trial(folder).settings
        for container in read_containers(folder):
            silent_s = _timeout_in_force_s(told.get(container.name, "")) or silent_s
            if container.before and container.after and (container.before.workers or container.after.workers):
                notes = _Notes(rows, [*folder.glob(SERVED)], container.after.host)
                log = _read_log(folder / f"{container.name}.log")
                for death in _deaths(container.before, container.after, log, notes, variant, began_s, ended_s):
                    by_limit.setdefault(LIMIT_OF.get(death.cause, "worker-deaths"), []).append(death)
                loads_s += [] if notes.is_preloaded(container) else [taken_s for taken_s, _ in notes.loaded.values()]
        for limit, deaths in by_limit.items():
            found.setdefault(limit, []).extend(deaths)
            values = key | {
                "workers": [death.worker for death in deaths], "ats": [death.at_s for death in deaths],
                "backs": [ended_s if death.back_s is None else death.back_s for death in deaths],
                "near": NEAR_S, "waited": WAITED_S,
            }  # fmt: skip
            tolls.setdefault(limit, []).extend(Toll(*row) for row in rows.execute(_TOLLS, values).fetchall())
    typical_s = median(loads_s) if loads_s else None
    return {limit: Deaths(deaths, _of_classes(tolls[limit]), typical_s, silent_s) for limit, deaths in found.items()}


def _of_classes(tolls: Sequence[Toll]) -> list[Toll]:
    """Return one toll for each class, of all trials."""
    names = dict.fromkeys(toll.request_class for toll in tolls)
    of = {name: [*zip(*(toll[1:] for toll in tolls if toll.request_class == name), strict=True)] for name in names}
    return [Toll(name, sum(lost), sum(waited), max(longest_s), sum(sent), sum(cost_s))
            for name, (lost, waited, longest_s, sent, cost_s) in of.items()]  # fmt: skip


_SPAN = f"SELECT epoch(min(sent)), epoch(max(answered)) FROM requests WHERE {OF_TRIAL}"  # noqa: S608  # a constant


class _Line(NamedTuple):
    what: str
    process: int
    detail: str
    at_s: float | None


def _read_log(path: Path) -> list[_Line]:
    """Return what a server's log says of processes; older runs have no times."""
    found = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        timed = _TIMED.match(text)
        at_s = datetime.fromisoformat(f"{timed[1]}+00:00").timestamp() if timed else None
        for what, pattern in _LINES:
            if said := re.search(pattern, timed[2] if timed else text):
                found.append(_Line(what, int(said[1]), said[2] if len(said.groups()) > 1 else "", at_s))
    return found


class _Notes:
    """What the processes of one host noted: when each noted something last, and when it had loaded the application.

    ``loaded`` has how long loading took, and when it ended; ``at_work`` the processes that began a request and did not
    end it.
    """

    def __init__(self, rows: duckdb.DuckDBPyConnection, files: Sequence[Path], host: str) -> None:
        self.last_s: dict[int, float] = {}
        self.loaded: dict[int, tuple[float, float]] = {}
        self.at_work: set[int] = set()
        values = {"files": [*map(str, files)], "host": f"{host}:"}
        for process, last_s, taken_s, loaded_s, open_ in rows.execute(_NOTES, values).fetchall() if files else []:
            self.last_s[process] = last_s
            if loaded_s is not None:
                self.loaded[process] = taken_s, loaded_s
            if open_:
                self.at_work.add(process)

    def is_preloaded(self, container: Container) -> bool:
        """Whether only the server's first process has loaded the application, before it forked the workers."""
        seen = [each.counts.keys() for each in (container.before, container.after) if each]
        return bool(self.loaded) and not self.loaded.keys() & {process for keys in seen for process in keys}


_NOTES = """
WITH notes AS (FROM read_csv($files, header = false, delim = ',', columns = {
    'what': 'VARCHAR', 'id': 'VARCHAR', 'worker': 'VARCHAR', 'thread': 'DOUBLE', 'connection': 'VARCHAR',
    'time': 'DOUBLE'}))
SELECT split_part(worker, ':', 2)::BIGINT, max(time),
    max(connection::DOUBLE) FILTER (WHERE what = 'loaded'), max(time) FILTER (WHERE what = 'loaded'),
    bool_or(what = 'began' AND id NOT IN (SELECT id FROM notes WHERE what = 'ended' AND id IS NOT NULL))
FROM notes WHERE starts_with(worker, $host) GROUP BY 1
"""


def _deaths(
    before: Observation, after: Observation, log: Sequence[_Line], notes: _Notes, variant: VariantRecord,
    began_s: float, ended_s: float,
) -> Iterator[Death]:  # fmt: skip
    """Yield the workers of one container that ended under the load, in the order of time."""
    lines: dict[int, list[_Line]] = {}
    for line in log:
        lines.setdefault(line.process, []).append(line)
    gone = (
        (before.workers | after.counts.keys() | notes.at_work) - after.workers - (before.counts.keys() - before.workers)
    )
    logged = {process for process, said in lines.items() if any(line.what in _ENDED for line in said)}
    at_s: dict[int, float] = {}
    for process in (gone | logged) - after.workers:
        timed = [(line.what not in _ENDED, line.at_s) for line in lines.get(process, [])
                 if line.at_s is not None and line.what != "booted"]  # fmt: skip
        when_s = min(timed)[1] if timed else notes.last_s.get(process, began_s)
        if began_s - NEAR_S <= when_s <= ended_s + NEAR_S:
            at_s[process] = when_s
    killed = max(0, (after.out_of_memory or 0) - (before.out_of_memory or 0))
    backs_s = _backs_s(before, lines, notes)
    for process, when_s in sorted(at_s.items(), key=lambda each: each[1]):
        cause, detail = _cause(process, lines.get(process, []), after, notes, variant, when_s)
        if killed and (cause == "unknown" or (cause == "signal" and detail == "SIGKILL")):
            killed, cause, detail = killed - 1, "memory", ""
        back_s = next((each for each in backs_s if when_s < each <= ended_s), None)
        if back_s is not None:
            backs_s.remove(back_s)
        if not notes.loaded:  # an older run does not tell
            back_s = when_s
        yield Death(f"{after.host}:{process}", cause, detail, when_s, max(0.0, when_s - began_s), back_s)


def _backs_s(before: Observation, lines: Mapping[int, Sequence[_Line]], notes: _Notes) -> list[float]:
    """Return when each worker that was not there before the load had loaded the application, or else was forked."""
    booted = {process: line.at_s for process, said in lines.items() for line in said
              if line.what == "booted" and line.at_s is not None}  # fmt: skip
    new = {process: at_s for process, (_, at_s) in notes.loaded.items() if process not in before.counts}
    if not notes.loaded.keys() & before.counts.keys():  # workers load nothing, or an older run does not tell
        new = {process: at_s for process, at_s in booted.items() if process not in before.counts}
    return sorted(new.values())


def _cause(
    process: int, said: Sequence[_Line], after: Observation, notes: _Notes, variant: VariantRecord, when_s: float
) -> tuple[Cause, str]:
    """Return who ended a worker, as far as its server says it or the evidence shows it, and a detail."""
    by_what = {line.what: line.detail for line in said}
    most = int(variant.settings.get("max_requests") or 0)
    served = after.counts.get(process, {}).get("served", 0)
    if "timeout" in by_what:
        return "timeout", ""
    if "limit" in by_what or (most and ("finished" in by_what or served >= NEARLY * most)):
        return "limit", ""
    if code := by_what.get("exit"):
        return "exit", code
    if name := by_what.get("signal"):
        return "signal", signal.Signals(int(name)).name if name.isdecimal() else name
    silent_s = when_s - notes.last_s.get(process, when_s)
    if program(variant) == "uvicorn" and process in notes.at_work and silent_s >= silence_s(variant) > 0:
        return "timeout", ""
    return "unknown", ""


def program(variant: VariantRecord) -> str:
    """Return the server that a variant is."""
    return str(variant.settings.get("server", "")).partition("-")[0]


def silence_s(variant: VariantRecord) -> float:
    """Return after how long without a sign of life the supervisor ends a worker, in seconds; 0: it is not known."""
    known = PROGRAMS.get(program(variant))
    return float(variant.settings.get("timeout_s") or (known.silent_s if known else 0))


def _timeout_in_force_s(told: str) -> float:
    """Return gunicorn's timeout in seconds, as a container told its settings; 0: it told none."""
    try:
        return float(json.loads(told)["timeout"])
    except (ValueError, TypeError, KeyError):  # another server, or an interrupt has cut the settings short
        return 0.0


def waited_for_places(by_limit: DeathsByLimit, answered: Answered) -> NDArray[np.bool_]:
    """Return which answered requests of a trial waited because a worker's place was empty."""
    waited = np.zeros(answered.sent_s.shape, bool)
    for death in (death for deaths in by_limit.values() for death in deaths.found):
        back_s = np.inf if death.back_s is None else death.back_s
        waited |= (answered.first + answered.sent_s < back_s) & (answered.first + answered.began_s > death.at_s)
    return waited & (answered.began_s - answered.sent_s > WAITED_S)


_TOLLS = f"""
WITH deaths AS (SELECT unnest($workers) AS worker, unnest($ats) AS died_s, unnest($backs) AS back_s),
sent AS (SELECT *, epoch(requests.sent) AS sent_s, epoch(answered) AS answered_s FROM requests WHERE {OF_TRIAL}),
judged AS (SELECT request_class, sent_s, answered_s, began - sent_s AS wait_s,
    error IS NOT NULL AND EXISTS (FROM deaths WHERE
        (deaths.worker = sent.worker AND answered_s >= died_s - $near)
        OR (sent.worker IS NULL AND answered_s BETWEEN died_s - $near AND died_s + $near)) AS lost,
    EXISTS (FROM deaths WHERE sent_s < back_s AND began > died_s AND began - sent_s > $waited) AS waited
    FROM sent)
SELECT request_class, count(*) FILTER (WHERE lost), count(*) FILTER (WHERE waited),
    coalesce(max(wait_s) FILTER (WHERE waited), 0), count(*),
    coalesce(sum(CASE WHEN lost THEN answered_s - sent_s ELSE wait_s END) FILTER (WHERE lost OR waited), 0)
FROM judged GROUP BY request_class ORDER BY request_class
"""  # noqa: S608  # made of a constant


def is_always_said(found: Bottleneck) -> bool:
    """Whether a limit is told even if it explains little: workers died, or requests were lost with them."""
    return found.limit in ("worker-timeout", "worker-deaths") or found.numbers.get("lost", 0) > 0


def death_bottlenecks(
    by_limit: DeathsByLimit, variant: VariantRecord, part_of_lost: Callable[[float], float]
) -> Iterator[Bottleneck]:
    """Yield a bottleneck for each way in which workers end. Replacing workers is one only if requests pay for it.

    ``part_of_lost`` returns which part of all the lost time some seconds are.
    """
    for limit, deaths in by_limit.items():
        lost, waited = (sum(getattr(toll, what) for toll in deaths.tolls) for what in ("lost", "waited"))
        if limit == "max-requests" and not lost and not waited:
            continue
        empty_s = [death.back_s - death.at_s for death in deaths.found
                   if death.back_s is not None and death.back_s > death.at_s]  # fmt: skip
        numbers = {"deaths": len(deaths.found), "lost": lost, "waited": waited,
                   "longest_wait_s": max((toll.longest_s for toll in deaths.tolls), default=0.0)}  # fmt: skip
        numbers |= {"empty_s": median(empty_s)} if empty_s else {}
        numbers |= {"loads_s": deaths.loads_s} if deaths.loads_s is not None else {}
        yield Bottleneck(
            limit=limit, requests=[toll.request_class for toll in deaths.tolls if toll.lost or toll.waited],
            numbers=numbers, explains=part_of_lost(sum(toll.cost_s for toll in deaths.tolls)),
            sentences=[*_who(limit, deaths, variant), *_paid(deaths, empty_s), *_cures(limit, deaths, variant)],
        )  # fmt: skip


def _when(deaths: Deaths) -> str:
    times = [f"{number(death.after_s)} s" for death in sorted(deaths.found, key=lambda each: each.after_s)]
    if len(times) > _MOST_TIMES:
        return f"from {times[0]} to {times[-1]} after the load began"
    return f"{word_list(times)} after the load began"


def _who(limit: Limit, deaths: Deaths, variant: VariantRecord) -> Iterator[str]:
    """Say who ended workers, and when."""
    workers, silence = plural(len(deaths.found), "worker"), f"{deaths.silence_s:g} s"
    ended = f"{workers}, {_when(deaths)}"
    match limit, program(variant):
        case "max-requests", _:
            most = variant.settings.get("max_requests")
            named = f"max_requests = {most}" if most else "Their limit of requests"
            yield (f"{named} ended {workers} under the load, {_when(deaths)}; it was neither a crash nor a lack of "
                   "memory.")  # fmt: skip
        case "worker-timeout", "uvicorn":
            yield (
                f"uvicorn's supervisor killed {ended}: for {silence}, which is --timeout-worker-healthcheck, the "
                "worker gave no sign of life while it had requests at work. So its threads kept Python's interpreter "
                "lock. It was neither a crash nor a lack of memory."
            )
        case "worker-timeout", "uwsgi":
            yield f"uWSGI's harakiri killed {ended}, because a request took longer than it allows."
        case "worker-timeout", _:
            yield (
                f"gunicorn's arbiter killed {ended} (WORKER TIMEOUT): the worker gave no sign of life for longer than "
                f"its timeout of {silence}. "
                + ("In a sync worker, this is a request that takes longer."
                   if str(variant.settings.get("server")).endswith("sync") else
                   "Something held up its event loop, or its main thread.")
            )  # fmt: skip
        case _:
            yield from _of_others(deaths, variant.settings.get("memory_mib"))


def _of_others(deaths: Deaths, memory_mib: object) -> Iterator[str]:
    by_cause = Counter((death.cause, death.detail) for death in deaths.found)
    for (cause, detail), count in by_cause.items():
        which = Deaths([death for death in deaths.found if (death.cause, death.detail) == (cause, detail)], [])
        workers, when = plural(count, "worker"), _when(which)
        match cause:
            case "memory":
                yield (f"The kernel killed {workers}, {when}, because the container reached its limit of memory, "
                       f"{memory_mib} MiB (served.memory_mib).")  # fmt: skip
            case "exit":
                yield (f"The application itself ended {workers}, {when}, with exit code {detail}: sys.exit, os._exit, "
                       "or an exception that nobody caught. Its log in the trial's folder may say why.")  # fmt: skip
            case "signal":
                yield f"The signal {detail} ended {workers}, {when}; the kernel counted no lack of memory."
            case _:
                yield (f"{workers[:1].upper()}{workers[1:]} died, {when}. It was no lack of memory and no limit of the "
                       "server that the lab knows; whether it was an exit or a signal, the server does not "
                       "say.")  # fmt: skip


def _paid(deaths: Deaths, empty_s: Sequence[float]) -> Iterator[str]:
    """Say how long places were empty, and which requests were lost or waited meanwhile."""
    if empty_s:
        most = f" (up to {number(max(empty_s))} s)" if len(empty_s) > 1 else ""
        loads_s = deaths.loads_s or 0.0
        loading = f"; to load the application takes {number(loads_s)} s" if loads_s >= SLOW_START_S else ""
        yield f"The place of such a worker was empty for {number(median(empty_s))} s{most}{loading}."
    if still := sum(death.back_s is None for death in deaths.found):
        yield f"{plural(still, 'place')} {'was' if still == 1 else 'were'} still empty when the load ended."
    lost = [f"{toll.lost} of {plural(toll.of, f'{toll.request_class} request')}" for toll in deaths.tolls if toll.lost]
    waited = [f"{toll.waited} of {plural(toll.of, f'{toll.request_class} request')} for up to "
              f"{number(toll.longest_s)} s" for toll in deaths.tolls if toll.waited]  # fmt: skip
    yield f"Lost with these workers: {word_list(lost)}." if lost else "No request was lost with these workers."
    if waited:
        yield f"Meanwhile, requests waited for a worker: {word_list(waited)}."


def _cures(limit: Limit, deaths: Deaths, variant: VariantRecord) -> Iterator[str]:
    match limit:
        case "max-requests":
            short = (deaths.loads_s or 0) >= SLOW_START_S and program(variant) == "gunicorn"
            preload = "; preload_app makes starts short" if short else ""
            yield ("A larger max_requests with a jitter, or none, lets workers end more rarely and not "
                   f"together{preload}.")  # fmt: skip
        case "worker-timeout" if program(variant) == "uvicorn":
            yield ("A longer --timeout-worker-healthcheck ends the killing, not the stalls; code that keeps the lock "
                   "belongs into processes of its own.")  # fmt: skip
        case "worker-timeout":
            yield "A longer timeout lets such requests end, but others wait behind them; long work belongs elsewhere."
        case _ if any(death.cause == "memory" for death in deaths.found):
            yield "Requests that need less memory, fewer workers, or more memory help."


def preload_helps(bottlenecks: Sequence[Bottleneck]) -> bool:
    """Whether workers are replaced that take noticeably long to load the application."""
    return any(
        found.numbers.get("loads_s", 0) >= SLOW_START_S for found in bottlenecks if found.limit in LIMIT_OF.values()
    )


def replacement_sentences(settings: Mapping[str, object], per_second: float, workers: int) -> Iterator[str]:
    """Say how often workers are replaced, which is in the numbers, if the variant's settings say that they are."""
    most, jitter = (int(str(settings.get(name) or 0)) for name in ("max_requests", "max_requests_jitter"))
    if not most:
        return
    said = f"max_requests replaces each worker after {most}{f' to {most + jitter}' if jitter else ''} requests"
    if per_second:
        every = f"about every {number((most + jitter / 2) * workers / per_second)} s"
        said += (
            f", at the measured rate {every}"
            if workers == 1
            else (f": at the measured rate, all {workers} workers {every}")
        )
    if per_second and workers > 1 and jitter < _TOGETHER * most:
        said += f", and at nearly the same moment, because the jitter is only {jitter}"
    yield f"{said}. Waits while workers are replaced are in these numbers."


_TOGETHER = 0.25
"""Workers are replaced at nearly the same moment if they differ by less than this part of the time between."""
