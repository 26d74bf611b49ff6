"""The diagnosis of somebody's own service: what limits it, said in sentences, and whether another way is better."""

import gzip
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import Any

import duckdb
import pytest
from inline_snapshot import snapshot
from rich.console import Console

from stampede.advise.options import OfferedLoad, serving_options
from stampede.diagnosis import section
from stampede.diagnosis.deaths import Death, Deaths, DeathsByLimit, Toll, replacement_sentence
from stampede.diagnosis.evidence import Evidence
from stampede.diagnosis.held import Loops, Stack, Stall, read_stalls
from stampede.diagnosis.improvement import find_improvement
from stampede.diagnosis.model import Bottleneck, Diagnosis, read_diagnosis, write_diagnosis
from stampede.diagnosis.rules import diagnose
from stampede.diagnosis.section import section_of
from stampede.evaluate.metrics import unit
from stampede.evaluate.read.rows import UnreadablePoints, opened, write_requests
from stampede.predict.symptoms import SYMPTOMS
from stampede.records.folder import read_run, trial_folder
from stampede.records.run import TODAY, USER_SERVICE, LoadRecord, Run, VariantRecord
from stampede.records.summary import ErrorRow, Estimate, Summary, TrialValidity, Validity
from stampede.report.screen import screen_lines
from stampede.report.terminal import print_tables
from stampede.service.trying import print_best_way
from stampede.theory.model import Class, Closed, Constant, WorkStep
from tests.measuring import rows_of
from tests.synthetic import BEGAN, Request, lines, make_run
from tests.wrong import listed


def own_points(folder: Path, requests: list[Request], served: str) -> None:
    """Write the points of requests as k6/user-service.js does, and what the wrapper noted."""
    folder.mkdir(parents=True)
    kept = ("id", "status", "error", "blocked_ms", "connecting_ms")
    with gzip.open(folder / "points.json.gz", "wt") as file:
        for line in lines(requests):
            if "metadata" in line["data"]:
                known = line["data"]["metadata"]
                line["data"]["metadata"] = {name: value for name, value in known.items() if name in kept}
            file.write(json.dumps(line) + "\n")
    (folder / "served-gunicorn-1.csv").write_text(served)


def test_who_served_comes_from_the_worker(tmp_path: Path) -> None:
    requests = [
        Request(service_time_ms=100, overhead_ms=50),
        Request(service_time_ms=10),
        Request(error="status 500", status=500),
    ]
    served = "began,1-1,box:7,71,99,1000.5\nbegan,1-3,box:8,81,,1001\nended,1-1,,,,1000.6\nended,1-3,,,,1001.25\n"
    own_points(tmp_path / "trial", requests, served)

    write_requests(tmp_path / "trial", "today", "own", 1)

    found = duckdb.read_parquet(str(tmp_path / "trial" / "requests.parquet"))
    rows = rows_of(
        found, "SELECT id, worker, thread, connection, service_time_ms, overhead_ms, error FROM requests ORDER BY id"
    )
    assert rows == [
        ("1-1", "box:7", 71, "99", pytest.approx(100, abs=0.01), pytest.approx(50, abs=0.01), None),
        ("1-2", None, None, None, 0.0, None, "no worker of the application answered"),
        ("1-3", "box:8", 81, None, pytest.approx(250, abs=0.01), None, "status 500"),
    ]


def test_notes_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    own_points(tmp_path / "trial", [Request()], "began,1-1,box:7,many,,soon\n")

    with pytest.raises(UnreadablePoints, match=r"served-\*.csv cannot be read: "):
        write_requests(tmp_path / "trial", "today", "own", 1)


def row(variant: str, request_class: str | None, metric: str, stat: str, *values: float) -> Estimate:
    """Return a row of a summary, with the extremes of the trials as its interval."""
    middle = sorted(values)[len(values) // 2]
    return Estimate(
        variant=variant, load="own", request_class=request_class, metric=metric, stat=stat, unit=unit(metric, stat),
        published=None, predicted=None, measured=middle, low=min(values), high=max(values), n=100, trials=len(values),
        values=dict(enumerate(values, start=1)),
    )  # fmt: skip


def of_today(*told: str) -> list[Estimate]:
    """Return rows of today's way, each written as class (-: all), metric, statistic, and a value for each trial."""
    parts = [line.split() for line in told]
    return [
        row(TODAY, None if name == "-" else name, metric, stat, *map(float, values))
        for name, metric, stat, *values in parts
    ]


def summary_of(*rows: Estimate, **further: object) -> Summary:
    return Summary.of_nothing("mine").model_copy(update={"rows": list(rows), **further})


DOUBTED = TrialValidity(
    variant=TODAY, load="mix", trial=1, verdict="suspect",
    reasons=["the load generator waited for a processor 0.11 s in every second of the load, so it sent requests late"],
)  # fmt: skip
VALID = TrialValidity(variant=TODAY, load="mix", trial=1, verdict="valid", reasons=[])


def run_of(tmp_path: Path, requests: list[Request], **settings: object) -> Run:
    """Write a run of two workers with a thread each, and return its record."""
    variant = VariantRecord(name=TODAY, workers=2, settings={"workers": 2, "threads": 1} | settings)
    return read_run(make_run(tmp_path / "run", {TODAY: requests}, variants=[variant]))


Diagnose = Callable[..., Diagnosis]


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> Diagnose:
    """A function that returns the diagnosis of requests, and of rows as of_today has them."""

    @cache
    def written(*requests: Request, **settings: object) -> tuple[Run, Path]:
        folder = tmp_path_factory.mktemp("own")
        run, trial = run_of(folder, [*requests], **settings), trial_folder(folder / "run", TODAY, "mix", 1)
        write_requests(trial, TODAY, "mix", 1)
        return run, trial

    def diagnosis(
        *rows: str, requests: Sequence[Request] = (Request(),), of_variant: dict[str, object] | None = None,
        loops: Loops = NO_LOOPS, alone_ms: dict[str, float] | None = None,
        busy: float | None = None, errors: Sequence[ErrorRow] = (), deaths: DeathsByLimit = NO_DEATHS,
        **settings: object,
    ) -> Diagnosis:  # fmt: skip
        run, trial = written(*requests, **settings)
        run = run.model_copy(update={"variants": [run.variants[0].model_copy(update=of_variant)]})
        with opened([trial]) as read:
            summary = summary_of(*of_today(*rows), errors=[*errors])
            return diagnose(Evidence(summary, run, read, loops, alone_ms or {}, busy, deaths))

    return diagnosis


def error(status: int) -> ErrorRow:
    return ErrorRow(variant=TODAY, load="mix", trial=1, request_class="admin", error=f"status {status}", requests=7)


NO_LOOPS = Loops([], 0.0)
NO_DEATHS: DeathsByLimit = {}
CHEAP = [Toll("page", 0, 1, 0.1, of=9, cost_s=0.0001)]
DIED = Deaths([Death(1, "box:7", "unknown", "", 1.0, 1.0, 2.0)], CHEAP)
ENDED = Deaths([Death(1, "box:7", "limit", "", 1.0, 1.0, 2.0)], CHEAP)
WELL_SERVED = ("home overhead p99 4",)
LATE = ("home overhead p99 400", "home overhead p50 100", "home response_time p50 130", "home avoidable_wait share 0")
LATE_LOOP = ("home overhead p99 400", "home overhead p50 1", "home response_time p50 30")
LATE_PAGE = ("page overhead p99 400", "page response_time p50 30")
LATE_PAGES = ("page overhead p90 4000", "page overhead p50 2990", "page response_time p50 3000")
BLOCKED = ("light overhead p99 890", "light overhead p50 1", "light response_time p50 11",
           "light avoidable_wait share 0.4 0.5 0.6", "light avoidable_wait max 890")  # fmt: skip
CROWDED = (Request(service_time_ms=1000, request_class="heavy", worker="box:1"),
           Request(service_time_ms=10, overhead_ms=890, waits_ms=890, sent_s=0.1, worker="box:1"),
           Request(service_time_ms=10, worker="box:2", sent_s=0.2))  # fmt: skip
"""One worker of one thread gets a heavy request and a light one; another worker gets only a light one."""
ONE_OF_EIGHT: dict[str, Any] = {
    "requests": (Request(service_time_ms=3000, request_class="search", worker="box:1"),
                 *[Request(2500, 5, "page", worker="box:1", sent_s=0.1, waits_ms=2500)] * 3),
    "workers": 1, "threads": 8, "of_variant": {"workers": 1, "threads": 8},
}  # fmt: skip
"""Of the eight threads of a worker, one computes while three pages wait."""
PAGES = [Request(service_time_ms=10, request_class="page", worker="box:1", sent_s=0.5 + n / 10) for n in range(20)]
SLOW_PAGE: dict[str, Any] = {"requests": (Request(request_class="page", service_time_ms=50),)}
SLOW_LOOP: dict[str, Any] = {"alone_ms": {"page": 2.0}, "threads": None, **SLOW_PAGE}
TOGETHER: dict[str, Any] = {"alone_ms": {"page": 10.0}, **SLOW_PAGE}
REPLACED = {"workers": 4, "elastic": True,
            "settings": {"workers": 4, "threads": 5, "max_requests": 200, "max_requests_jitter": 10}}  # fmt: skip
STACKS = [
    Stack("loop", "computes", "", "checker.py:31 check_all", "", 6.0),
    Stack("loop", "waits", "chart", "app.py:14 chart", "time.sleep", 3.0),
    Stack("loop", "waits", "chart", "app.py:15 chart", "time.sleep", 0.5),
    Stack("gc", "", "", "app.py:31 close", "gc.collect", 3.0),
    Stack("gc", "", "", "", "", 1.0),
    Stack("", "pool", "page", "app/db.py:12 rows", "sqlalchemy.pool.impl.QueuePool.get", 9.2),
    Stack("", "waits", "page", "app/db.py:14 rows", "time.sleep", 0.8),
    Stack("", "computes", "page", "app/db.py:16 rows", "", 9.0),
    Stack("pool thread", "waits", "", "app.py:10 send_mail", "time.sleep", 40.0),
]
OF_PAGE = [stack for stack in STACKS if not stack.of]
COLLECTS = [Stack("gc", "", "", "app.py:31 close", "gc.collect", 9.0),
            Stack("loop", "waits", "home", "app.py:22 close", "Event.wait", 1.0)]  # fmt: skip
QUERIES = [Stack("", "computes", "home", "views.py:12 books", called, seconds)
           for called, seconds in (("db.Cursor.execute", 5.0), ("db.Row.get", 3.0), ("", 1.5))]  # fmt: skip
POOLS = [Stall("pool", 10.0, 10.0, 0.03, 40), Stall("pool", 2.0, 2.0, 0.01, 40), Stall("executor", 0.1, 0.1, threads=6)]
BLOCKS, COMPUTES = Stall("held", 1.0, 0.1), Stall("computed", 18.0, 0.3)
FULL_POOL = Stall("pool", 9.0, 9.0, 0.04, 40)
Case = tuple[tuple[str, ...], dict[str, Any]]


def case(
    *rows: str, computes_ms: float = 0, stalls: Sequence[Stall] = (), stacks: Sequence[Stack] = (), span_s: float = 0,
    **of: Any,
) -> Case:  # fmt: skip
    """Return rows and what else is known. 40 requests come in a second, and compute for so long each, if this is known.

    Loops were watched for ``span_s``; 0: for 20 s if something was seen, else not at all.
    """
    if computes_ms:
        rows += (f"- processor per_request {computes_ms}", "- throughput per_second 40")
    return rows, {"loops": Loops(stalls, span_s or 20.0 * bool(stalls or stacks), stacks), **of}


def streams(*workers: int) -> list[Request]:
    """Return pages beside a stream of each of these workers."""
    return [*(Request(service_time_ms=5000, request_class="stream", worker=f"box:{worker}", sent_s=0.01 * place)
              for place, worker in enumerate(workers)), *PAGES]  # fmt: skip


def now_and_then(kind: str, called: str) -> Case:
    """Return pages of which one in five takes long, and where."""
    pages = tuple(Request(1, 2 if n % 5 else 900, "page", sent_s=n) for n in range(20))
    stacks = [Stack("", kind, "page", "app.py:13 top", called, 3.0)]
    return case(*WELL_SERVED, computes_ms=5, requests=pages, alone_ms={"page": 2.0}, stacks=stacks, threads=None)


DIAGNOSES: dict[str, Case] = {
    "well": case("home overhead p99 4 5 6", "home response_time p50 30", "home avoidable_wait share 0 0.001"),
    "a shared socket": case(*BLOCKED, requests=CROWDED),
    "sockets of their own": case(*BLOCKED, requests=CROWDED, of_variant={"accept": "per-worker"}),
    "a balancer": case(*BLOCKED, requests=CROWDED, workers=1, replicas=2),
    "one stream": case(*LATE_PAGES, "page avoidable_wait share 0.5", requests=streams(1)),
    "two streams": case(*LATE_PAGES, "page avoidable_wait share 0.5", requests=streams(1, 1)),
    "too few threads": case(*LATE),
    "many classes too few threads": case(*(f"page-{n} overhead p99 {n}00" for n in range(1, 6))),
    "one thread": case(*LATE, of_variant={"workers": 1}),
    "late while workers compute": case(*LATE, computes_ms=50),
    "one process computes": case(*WELL_SERVED, computes_ms=25, of_variant={"workers": 1}),
    "one process computes below a limit": case(*WELL_SERVED, computes_ms=25, cpus=1.5, of_variant={"workers": 1}),
    "two processes compute": case(*WELL_SERVED, computes_ms=40),
    "eight processes compute": case(*WELL_SERVED, computes_ms=40, of_variant={"workers": 8}),
    "a limit of half a core": case(*LATE, computes_ms=12, cpus=0.5),
    "bursts that a limit keeps": case(*LATE, "- throttled share 0.3", computes_ms=6, cpus=1),
    "one process computes little": case(*WELL_SERVED, computes_ms=10, of_variant={"workers": 1}),
    "a line that computes": case(*WELL_SERVED, computes_ms=48, stacks=QUERIES[:1]),
    "an event loop": case(*LATE_LOOP, threads=None),
    "late greenlets": case(*LATE_LOOP, threads=None, server="gunicorn-gevent"),
    "a loop that goes on": case(*LATE_LOOP, threads=None, span_s=20.0),
    "a loop that the collector holds": case(*LATE_LOOP, threads=None, stacks=COLLECTS),
    "a loop that blocks": case(*WELL_SERVED, threads=None, stalls=[BLOCKS, Stall("computed", 0.1, 0.2)]),
    "a loop that computes": case(*WELL_SERVED, threads=None, stalls=[BLOCKS, Stall("computed", 3.0, 0.2)]),
    "the only loop blocks": case(*WELL_SERVED, threads=None, stalls=[BLOCKS], of_variant={"workers": 1}),
    "a rare hold": case(*WELL_SERVED, threads=None, stalls=[Stall("held", 0.5, 0.5)], span_s=40.0),
    "a hub": case(*WELL_SERVED, threads=None, stalls=[Stall("held", 5.0, 5.0)], server="gunicorn-gevent"),
    "slower together": case("page overhead p99 1", computes_ms=5, **TOGETHER),
    "little slower together": case("page overhead p99 1", computes_ms=5, alone_ms={"page": 45.0}, **SLOW_PAGE),
    "who knows how busy": case("page overhead p99 1", **TOGETHER),
    "as much slower as computing": case("page overhead p99 1", computes_ms=25, alone_ms={"page": 20.0}, **SLOW_PAGE),
    "a full pool": case("page overhead p99 1", computes_ms=1, stalls=POOLS, **SLOW_LOOP),
    "a pool full of other work": case(*WELL_SERVED, threads=None, stalls=[
        Stall("pool", 9.0, 9.0, 0.03, 40, at_work=11)]),
    "a pool that is seldom full": case("page overhead p99 1", stalls=POOLS, span_s=1000.0, **SLOW_PAGE),
    "a pool beside the lock": case(*WELL_SERVED, threads=None, span_s=10.0, stalls=[
        Stall("locked", 1.0, 0.3), Stall("pool", 8.0, 8.0, threads=40)]),
    "a busy machine": case("page overhead p99 1", computes_ms=2, busy=0.95, **TOGETHER),
    "computing on a busy machine": case("page overhead p99 1", computes_ms=30, busy=0.95, **TOGETHER),
    "a machine that is not busy": case("page overhead p99 1", computes_ms=2, busy=0.5, **TOGETHER),
    "much output a second": case("page overhead p99 1", "- output per_request 5000", "- processor per_request 0.1",
                                 "- throughput per_second 1000", busy=0.95, **TOGETHER),
    "much output": case("page overhead p99 1", "- output per_request 1e6", computes_ms=2, busy=0.95, **TOGETHER),
    "late on a busy machine": case(*LATE_PAGE, computes_ms=2, busy=0.95, **SLOW_PAGE),
    "late loop of a busy machine": case(*LATE_PAGE, computes_ms=2, busy=0.95, threads=None, **SLOW_PAGE),
    "a line on a busy machine": case(*WELL_SERVED, computes_ms=2, busy=0.95, alone_ms={"page": 10.0}, stacks=[
        *QUERIES, Stack("", "waits", "home", "views.py:9 books", "time.sleep", 0.5)]),
    "workers that are replaced": case("home overhead p99 4000", "- throughput per_second 50", of_variant=REPLACED),
    "a lock that a thread keeps": case(*LATE_PAGES, computes_ms=5, span_s=10.0, **ONE_OF_EIGHT, stacks=[
        Stack("", "computes", "search", "app.py:12 search", "re.match", 2.0)]),
    "waits beside free threads": case(*LATE_PAGES, computes_ms=5, **ONE_OF_EIGHT),
    "a lock now and then": now_and_then("lock", "with lock"),
    "a pool of threads now and then": now_and_then("waits", "concurrent.futures._base.Future.result"),
    "a database now and then": now_and_then("waits", "db.execute"),
    "sleeps now and then": now_and_then("waits", "time.sleep"),
    "streams on a busy machine": case("page overhead p90 4000", "page response_time p50 30", computes_ms=2, busy=0.95,
                                      requests=streams(1, 2)),
    "streams that compute on a busy machine": case(
        "page overhead p90 4000", "page response_time p50 30", "- processor per_request 300",
        "- throughput per_second 2", busy=0.95, requests=streams(1, 2)),
    "waits inside on a busy machine": case("page overhead p99 90", "page overhead p50 1", computes_ms=2, busy=0.95,
                                           **TOGETHER),
    "waits for a busy machine": case("page overhead p99 90", "page overhead p50 30", computes_ms=2, busy=0.95,
                                     **TOGETHER),
    "a loop that explains little": case(*WELL_SERVED, stalls=[Stall("held", 3.0, 0.5, 0.001)], **SLOW_LOOP),
    "a loop on busy processors": case(*WELL_SERVED, computes_ms=48, threads=None, stalls=[COMPUTES]),
    "a hub on busy processors": case(*WELL_SERVED, computes_ms=48, threads=None, stalls=[COMPUTES],
                                     server="gunicorn-gevent"),
    "an executor on busy processors": case(*WELL_SERVED, computes_ms=48, threads=None,
                                           stalls=[Stall("executor", 16.0, 16.0, threads=6)]),
    "lines that hold a loop": case(*WELL_SERVED, stalls=[Stall("held", 5.0, 0.5, 0.04)], stacks=STACKS, **SLOW_LOOP),
    "lines that keep the lock": case(*WELL_SERVED, stalls=[Stall("collected", 4.0, 0.5, 0.04)], stacks=STACKS,
                                     **SLOW_LOOP),
    "a late loop beside the collector": case(*LATE_LOOP, threads=None, stacks=STACKS),
    "a line that calls the collector": case(*WELL_SERVED, threads=None, stacks=STACKS),
    "a line of a pool": case(*WELL_SERVED, stalls=[FULL_POOL], stacks=STACKS[-1:], **SLOW_LOOP),
    "a line of a pool of connections": case(*WELL_SERVED, computes_ms=1, stacks=OF_PAGE, **SLOW_LOOP),
    "a line beside too few threads": case(*LATE_PAGE, "page overhead p50 10",
                                          stacks=OF_PAGE, **SLOW_LOOP | {"threads": 1}),
    "a death that cost little": case(*WELL_SERVED, stalls=[FULL_POOL], **SLOW_LOOP,
                                     deaths={"worker-deaths": DIED}),
    "a worker that is replaced at little cost": case(*WELL_SERVED, stalls=[FULL_POOL], **SLOW_LOOP,
                                                     deaths={"max-requests": ENDED}),
    "requests that are refused": case("admin failures share 1", "home failures share 0.25", errors=[error(404)]),
    "requests beside refused ones": case("admin failures share 1", "home overhead p99 4", errors=[error(418)]),
}  # fmt: skip


def test_each_limit_is_named_with_its_requests_and_what_helps(diagnosed: Diagnose) -> None:
    """No cure is advised that cannot help, and nothing is blamed that was not seen."""
    found = {name: diagnosed(*rows, **of) for name, (rows, of) in DIAGNOSES.items()}

    known: set[str] = set()
    cures = {text: f"[{name}{key and ': '}{key}]." for name, symptom in SYMPTOMS.items()
             for key, text in symptom.cures.items()}  # fmt: skip

    def new(said: str) -> str:  # each sentence stands here once, and each cure by its name
        for text in sorted(cures, key=len, reverse=True):
            said = said.replace(text, cures[text])
        told = re.split(r"(?<=[.?]) (?=[A-Z0-9[])", said)
        shown = " ".join("…" if each in known and not each.startswith("[") else each for each in told)
        known.update(told)
        return shown

    def limits(one: Diagnosis) -> str:
        told = ", ".join(" ".join([each.limit, *each.requests]) for each in one.bottlenecks)
        return told if one.alarm and told else "in doubt" if one.alarm else "nothing"

    told = (f"{name}: {limits(one)}: {new(' '.join(one.sentences))}" for name, one in found.items())
    [replaced] = found["a worker that is replaced at little cost"].minor
    assert replaced.startswith("Their limit of requests ended 1 worker")
    assert listed(told) == snapshot("""\
well: nothing: No request waits for a worker noticeably. How long an answer takes is up to the application.
a shared socket: avoidable-wait light: 50.0% (40.0% to 60.0%) of the light requests waited for a busy worker
    while another worker had a free thread, for up to 0.89 s. While they waited, these requests held the
    threads of their worker: heavy for 100.0% of the time. The cause is [avoidable-wait: shared].
sockets of their own: avoidable-wait light: … … The cause is [avoidable-wait: per-worker].
a balancer: avoidable-wait light: … … The cause is [avoidable-wait].
one stream: avoidable-wait page: 50.0% of the page requests waited for a busy worker while another worker had
    a free thread. …
two streams: avoidable-wait page, threads page: … … Even if all threads took requests from one queue, one in
    ten of the page requests would wait for 4.3 s or more, so 2 requests at a time are too few for this load.
too few threads: threads home: Before their work begins, one in a hundred of the home requests loses 400 ms or
    more: no worker had a free thread meanwhile, so 2 requests at a time are too few for this load.
many classes too few threads: threads page-1 page-2 page-3 page-4 page-5: Before their work begins, one in a
    hundred of the page-5 requests loses 500 ms or more, one in a hundred of the page-4 requests loses 400 ms
    or more, one in a hundred of the page-3 requests loses 300 ms or more, and 2 further classes, too: no
    worker had a free thread meanwhile, so 2 requests at a time are too few for this load.
one thread: threads home: Before their work begins, one in a hundred of the home requests loses 400 ms or
    more: no worker had a free thread meanwhile, so 1 request at a time is too few for this load.
late while workers compute: processors home: Before their work begins, one in a hundred of the home requests
    loses 400 ms or more: the workers were computing meanwhile. The workers used 100.0% of this machine's 2
    processors. [processors].
one process computes: processors: The workers used 100.0% of 1 processor of the 2 of this machine; a process
    can use only one. [processors: few workers].
one process computes below a limit: processors: The workers used 100.0% of 1 processor of the 1.5 of their
    limit (cpus); a process can use only one. [processors: few workers].
two processes compute: processors: The workers used 80.0% of this machine's 2 processors. [processors].
eight processes compute: processors: … [processors].
a limit of half a core: processors home: … The workers used 96.0% of their limit (cpus), which is 0.5.
    [processors: a limit].
bursts that a limit keeps: processors home: … The workers used 24.0% of their limit (cpus), which is 1. The
    limit kept them from computing for 30.0% of the time. [processors: a limit].
one process computes little: nothing: … …
a line that computes: processors: 100% of what long requests and other threads compute is in Cursor.execute
    (views.py:12 books). The workers used 96.0% of this machine's 2 processors. [processors].
an event loop: event-loop home: Before their work begins, one in a hundred of the home requests loses 400 ms
    or more: probably, the event loop of their worker was held up. A function that computes, or that blocks
    instead of awaiting, holds up all requests of its worker.
late greenlets: event-loop home: Before their work begins, one in a hundred of the home requests loses 400 ms
    or more: probably, the hub of their worker was held up. A function that computes, or that blocks instead
    of yielding, holds up all requests of its worker.
a loop that goes on: unknown home: Before their work begins, one in a hundred of the home requests loses 400
    ms or more: the event loop of their worker went on meanwhile, and what held them up is not known.
    [unknown].
a loop that the collector holds: interpreter-lock home: The garbage collector held all threads for 22.5% of
    the time, called in app.py:31 close. After gc.freeze() at the end of the start, it looks at new objects
    only. Before their work begins, one in a hundred of the home requests loses 400 ms or more. Functions that
    compute, C code, and a garbage collector with many objects hold the lock in any thread; [interpreter-lock:
    a processor is free].
a loop that blocks: event-loop: The event loops of the workers were held up for 2.8% of the time, and for up
    to 0.20 s at once. Meanwhile, no other request of the worker went on. [event-loop: event loop blocks].
a loop that computes: event-loop: The event loops of the workers were held up for 10.0% of the time, and for
    up to 0.20 s at once. … [event-loop: event loop computes].
the only loop blocks: event-loop: The event loops of the workers were held up for 5.0% of the time, and for up
    to 0.10 s at once. … [event-loop: event loop blocks]. More workers share the requests among more event
    loops, but the cure is in the application.
a rare hold: nothing: … …
a hub: event-loop: The hubs of the workers were held up for 12.5% of the time, and for up to 5.0 s at once. …
    [event-loop: hub blocks].
slower together: inside page: Under this load, one in two of the page requests is at work for 51.2 ms or more
    (alone: 10.0 ms). The processors are not busy, so these requests wait inside the application: [inside].
little slower together: nothing: … …
who knows how busy: nothing: … …
as much slower as computing: nothing: … …
a full pool: thread-pool page: For 30.0% of the time, all 40 threads of AnyIO's pool in a worker were busy,
    and requests waited for a thread of the pool. FastAPI and Starlette run def end points there. Under this
    load, one in two of the page requests is at work for 51.2 ms or more (alone: 2.0 ms). [pool].
a pool full of other work: thread-pool: For 22.5% of the time, all 40 threads of AnyIO's pool in a worker were
    busy, and requests waited for a thread of the pool. … Meanwhile, only 11 requests were at work in a worker
    on average, so most threads worked on something else, such as background tasks, which run after the
    answer. Take this work out of the pool: into a queue with workers of its own, or into async functions.
    [pool].
a pool that is seldom full: nothing: … …
a pool beside the lock: interpreter-lock, thread-pool: For 5.0% of the time, and for up to 0.30 s at once, the
    event loops of the workers did not go on because other threads of the process kept Python's interpreter
    lock. … For 40.0% of the time, all 40 threads of AnyIO's pool in a worker were busy, and requests waited
    for a thread of the pool. … While threads compute, a larger pool does not help. [pool: computes].
a busy machine: in doubt: In doubt: the machine was 95% busy during the load, but the workers used only 0.08
    of its 2 processors. The other 1.8 went to the load generator, the engine (which also handles what the
    workers write) or other programs, so this run cannot tell whether requests wait inside the application.
    Measure again on a machine that is not busy.
computing on a busy machine: inside page: … …
a machine that is not busy: inside page: … …
much output a second: output: The workers write 5.0 kB a request to their output, 5.0 MB a second. The engine
    reads and stores all of it, which takes processor time, and a worker that writes faster than the engine
    reads waits meanwhile. Log less, and measure again. In doubt: the machine was 95% busy during the load,
    but the workers used only 0.10 of its 2 processors. The other 1.8 went to the load generator, the engine
    (which also handles what the workers write) or other programs. …
much output: output: The workers write 1.0 MB a request to their output, 40.0 MB a second. … … … … …
late on a busy machine: in doubt: … … Before their work begins, one in a hundred of the page requests loses
    400 ms or more: perhaps because the machine was busy. …
late loop of a busy machine: in doubt: … … … …
a line on a busy machine: in doubt: … … 95% of the time of long requests is spent in views.py:12 books, mostly
    Cursor.execute. …
workers that are replaced: threads home: Before their work begins, one in a hundred of the home requests loses
    4.0 s or more: no worker had a free thread meanwhile, because workers were replaced, or 20 requests at a
    time are too few for this load. max_requests replaces each worker after 200 to 210 requests: at the
    measured rate, all 4 workers about every 16.4 s, and at nearly the same moment, because the jitter is only
    10. Waits while workers are replaced are in these numbers.
a lock that a thread keeps: interpreter-lock page: Before their work begins, one in ten of the page requests
    loses 2.5 s or more: their worker had a free thread but other threads of the process kept Python's
    interpreter lock. 100% of what long requests and other threads compute is in re.match (app.py:12 search).
    …
waits beside free threads: unknown page: Before their work begins, one in ten of the page requests loses 2.5 s
    or more: their worker had a free thread meanwhile, and what held them up is not known. [unknown].
a lock now and then: inside page: Under this load, one in ten of the page requests is at work for 901 ms or
    more (alone: 2.0 ms). The processors are not busy, so these requests wait inside the application: [inside:
    lock]. 100% of the waits inside page are in with lock (app.py:13 top).
a pool of threads now and then: inside page: … The processors are not busy, so these requests wait inside the
    application: [inside: result]. 100% of the waits inside page are in Future.result (app.py:13 top).
a database now and then: inside page: … … 100% of the waits inside page are in db.execute (app.py:13 top).
sleeps now and then: nothing: … …
streams on a busy machine: threads page: … … … …
streams that compute on a busy machine: in doubt: In doubt: the machine was 95% busy during the load, but the
    workers used only 0.60 of its 2 processors. The other 1.3 went to the load generator, the engine (which
    also handles what the workers write) or other programs, so this run cannot tell whether requests wait
    inside the application. Before their work begins, one in ten of the page requests loses 4.0 s or more:
    perhaps because the machine was busy. …
waits inside on a busy machine: inside page: … They lack a processor for far less than this, so these requests
    wait inside the application: [inside]. … … Before their work begins, one in a hundred of the page requests
    loses 90.0 ms or more: perhaps because the machine was busy. …
waits for a busy machine: in doubt: … … … …
a loop that explains little: event-loop: The event loops of the workers were held up for 7.5% of the time, and
    for up to 0.50 s at once. … [event-loop: event loop blocks]. This explains 2.0% of the time that requests
    lose; the rest is not explained.
a loop on busy processors: processors, event-loop: … [processors]. The event loops of the workers were held up
    for 45.0% of the time, and for up to 0.30 s at once. … [event-loop: event loop computes]. But the
    processors would be as busy.
a hub on busy processors: processors, event-loop: … [processors]. The hubs of the workers were held up for
    45.0% of the time, and for up to 0.30 s at once. … [event-loop: hub computes]. …
an executor on busy processors: processors, thread-pool: … [processors]. For 40.0% of the time, all 6 threads
    of asyncio's default executor in a worker were busy, and calls of asyncio.to_thread or run_in_executor
    waited for a thread. … [executor: computes].
lines that hold a loop: event-loop, interpreter-lock: The event loops of the workers were held up for 12.5% of
    the time, and for up to 0.50 s at once. … 63% of this time is spent in checker.py:31 check_all, called by
    no request. 32% of this time is spent in time.sleep (app.py:14 chart), called by requests of chart.
    [event-loop: event loop blocks]. The garbage collector held all threads for 10.0% of the time, called in
    app.py:31 close. … …
lines that keep the lock: interpreter-lock: For 10.0% of the time, and for up to 0.50 s at once, the event
    loops of the workers did not go on because other threads of the process kept Python's interpreter lock. …
    … …
a late loop beside the collector: event-loop home, interpreter-lock: … … … … … … …
a line that calls the collector: interpreter-lock: … … …
a line of a pool: thread-pool: … … 100% of the time of its threads is spent in time.sleep (app.py:10
    send_mail). [pool].
a line of a pool of connections: inside page: … The processors are not busy, so these requests wait inside the
    application: [inside: pool]. 92% of the waits inside page are in QueuePool.get (app/db.py:12 rows).
a line beside too few threads: threads page: Before their work begins, one in a hundred of the page requests
    loses 400 ms or more: no worker had a free thread meanwhile, so 2 requests at a time are too few for this
    load. … More threads would wait there, too. This explains 0.0% of the time that requests lose; the rest is
    not explained.
a death that cost little: thread-pool, worker-deaths page: … … [pool]. 1 worker died, 1.0 s after the load
    began. It was no lack of memory and no limit of the server that the lab knows; whether it was an exit or a
    signal, the server does not say. The place of such a worker was empty for 1.0 s. Requests lost with these
    workers: none. Meanwhile, requests waited for a worker: 1 of 9 page requests for up to 0.10 s.
a worker that is replaced at little cost: thread-pool, max-requests page: … … [pool].
requests that are refused: nothing: All admin requests failed (status 404). No time is measured of them. Is
    the path right? 25.0% of the home requests failed (no reason given). Nothing was measured of today's way
    to serve, so nothing else is said.
requests beside refused ones: nothing: All admin requests failed (status 418). … No request of the other
    classes waits for a worker noticeably. …
""")


def test_a_diagnosis_is_kept_with_its_limits(tmp_path: Path) -> None:
    limit = Bottleneck(limit="threads", requests=["home"], numbers={"threads": 4}, sentences=["They are few."])
    assert read_diagnosis(tmp_path) is None
    write_diagnosis(tmp_path, Diagnosis(alarm=True, sentences=["They are few."], bottlenecks=[limit]))
    kept = read_diagnosis(tmp_path)

    assert kept
    assert kept.sentences == ["They are few."]
    assert kept.bottlenecks == [limit.model_copy(update={"sentences": []})]


def loops_of(
    tmp_path: Path, requests: list[Request], *notes: tuple[str, str, int, float, float],
    alone_ms: dict[str, float] | None = None, stacks: Sequence[tuple[str, str, float, float]] = (),
    further: Sequence[str] = (),
) -> Loops:  # fmt: skip
    """Return what the workers noted: what, the worker, threads, for how long, and when, in seconds of the load."""
    run_of(tmp_path, requests, threads=None)
    write_requests(trial := trial_folder(tmp_path / "run", TODAY, "mix", 1), TODAY, "mix", 1)
    (trial / "served-gunicorn-1.csv").write_text("".join(
        f"{what},,{worker},{threads},{seconds},{BEGAN.timestamp() + at_s}\n"
        for what, worker, threads, seconds, at_s in notes
    ) + "".join(
        f"stack,{seen},{worker},,{seconds},{BEGAN.timestamp() + at_s}\n" for seen, worker, seconds, at_s in stacks
    ) + "".join(further))  # fmt: skip
    with opened([trial]) as rows:
        return read_stalls(rows, tmp_path / "run", summary_of(trials=[VALID]), TODAY, alone_ms or {})


def screen_of(run: Run, summary: Summary, found: Diagnosis) -> list[str]:
    lines = screen_lines(run, summary, "report.html", "stampede report --tables", section_of(run, summary, found))
    return [line.plain.strip() for line in lines]


def test_no_sentence_of_a_diagnosis_is_cut_on_the_screen(diagnosed: Diagnose, tmp_path: Path) -> None:
    """The remedy is at the end of the first finding. What does not fit is left out whole."""
    run = run_of(tmp_path, [Request()])
    pool_and_loop = [Stall("held", 3.0, 0.5, 0.02), Stall("pool", 9.0, 9.0, 0.03, 40, at_work=9.0)]
    much = case(*LATE, "- output per_request 1e6", computes_ms=2, busy=0.95, stalls=pool_and_loop, threads=None)
    for rows, of in (*DIAGNOSES.values(), much):
        doubted = Validity(verdict="suspect", reasons=DOUBTED.reasons)
        summary = summary_of(*of_today(*rows), trials=[DOUBTED], validity=doubted)
        found = diagnosed(*rows, **of)

        lines = screen_of(run, summary, found)

        text = " ".join(lines)
        assert len(lines) <= 24
        assert "…" not in text
        assert found.sentences[0] in text
        assert DOUBTED.reasons[0] in text


def test_the_cause_that_explains_most_comes_first_and_a_small_one_is_not_on_the_screen(
    diagnosed: Diagnose, tmp_path: Path
) -> None:
    """The only request loses 48 ms of its 50 ms: 40 ms to the pool, and 2 or 1 ms to the loop."""
    run, held_up = run_of(tmp_path, [Request()]), "event loops of the workers were held up"

    def found(pool_s: float, loop_s: float) -> Diagnosis:
        loops = Loops([Stall("held", 3.0, 0.5, loop_s), Stall("pool", 9.0, 9.0, pool_s, 40)], 20.0)
        return diagnosed(*WELL_SERVED, loops=loops, **SLOW_LOOP)

    pool_first, loop_first, little = found(0.04, 0.003), found(0.003, 0.04), found(0.04, 0.001)

    assert [each.limit for each in pool_first.bottlenecks] == ["thread-pool", "event-loop"]
    assert [each.explains for each in pool_first.bottlenecks] == pytest.approx([0.8, 0.06], rel=0.05)
    assert [held_up in said for said in pool_first.sentences] == [False, True]
    assert [held_up in said for said in loop_first.sentences] == [True, False]
    assert [each.limit for each in little.bottlenecks] == ["thread-pool", "event-loop"]
    [_], [minor] = little.sentences, little.minor
    assert held_up in minor
    summary = summary_of(trials=[VALID])
    assert minor in section_of(run, summary, little).minor
    assert [held_up in " ".join(screen_of(run, summary, one)) for one in (pool_first, little)] == [True, False]


def test_a_hold_explains_what_requests_lost_meanwhile(tmp_path: Path) -> None:
    """Of two requests of 10 ms, one waits 890 ms, 500 ms of them in a hold; the other is held for all 10 ms.

    Alone, one takes 4 ms, so the other lost no more than 6 ms.
    """
    late = Request(service_time_ms=10, overhead_ms=890, waits_ms=890, worker="box:1", sent_s=1)
    requests = [Request(service_time_ms=10, worker="box:1", sent_s=0), late]

    holds = [("held", "box:1", 7, 0.5, 1.6), ("held", "box:1", 7, 0.9, 0.9)]
    loops = loops_of(tmp_path, requests, *holds, alone_ms={"light": 4.0})

    assert [stall.lost_s for stall in loops.stalls] == [pytest.approx(0.506, abs=0.002)]


def test_lines_of_code_are_read_from_the_stacks_of_the_load(tmp_path: Path) -> None:
    """Of two classes with the same route, the larger class stands for both. Other workers and times do not count."""
    requests = [Request(request_class=name, worker="box:1", sent_s=second)
                for second, name in enumerate(["page", "page", "form", "job"])]  # fmt: skip
    stacks = [
        ("waits|/pages/<int:n>|shop.py:12 report → sqlalchemy.pool.impl.QueuePool._do_get", "box:1", 30.0, 1.0),
        ("waits|/pages/<int:n>|shop.py:12 report → sqlalchemy.pool.impl.QueuePool._do_get", "box:1", 10.0, 2.0),
        ("loop computes|(no request)|checker.py:31 check_all", "box:1", 1.0, 2.0),
        ("pool thread lock|(pool)|(library) → with lock", "box:1", 1.0, 2.0),
        ("gc|(all requests)|garbage collector; generation 2", "box:1", 0.5, 2.0),
        ("waits|/job|(library) → asyncio.sleep", "box:1", 0.25, 2.0),
        ("waits|/job|shop.py:1 job", "box:1", 9.0, -1.0),
        ("waits|/job|shop.py:1 job", "box:2", 9.0, 2.0),
    ]
    routes = ("/pages/<int:n>", "/pages/<int:n>", "/pages/<int:n>", "/job")
    ended = [
        f"ended,1-{number},{route},0.1,0.0,{BEGAN.timestamp() + number}\n" for number, route in enumerate(routes, 1)
    ]

    found = loops_of(tmp_path, requests, stacks=stacks, further=ended).stacks

    assert sorted(found) == [
        Stack("", "waits", "job", "", "asyncio.sleep", 0.25),
        Stack("", "waits", "page", "shop.py:12 report", "sqlalchemy.pool.impl.QueuePool._do_get", 40.0),
        Stack("gc", "", "", "", "", 0.5),
        Stack("loop", "computes", "", "checker.py:31 check_all", "", 1.0),
        Stack("pool thread", "lock", "", "", "with lock", 1.0),
    ]


def test_holds_of_loops_are_read_from_the_notes_of_the_load(tmp_path: Path) -> None:
    """Notes of other times, and of workers that served nobody, do not count."""
    requests = [Request(worker="box:1", sent_s=0.5), Request(worker="box:2", sent_s=10.4)]
    found = loops_of(
        tmp_path, requests, ("held", "box:1", 7, 0.9, 1.5), ("held", "box:1", 7, 0.1, 10.4),
        ("held", "box:1", 7, 5.0, -0.5), ("held", "box:3", 7, 5.0, 10.4), ("locked", "box:2", 7, 1.0, 9.4),
        ("locked", "box:2", 7, 1.0, 30.4),
    )  # fmt: skip

    assert [(each.what, *map(pytest.approx, each[1:3])) for each in found.stalls] == [
        ("held", 1, 0.9),
        ("locked", 1, 1),
    ]
    assert found.span_s == pytest.approx(10, abs=0.01)


def test_full_pools_are_read_from_the_notes_of_the_load(tmp_path: Path) -> None:
    """A request that is at work for 1 s, while a pool is full for 1.5 s, half of this time."""
    requests = [
        Request(worker="box:1", sent_s=1), Request(service_time_ms=1000, worker="box:1", sent_s=2.25),
        Request(worker="box:1", sent_s=10),
    ]  # fmt: skip
    found = loops_of(
        tmp_path, requests, ("pool", "box:1", 40, 1.0, 3), ("pool", "box:1", 40, 0.5, 4),
        ("pool", "box:1", 40, 1.0, 13.2), ("executor", "box:1", 6, 1.0, 3),
    )  # fmt: skip

    assert [(pool.what, pool.threads) for pool in found.stalls] == [("executor", 6), ("pool", 40)]
    assert [pool.total_s for pool in found.stalls] == pytest.approx([1.0, 1.5])
    assert [pool.at_work for pool in found.stalls] == pytest.approx([0.75, 0.5], abs=0.01)


@pytest.mark.parametrize(
    ("status", "asks"), [(404, "path"), (401, "token"), (403, "token"), (405, "method"), (500, "its log"),
                         (503, "its log"), (418, "")],
)  # fmt: skip
def test_what_is_asked_of_a_failure_fits_its_status(diagnosed: Diagnose, status: int, asks: str) -> None:
    said = diagnosed("admin failures share 1", errors=[error(status)]).sentences[0]

    assert said.startswith(f"All admin requests failed (status {status}). No time is measured of them")
    assert [word for word in ("path", "token", "method", "its log") if word in said] == ([asks] if asks else [])


def test_requests_that_no_worker_began_are_not_blamed_on_the_application(tmp_path: Path) -> None:
    """The server refuses what is above its limit, and the application fails what it began."""
    run, trial = run_of(tmp_path, []), trial_folder(tmp_path / "run", TODAY, "mix", 1)
    rmtree(trial)
    failed = [Request(request_class=name, error="status 503", status=503) for name in ("page", "admin")]
    now = BEGAN.timestamp()
    own_points(trial, failed, f"began,1-2,box:7,7,,{now}\nended,1-2,,,,{now}\n")
    write_requests(trial, TODAY, "mix", 1)
    summary = summary_of(*of_today("admin failures share 1", "page failures share 1"),
                         errors=[error(503), error(503).model_copy(update={"request_class": "page"})])  # fmt: skip

    with opened([trial]) as rows:
        admin, page, *_ = diagnose(Evidence(summary, run, rows, NO_LOOPS, {})).sentences

    assert "The application failed" in admin
    assert "No worker began these requests" in page


@pytest.mark.parametrize(
    ("jitter", "workers", "says"),
    [(200, 4, "after 200 to 400 requests: at the measured rate, all 4 workers about every 24.0 s."),
     (0, 1, "after 200 requests: at the measured rate, the worker about every 4.0 s.")],
)  # fmt: skip
def test_how_often_workers_are_replaced_stands_beside_the_verdict(jitter: int, workers: int, says: str) -> None:
    settings = {"max_requests": 200, "max_requests_jitter": jitter}

    assert replacement_sentence(settings, 50.0, workers).startswith(f"max_requests replaces each worker {says} Waits ")


def test_a_run_that_is_interrupted_before_its_trial_says_nothing_of_the_service(tmp_path: Path) -> None:
    """Such as while an application starts that never answers."""
    (tmp_path / "run").mkdir()
    load = LoadRecord(name="own", script=USER_SERVICE, duration="20s", settings={"CLASSES": "{}"})
    run = make_run(
        tmp_path / "run", {}, variants=[VariantRecord(name=TODAY, workers=2, settings={})], loads=[load],
        order=[[TODAY, "own", "1"]], outcome="interrupted", reason="SIGINT",
    )  # fmt: skip
    not_measured = TrialValidity(variant=TODAY, load="own", trial=1, verdict="invalid", reasons=["not measured"])

    section.write_section(run, summary_of().model_copy(update={"trials": [not_measured]}))

    diagnosis = read_diagnosis(run)
    assert diagnosis is not None
    assert "Nothing was measured of today's way" in " ".join(diagnosis.sentences)


def test_ways_are_compared_by_response_times_if_requests_wait_at_work() -> None:
    """Waits for a pool of threads are no overhead, because the requests count as at work meanwhile."""
    rows = [
        row(way, "home", metric, "p99", *values)
        for way, metric, values in [
            (TODAY, "overhead", (5, 6, 7)), ("more-workers", "overhead", (5, 6, 7)),
            (TODAY, "response_time", (3000, 3050, 3100)), ("more-workers", "response_time", (20, 25, 30)),
        ]
    ]  # fmt: skip
    found = Diagnosis(alarm=True, sentences=[], bottlenecks=[Bottleneck(limit="thread-pool")])

    assert find_improvement(summary_of(*rows), None, [TODAY, "more-workers"]).best is None
    assert find_improvement(summary_of(*rows), found, [TODAY, "more-workers"]).best == "more-workers"


@pytest.mark.parametrize(("limit", "best"), [((1000, 1001), False), ((5, 6), True)])
def test_the_diagnosis_ends_with_what_to_do(
    diagnosed: Diagnose, limit: tuple[float, ...], best: bool, tmp_path: Path
) -> None:
    load = OfferedLoad([Class("home", Closed(4), [WorkStep(Constant(1.0))])])
    way = next(one for one in serving_options(load) if one.name == "limit-2x2")
    tried = [replace(way, is_today=True), way]
    rows = [
        row(one.name, request_class, "overhead", "p99", *((1000, 1001) if one.name == TODAY else limit))
        for one in tried for request_class in ("home", "report", "stream")
    ]  # fmt: skip
    console = Console(width=80, record=True, file=(tmp_path / "said").open("w"))
    variants = [one.variant.record(one.name) for one in tried]
    several = run_of(tmp_path, [Request()]).model_copy(update={"variants": variants})
    of_home = "home response_time p50 30"
    summary = summary_of(*rows, *of_today(of_home))
    waits = [f"{name} overhead p99 1000 1001" for name in ("home", "report", "stream")]
    diagnosis = diagnosed(*waits, of_home)

    print_tables(console, several, summary, section_of(several, summary, diagnosis))
    print_best_way(console, summary, diagnosis, tried)

    said, told = console.export_text(), "Better than today's, and the best that was tried: limit = threads."
    screen = screen_of(several, summary, diagnosis)
    assert len(screen) <= 24
    assert any(line.startswith("limit = threads ") for line in screen)
    assert max(map(len, said.splitlines())) <= 80
    assert " ".join(said.split()).count("Lost outside the application, in ms") == 2
    for line in (r"^limit = threads +2 x 2 ", r"^way +stream p99$", r"^today +1000 and 1001 "):
        assert re.search(line, said, re.MULTILINE)
    assert "makes no claims" not in said
    assert "(each trial)" in " ".join(said.split())
    assert [told in " ".join(screen), told in said, "worker_connections = 2" in said] == [best] * 3
    assert ("Nothing that was tried is better than today's way to serve." in said) != best
