"""stampede.evaluate.verdict.validity: a failed measurement says so itself."""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from stampede.evaluate.metrics.families import FAMILIES
from stampede.evaluate.read.observation import WRITTEN, Reading
from stampede.evaluate.read.trial_data import ClassTotals, derive_raw_trial
from stampede.evaluate.verdict.validity import judge_run, judge_trial, judge_trials, unapplied
from stampede.pipeline import derive_summary
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.classes import Between, LoadClass
from stampede.records.folder import BadRun, read_run, trial_folder
from stampede.records.run import (
    Calibration,
    ClientRecord,
    ContainerLog,
    Git,
    Host,
    Image,
    LoadRecord,
    MachineRecord,
    RunMachine,
    Seconds,
    VariantRecord,
)
from stampede.records.summary import Validity
from stampede.records.traffic import of_classes
from tests.in_memory import MIX, changed, judged, measure, trial_of
from tests.synthetic import BEGAN, Request, make_run, make_trial, observation, point, run_record, write_points
from tests.wrong import listed

BOTH = {7: 150, 8: 50}
"""What the workers of ``SHARED`` served."""
SHARED = [Request(sent_s=n / 10, worker=f"box:{7 if n % 4 else 8}") for n in range(200)]
Case = tuple[Sequence[Request], dict[str, Any]]
"""The requests of a trial, and what else is known of it."""


def verdicts(*cases: Case, client: Sequence[Request] = ()) -> str:
    """Return the verdicts on trials with their reasons."""
    return listed(verdict_on(requests, change, client) for requests, change in cases)


def verdict_on(requests: Sequence[Request], change: dict[str, Any], client: Sequence[Request] = ()) -> str:
    """Return the verdict on a trial of which something else is known, with its reasons."""
    verdict, reasons = judged(trial_of(requests, client), **change)
    return f"{verdict}: {'; '.join(reasons)}"


def failed(count: int, error: str = "status 502") -> dict[str, Any]:
    """Return the totals of the requests of ``SHARED`` if so many of them had failed."""
    return {"classes": [ClassTotals("light", 200, count, errors={error: count})], "errors": [error]}


def alone(asked_ms: float, *alone_ms: float) -> Calibration:
    """Return a calibration for requests of so many ms, and how long requests alone were at work."""
    return Calibration(cpu="hold", call_us=900, service_time_ms=asked_ms, alone_ms=[*alone_ms])


def readings(*pairs: tuple[float, float]) -> tuple[Reading, ...]:
    """Return readings at seconds after the first request was sent, with the seconds waited until then."""
    return tuple(Reading(at=BEGAN.timestamp() + at, waited_s=waited_s) for at, waited_s in pairs)


def test_a_trial_is_judged_by_its_record_and_its_counts() -> None:
    """Pressure is no doubt where it is what is measured. Requests are at work for 101 ms and a bit.

    Of several generators the one that waited most counts, from when the first request was sent.
    """
    quiet = MachineRecord(name="bench-1", busy_during=0.2, steal_during=0.0, pressure_during=0.01)
    busy = MachineRecord(name="bench-2", busy_during=0.97, steal_during=0.03, pressure_during=0.6)
    talkative = observation(served=BOTH) + f"==> {WRITTEN} <==\n/proc/7/io wchar: 133000000\n"
    changes: dict[str, dict[str, Any]] = {
        "nothing": {},
        **{f"k6 {code}": {"k6_exit_code": code} for code in (107, None, 99)},
        "interrupted": {"outcome": "interrupted", "reason": "interrupted at noon"},
        "failed": {"outcome": "failed", "reason": "nginx said: no"},
        "unread": {"raw": {"problem": "no points"}},
        "busy before": {"busy_before": 0.5},
        "busy": {"busy_during": 0.9},
        "stolen": {"steal_during": 0.03},
        "pressure": {"pressure_during": 0.3},
        "pressure that is measured": {"pressure_during": 0.9, "run": {"sleeping": False}},
        "clock set": {"clock_step_s": -0.5},
        "clock corrected": {"pressure_during": None, "clock_step_s": 0.01},
        "one busy machine": {"machines": [quiet, busy], "busy_before": 0.7},
        "logs cut": {"logs": {"server-1": ContainerLog(kept=1_800_000, cut=True), "nginx-1": ContainerLog(
            kept=99_000, cut=True), "api-1": ContainerLog(kept=5)}, "after": {"server-1": talkative}},
        **{f"{count} failed": {"requests": failed(count)} for count in (2, 3, 200)},
        **{f"{count} dropped": {"raw": {"dropped": count}} for count in (2, 50)},
        **{f"{ms} ms of 100 alone": {"calibration": alone(100, 80, ms, 300)} for ms in (94.9, 104.9, 105.1)},
        "120 ms of 120 alone": {"calibration": alone(120, 120)},
        **{f"k6 waited {name}": {"raw": {"generators": [each]}} for name, each in {
            "0.9 s of 10": readings((1, 0), (11, 0.9)), "1.2 s of 10": readings((1, 0), (11, 1.2)),
            "before the load": readings((-9, 0), (1, 5), (11, 5.5)), "who knows how long": readings((1, 5))}.items()},
        "no readings": {"raw": {"generators": []}},
        "three k6": {"raw": {"generators": [readings((0, 0), (10, waited_s)) for waited_s in (0.5, 3, 0)]}},
    }  # fmt: skip

    assert listed(f"{name} → {verdict_on(SHARED, change)}" for name, change in changes.items()) == snapshot("""\
nothing → valid:
k6 107 → invalid: k6 ended with exit code 107
k6 None → invalid: k6 ended with exit code None
k6 99 → valid: a threshold of the load script was crossed (k6 exit code 99)
interrupted → invalid: interrupted: interrupted at noon
failed → invalid: failed: nginx said: no
unread → invalid: no points
busy before → suspect: the machine was 50% busy before the load began
busy → suspect: the machine was 90% busy during the load
stolen → suspect: other machines of this host took 3.0% of the processor time
pressure → suspect: something waited for a processor during 30% of the load
pressure that is measured → valid:
clock set → invalid: the clock was set by -0.50 s during the load
clock corrected → valid:
one busy machine → suspect: the busiest machine was 70% busy before the load began; bench-2 was 97% busy
    during the load; other machines of this host took 3.0% of the processor time on bench-2; something on
    bench-2 waited for a processor during 60% of the load
logs cut → valid: the beginning of the log of server-1 is missing: the last 1.8 MB of about 133 MB are kept;
    the beginning of the log of nginx-1 is missing: the last 99.0 kB are kept
2 failed → valid: 2 of 200 light requests failed (status 502)
3 failed → suspect: 3 of 200 light requests failed (status 502)
200 failed → invalid: all 200 light requests failed (status 502)
2 dropped → suspect: the load generator dropped 2 iterations, 1.0% of what it should have sent
50 dropped → invalid: the load generator dropped 50 iterations, 20.0% of what it should have sent
94.9 ms of 100 alone → suspect: a request alone was at work for 95 ms where it asked for 100 ms
104.9 ms of 100 alone → valid:
105.1 ms of 100 alone → suspect: a request alone was at work for 105 ms where it asked for 100 ms
120 ms of 120 alone → suspect: a request was at work for only 101 ms where it asked for 120 ms: the
    calibration does not hold under load
k6 waited 0.9 s of 10 → valid:
k6 waited 1.2 s of 10 → suspect: the load generator waited for a processor 0.12 s in every second of the load
k6 waited before the load → valid:
k6 waited who knows how long → valid:
no readings → valid:
three k6 → suspect: the load generator waited for a processor 0.30 s in every second of the load
""")


def test_a_calibration_is_of_the_class_that_computes_for_longest() -> None:
    """A quicker class, or durations that differ, are no sign of a calibration that does not hold."""

    def load(**classes: LoadClass) -> LoadRecord:
        return LoadRecord(name="mix", script="classes.js", duration="9s", settings={}, traffic=of_classes(classes))

    quick, slow = (LoadClass(users=1, takes_s=s, computes=0.5) for s in (0.02, 0.4))
    varied = LoadClass(users=1, takes_s=Between(least=0.1, most=0.9), computes=1)

    assert load(quick=quick, slow=slow).calibrated == "slow"
    assert load(quick=quick, waits=LoadClass(users=1, takes_s=9)).calibrated == "quick"
    assert load(quick=quick, varied=varied).calibrated == ""
    assert load(waits=LoadClass(users=1, takes_s=9)).calibrated is None


def test_a_request_alone_stands_still_while_its_container_has_used_up_its_part() -> None:
    """Half a core makes 100 ms of computing last up to 200 ms, and 5 % more."""
    found = {ms: [alone(100, ms).holds(cpus) for cpus in (0.5, 1, 4)] for ms in (94, 95, 105, 209, 211)}

    assert [ms for ms, (half, *_) in found.items() if half] == [95, 105, 209]
    assert [ms for ms, (_, *whole) in found.items() if all(whole)] == [95, 105]


HOST = Host(cpu="a processor", cores=4, memory_gib=4, kernel="Linux 6.1", engine="Docker 28", compose="2")
NEWER = HOST.model_copy(update={"kernel": "Linux 6.18"})
OTHER = HOST.model_copy(update={"cpu": "another", "engine": "Docker 20"})


def computing(cpu: str, workers: int) -> dict[str, Any]:
    """Return a run of one variant whose requests compute."""
    loads = [MIX.model_copy(update={"settings": {"CPU": cpu}})]
    return {"host": HOST, "loads": loads, "variants": [VariantRecord(name="one", workers=workers, settings={})]}


@pytest.mark.parametrize(
    ("run", "reasons"),
    [
        ({}, []),
        ({"trials": 1},
         ["one trial of each variant: no claim is decided, because another start of the servers may differ"]),
        ({"outcome": "running"}, ["the run did not end: its process was killed, or it is still at work"]),
        ({"git": Git(commit="1" * 40, dirty=True)}, ["the lab's own files had uncommitted changes"]),
        ({"images": [Image(name="grafana/k6:2.1.0", id="sha256:1", stand_in="Go module proxy")]},
         ["stand-in base images were used: grafana/k6:2.1.0 (Go module proxy)"]),
        (computing("hold", 1),
         ["computing was imitated: requests held the interpreter lock without using a core (CPU=hold)"]),
        (computing("burn", 4), ["4 workers computed on 4 cores (CPU=burn): they waited for cores, too"]),
        (computing("burn", 2), []),
        ({"machines": [RunMachine(name=name, role=role, host=host) for name, role, host in
                       (("a", "both", HOST), ("b", "servers", NEWER), ("c", "servers", HOST), ("d", "load", OTHER))]},
         ["the machines for servers differ in their kernel: Linux 6.1 on a, c; Linux 6.18 on b"]),
    ],
)  # fmt: skip
def test_a_run_says_what_to_keep_in_mind(run: dict[str, Any], reasons: list[str]) -> None:
    """A machine for load may be another one."""
    found = judge_run(run_record(["one"], **({"trials": 2} | run)), [], [])

    assert found == Validity(verdict="valid", reasons=reasons, of_run=reasons)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({}, None),
        ({"pressure_during": None},
         "whether something waited for a processor, because the kernel has no pressure information"),
        ({"steal_during": None}, "whether other machines took processor time, because the kernel does not report it"),
        ({"raw": {"generators": [readings((1, 0))]}}, "whether the load generator waited for a processor, because the "
         "kernel does not report it, or the load was too short"),
        ({"after": {"server-1": observation(served=BOTH).replace("/cpu.stat", "/elsewhere")}},
         "whether a limit kept a container from computing, because the kernel does not report it"),
        ({"after": {"nginx-1": observation("proxy", balanced=202).replace("oom_kill 0", "")}},
         "whether a container ran out of memory, because the kernel does not report it"),
    ],
)  # fmt: skip
def test_a_rule_that_could_not_be_applied_is_named(change: dict[str, Any], what: str | None) -> None:
    """Once for the run, with a number only if the rule could be applied to other trials; and the trial stays valid."""
    good = changed(trial_of(SHARED), raw={"generators": [readings((1, 0), (10, 0.001))]})
    trial = changed(good, **change)

    assert judge_trial(trial).verdict == "valid"
    assert [*unapplied([trial, good])] == ([f"not checked in 1 of 2 trials: {what}"] if what else [])
    assert [*unapplied([trial])] == ([f"not checked: {what}"] if what else [])


def variant(accept: str | None = None, workers: int = 2, **settings: Any) -> VariantRecord:
    """Return a variant whose workers do not change."""
    return VariantRecord(name="one", workers=workers, accept=accept, settings=settings)


def elastic(**settings: Any) -> VariantRecord:
    """Return a variant that starts and ends up to four workers as it needs them."""
    return variant(workers=4, **settings).model_copy(update={"elastic": True})


NEW = {**BOTH, 9: 0}
"""What the workers of ``SHARED`` served if worker 9 came later."""
SERVERS: list[tuple[VariantRecord, dict[str, Any], dict[str, Any]]] = [
    (variant("shared"), {}, {}),
    (variant("shared"), {}, {"served": {7: 151, 8: 50}}),
    (variant("shared"), {}, {"served": {7: 151, 8: 49}}),
    (variant("shared"), {}, {"overflows": 2}),
    (variant("shared"), {}, {"throttled_s": 0.9}),
    (variant("shared"), {}, {"throttled_s": 0.1}),
    (variant("shared"), {}, {"sockets": {7: [100]}}),
    (variant("shared"), {}, {"sockets": {7: [100]}, "out_of_memory": 1}),
    (variant("shared"), {}, {"served": {**NEW, 10: 0}}),
    (variant("shared"), {"served": {7: 0}}, {"served": {7: 150}}),
    (variant("shared"), {"sockets": {7: [100], 8: [101]}}, {}),
    (variant("per-worker"), {"sockets": {7: [100], 8: [101]}}, {}),
    (variant("per-worker"), {"sockets": {7: [100], 8: [100]}}, {}),
    (variant("per-worker"), {"sockets": {7: [100, 101], 8: [101]}}, {}),
    (elastic(), {}, {}),
    (elastic(), {}, {"served": NEW}),
    (elastic(), {"served": dict.fromkeys((5, 6, 7, 8), 0)}, {}),
    (elastic(), {"served": {7: 0}}, {"served": {**NEW, 10: 0}, "sockets": {8: [100], 10: [100]}}),
    (elastic(), {"served": {7: 0}}, {"sockets": {8: [100]}, "out_of_memory": 1}),
    (elastic(), {}, {"served": {**NEW, 10: 0, 11: 0}}),
    (elastic(), {"served": dict.fromkeys((1, 2, 3, 7, 8), 0)}, {}),
    (elastic(max_requests=40), {}, {"served": NEW, "sockets": {8: [100], 9: [100]}}),
    (elastic(max_requests=160), {}, {"served": NEW, "sockets": {8: [100], 9: [100]}}),
    (elastic(max_requests=40), {}, {"served": NEW, "sockets": {8: [100], 9: [100]}, "out_of_memory": 1}),
    (elastic(max_requests=40), {}, {"served": {**NEW, 10: 0}, "sockets": {9: [100], 10: [100]}, "overflows": 5}),
    (elastic(hup_after_s=5), {}, {"served": {**NEW, 10: 0}, "sockets": {9: [100], 10: [100]}}),
    (elastic(hup_after_s=5), {}, {"served": NEW, "sockets": {8: [100], 9: [100]}}),
    (elastic(hup_after_s=5), {}, {"served": {**NEW, 10: 0}, "sockets": {10: [100]}}),
    (elastic(term_after_s=5), {}, {"served": {**NEW, 10: 0}, "sockets": {9: [100], 10: [100]}}),
    (elastic(term_after_s=5), {}, {"served": NEW, "sockets": {8: [100], 9: [100]}}),
]


def test_a_trial_is_judged_by_what_its_servers_say() -> None:
    """Workers must share a socket or have one each, and none may come or go unless the variant says so.

    An elastic server may start and end workers up to its number: those that it remembers, and that neither lived before
    nor live after, did both. A worker may end at its limit of requests, or by a signal if it was there before the load.
    """
    assert verdicts(*(
        (SHARED, {
            "variant": of,
            "before": {"server-1": observation(**({"served": {7: 0, 8: 0}} | before))},
            "after": {"server-1": observation(**({"served": BOTH} | after))},
            "seconds": Seconds(load=60),
        })
        for of, before, after in SERVERS
    )) == snapshot("""\
valid:
invalid: the counts disagree: 200 requests were answered by a worker, the balancer served 200, the workers
    201; the counts disagree: 150 answers name worker box:7, which counted 151
invalid: the counts disagree: 150 answers name worker box:7, which counted 151; the counts disagree: 50
    answers name worker box:8, which counted 49
suspect: the listen queue of server-1 was full for 2 connections
suspect: server-1 was kept from computing by its limit for 0.9 s
valid:
invalid: server-1 lost worker 8 during the load
invalid: server-1 lost worker 8 during the load (out of memory)
invalid: server-1 started workers 9, 10 during the load
invalid: the counts disagree: 200 requests were answered by a worker, the balancer served 200, the workers
    150; the counts disagree: 50 answers name worker box:8, which counted 0; 1 workers served where 2 were
    asked for
invalid: the workers of server-1 hold 2 listening sockets, not one socket that all share
valid:
invalid: the workers of server-1 hold 1 listening socket, not a socket of their own each
invalid: the workers of server-1 hold 2 listening sockets, not a socket of their own each
valid:
valid: server-1 started 1 and ended 0 workers during the load
valid: server-1 started 0 and ended 2 workers during the load
valid: server-1 started 3 and ended 2 workers during the load
valid: server-1 started 1 and ended 1 workers during the load (out of memory)
invalid: 5 workers served where at most 4 were asked for; server-1 started 3 and ended 0 workers during the
    load
invalid: 5 workers served where at most 4 were asked for; server-1 started 0 and ended 3 workers during the
    load
valid: server-1 started 1 and ended 1 workers during the load
invalid: server-1: worker 7 ended before its limit of 160 requests; server-1 started 1 and ended 1 workers
    during the load
invalid: server-1: a worker ran out of memory; server-1 started 1 and ended 1 workers during the load (out of
    memory)
valid: server-1 started 2 and ended 2 workers during the load; the listen queue of server-1 was full for 5
    connections
valid: server-1 started 2 and ended 2 workers during the load
invalid: server-1: HUP did not replace worker 8; server-1 started 1 and ended 1 workers during the load
invalid: server-1: worker 9 ended, and not by HUP; server-1 started 2 and ended 3 workers during the load
valid: server-1 started 2 and ended 2 workers during the load
invalid: server-1: SIGTERM did not replace worker 8; server-1 started 1 and ended 1 workers during the load
""")  # fmt: skip


GONE = {"nginx-1": None, "server-1": None}
CRASH = LoadRecord(name="mix", script="mix.js", kind="crash", duration="60s", settings={"CRASH_AFTER_S": "5"})
CRASHED = [*SHARED[:100], Request(request_class="crash", sent_s=10, error="status 502"),
           *[Request(sent_s=10 + n, error="EOF") for n in range(5)]]  # fmt: skip
DIED = observation(served={7: 75, 8: 25, 9: 0}, sockets={7: [100], 9: [100]})
"""What a server says if worker 8 died and worker 9 took its place: what worker 8 counted is remembered."""


def test_a_trial_is_judged_by_what_its_balancer_says_and_by_who_was_not_observed() -> None:
    """Two requests before the load: 202 would be right. Without a balancer, the load generator is compared.

    A worker that a request kills is the finding, and a doubt if the worker was killed before it could count.
    """
    direct, twice = variant(balancer="none"), observation(served={7: 151, 8: 50})
    uncounted, unbalanced = (observation(served={7: 75, 8: count}) for count in (24, 25))
    seen: list[dict[str, Any]] = [
        *({"after": {"nginx-1": observation("proxy", balanced=balanced)}} for balanced in (201, 203)),
        {"before": {"nginx-1": None}},
        {"after": GONE},
        {"variant": direct, "before": {"nginx-1": None}, "after": {"nginx-1": None}},
        {"variant": direct, "before": {"nginx-1": None}, "after": {"nginx-1": None, "server-1": twice}},
        {"variant": direct, "before": GONE, "after": GONE},
    ]
    crashed: list[dict[str, Any]] = [
        {"load": CRASH, "after": {"server-1": DIED}},
        {"load": MIX, "after": {"server-1": DIED}},
        {"load": CRASH, "after": {"server-1": uncounted}},
        {"load": CRASH, "after": {"server-1": unbalanced, "nginx-1": observation("proxy", balanced=101)}},
    ]

    assert verdicts(*((SHARED, change) for change in seen)) == snapshot("""\
invalid: the counts disagree: 200 requests were sent and 200 answered, the balancer served 199
invalid: the counts disagree: 200 requests were sent and 200 answered, the balancer served 201
suspect: the servers were not observed before and after the load: nothing confirms the counts; nginx-1 was not
    observed before the load
suspect: the servers were not observed before and after the load: nothing confirms the counts; nginx-1 was not
    observed after the load; server-1 was not observed after the load
valid:
invalid: the counts disagree: 200 requests were answered by a worker, the workers served 201; the counts
    disagree: 150 answers name worker box:7, which counted 151
suspect: the servers were not observed before and after the load: nothing confirms the counts
""")
    assert verdicts(*((CRASHED, change) for change in crashed)) == snapshot("""\
valid: all 1 crash requests failed (EOF; status 502); 5 of 105 light requests failed (EOF; status 502);
    server-1 lost worker 8 during the load; server-1 started worker 9 during the load
invalid: server-1 lost worker 8 during the load; server-1 started worker 9 during the load; all 1 crash
    requests failed (status 502): their figures are invalid, and the other requests met another load than
    planned; 5 of 105 light requests failed (EOF; status 502)
suspect: the counts disagree: 100 requests were answered by a worker, the balancer served 106, the workers 99;
    the counts disagree: 25 answers name worker box:8, which counted 24; all 1 crash requests failed (EOF;
    status 502); 5 of 105 light requests failed (EOF; status 502)
suspect: the counts disagree: 106 requests were sent and 106 answered, the balancer served 99; all 1 crash
    requests failed (EOF; status 502); 5 of 105 light requests failed (EOF; status 502)
""")


OVERLOAD = MIX.model_copy(update={"overloads": True})
HEAVY = [Request(request_class="heavy", sent_s=n, error="status 502") for n in range(5)]


def test_a_trial_is_judged_by_how_its_load_was_sent_and_answered() -> None:
    """A load generator that lags breaks Little's law: k6's own timings leave out what it waited itself.

    k6 does not time how long it waited for an answer that never came: here 30 s, of which it tells 1 ms. What too much
    load does is the finding: three of 200 fail at the end of a wait, for a full queue and a limit.
    """
    lagging = [Request(sent_s=n / 10, lag_ms=100 if n % 4 == 0 else 0) for n in range(200)]
    broken = Request(sent_s=1, service_time_ms=0.5, overhead_ms=0.5, lag_ms=30000, error="EOF", status=0)
    slow = [*(Request(sent_s=n / 10, error="status 502", lag_ms=60_000) for n in range(3)), *SHARED[3:]]
    full = {"after": {"server-1": observation(served={7: 148, 8: 49}, overflows=5, throttled_s=30)},
            "seconds": Seconds(load=60)}  # fmt: skip
    heavy = [Request(request_class="heavy", error="request timeout"), Request(request_class="heavy", answered=False)]

    assert verdicts(
        (lagging, {}),
        (lagging, {"load": OVERLOAD}),
        ([*SHARED, broken], {}),
        (slow, full),
        (slow, {"load": OVERLOAD, **full}),
        (SHARED, {"load": OVERLOAD, "requests": failed(200)}),
        (SHARED, {"variant": variant(max_requests=0), "requests": failed(3)}),
        (SHARED, {"variant": variant(max_requests=10), "requests": failed(3)}),
        ([*SHARED, *heavy], {}),
        ([], {}),
    ) == snapshot("""\
suspect: Little's law does not hold: 1.26 requests were under way on average, throughput times response time
    is 1.01
suspect: Little's law does not hold: 1.26 requests were under way on average, throughput times response time
    is 1.01
valid: 1 of 201 light requests failed (EOF)
suspect: 3 of 200 light requests failed (status 502); Little's law does not hold: 3.32 requests were under way
    on average, throughput times response time is 0.34; the listen queue of server-1 was full for 5
    connections; server-1 was kept from computing by its limit for 30.0 s
valid: 3 of 200 light requests failed (status 502); the listen queue of server-1 was full for 5 connections;
    server-1 was kept from computing by its limit for 30.0 s
valid: all 200 light requests failed (status 502)
suspect: 3 of 200 light requests failed (status 502)
valid: 3 of 200 light requests failed (status 502)
suspect: all 2 heavy requests failed (no answer before the end of the run; request timeout): their figures are
    invalid, and the other requests met another load than planned
invalid: no request was sent
""")


DIRECT = [Request(request_class="silent", sent_s=n, worker="box:7") for n in range(3)]
REFUSED = [Request(request_class="silent", sent_s=n, error="closed", status=0) for n in range(5)]
WITH_DIRECT = {"after": {"server-1": observation(served={7: 153, 8: 50})}}


def test_a_client_beside_k6_is_counted_by_itself() -> None:
    """What it asks past the balancer is in the workers' counts and not in the balancer's; it is no load generator.

    It asks for no work and has timings of its own, which k6's calibration and Little's law do not bind. A trial in
    which k6 got no answer is invalid although a client got one.
    """
    client = ClientRecord(script="silent.py", settings={}, through_balancer=True)
    through = trial_of(SHARED, DIRECT, MIX.model_copy(update={"client": client}))
    halves = [replace(one, generator=1 + n % 2) for n, one in enumerate(SHARED)]
    shared = [{"load": MIX.model_copy(update={"generators": count}), **WITH_DIRECT} for count in (2, 3)]
    patient = [replace(one, service_time_ms=0.1, overhead_ms=0.1, lag_ms=40_000) for one in DIRECT]
    nothing = [*(replace(one, error="status 502") for one in SHARED), *HEAVY]

    assert judged(through, **WITH_DIRECT)[1][0] == (
        "the counts disagree: 203 requests were sent and 203 answered, the balancer served 200"
    )
    assert judge_trial(trial_of(nothing, DIRECT)).classes == {}
    assert judged(trial_of(SHARED, patient), calibration=alone(100, 100), **WITH_DIRECT) == ("valid", [])
    assert verdicts(
        (SHARED, WITH_DIRECT), (SHARED, {}), *((halves, load) for load in shared), (nothing, WITH_DIRECT), ([], {}),
        client=DIRECT,
    ) == snapshot("""\
valid:
invalid: the counts disagree: 203 requests were answered by a worker, the balancer served 200, the workers
    200; the counts disagree: 153 answers name worker box:7, which counted 150
valid:
invalid: the points of 2 of 3 load generators are there
invalid: all 5 heavy requests failed (status 502); all 200 light requests failed (status 502); server-1 lost
    worker 99 during the load; server-1 started worker 8 during the load
invalid: no request was sent
""")  # fmt: skip


def test_what_a_client_that_misbehaves_suffers_is_a_finding(tmp_path: Path) -> None:
    """The users' requests are the question, and a server that refuses silent clients may give the right answer."""
    quick = Quantity(variant="always", request_class="light", metric="overhead", stat="p50")
    requests = dict.fromkeys(("always", "sometimes"), SHARED)
    run = make_run(tmp_path, requests, times=2, claims=[Claim(says="Nobody waits", value=quick, at_most=100)])
    for variant, number in ((variant, number) for variant in requests for number in (1, 2)):
        folder = trial_folder(run, variant, "mix", number)
        write_points(folder / "points-client.json.gz", REFUSED + (DIRECT if variant == "sometimes" else []))
        (folder / "server-1.after.txt").write_text(
            observation(served={7: 153 if variant == "sometimes" else 150, 8: 50})
        )
    summary = derive_summary(run)

    assert {one.verdict for one in summary.trials} == {"valid"}
    assert [one.reasons for one in summary.trials if one.trial == 1] == [
        ["all 5 silent requests failed (closed)"],
        ["5 of 8 silent requests failed (closed)"],
    ]
    assert [(one.verdict, one.suspect) for one in summary.claims] == [("reproduced", False)]
    shares = {row.measured for row in summary.rows if (row.request_class, row.metric) == ("silent", "failures")}
    assert shares >= {1, 5 / 8}
    assert [(one.request_class, one.error, one.requests) for one in summary.errors][:1] == [("silent", "closed", 5)]


def test_a_class_that_failed_as_a_whole_spoils_only_itself(tmp_path: Path) -> None:
    """The other classes met another load than planned, so they are suspect; their numbers are there.

    A variant of which the class failed in one trial only has the numbers of the other trial.
    """
    quick = Quantity(variant="one", request_class="light", metric="overhead", stat="p50")
    claims = [
        Claim(says="Nobody waits", value=quick, at_most=100),
        Claim(says="Heavy requests are slow", value=quick.model_copy(update={"request_class": "heavy"}), at_least=100),
        Claim(says="No heavy request fails", value=Quantity(
            variant="one", request_class="heavy", metric="failures", stat="share"), at_most=0),
    ]  # fmt: skip
    published = [Published(variant="one", request_class="heavy", metric="overhead", stats={"p50": 9})]
    failing = [*SHARED, *HEAVY]
    run = make_run(tmp_path, {"one": failing, "two": failing}, claims=claims, published=published, times=2)
    make_trial(run, "two", 1, [*SHARED, *(replace(one, error=None) for one in HEAVY)])
    summary = derive_summary(run)

    why = "all 5 heavy requests failed (status 502)"
    assert [one.verdict for one in summary.trials] == ["suspect", "suspect", "valid", "suspect"]
    assert summary.trials[0].classes == {"heavy": why}
    assert summary.trials[0].reasons[0].startswith(f"{why}: their figures are invalid")
    light, *heavy = summary.claims
    assert (light.verdict, light.suspect) == ("reproduced", True)
    assert [(one.verdict, one.measured, one.reason) for one in heavy] == [("invalid", None, f"one: {why}")] * 2
    assert [(one.verdict, one.reason.partition(";")[0]) for one in summary.published if one.reason] == [
        ("invalid", f"one: {why}")
    ]
    p50s = [row for row in summary.rows if (row.metric, row.stat) == ("overhead", "p50")]
    measured = {(row.variant, row.request_class): [*row.values] for row in p50s}
    assert measured["one", "light"] == measured["two", "light"] == [1, 2]
    assert (measured["one", "heavy"], measured["two", "heavy"]) == ([], [1])
    assert json.loads((run / "summary.json").read_text())["trials"][0]["classes"] == {"heavy": why}


@pytest.mark.parametrize(
    ("bound", "of", "verdict"),
    [
        ("at_least", {}, "valid"),
        ("at_most", {}, "invalid"),
        ("at_least", {"request_class": "heavy"}, "invalid"),
        ("at_least", {"variant": "two"}, "invalid"),
        ("at_least", {"load": "mix", "request_class": "light"}, "valid"),
    ],
)
def test_failures_that_a_claim_speaks_of_are_no_reason_to_doubt(bound: str, of: dict[str, str], verdict: str) -> None:
    value = Quantity.model_validate({"variant": "one", "metric": "failures", "stat": "share"} | of)
    claims = [Claim.model_validate({"says": "They fail", "value": value, bound: 0.5})]

    assert judged(trial_of(SHARED), run={"claims": claims}, requests=failed(200))[0] == verdict


def test_what_is_in_the_files_of_a_trial_is_judged(tmp_path: Path) -> None:
    """Iterations that were dropped, and then an observation that cannot be read."""
    folder = make_trial(tmp_path, "one", 1, SHARED)
    with gzip.open(folder / "points.json.gz", "at") as points:
        points.writelines([json.dumps(point("dropped_iterations", BEGAN, 1, "light", {})) + "\n"] * 50)
    for name, waited in (("k6-processor", 3), ("k6-processor-2", 0.5)):
        lines = [f"{BEGAN.timestamp() + at:.0f} {waited * at * 1e8:.0f}\n" for at in (0, 10)]
        (folder / f"{name}.txt").write_text("".join(lines))
    found = derive_raw_trial(tmp_path, folder, {})
    assert (found.dropped, found.generators) == (50, (readings((0, 0), (10, 0.5)), readings((0, 0), (10, 3))))

    (folder / "server-1.after.txt").write_text("==> /etc/hostname <==\n")
    unreadable = derive_raw_trial(tmp_path, folder, {}).problem
    assert (unreadable or "").startswith("one/mix/1/server-1.after.txt is not an observation: ")


def test_of_an_elastic_server_nobody_knows_who_was_idle_or_free() -> None:
    """Two workers serve 150 and 50 requests; two more would be zeros if they were known to be there."""
    found = measure(SHARED, *FAMILIES, variant=elastic(server="fastcgi", threads=1))

    assert found[None, "requests_by_worker", "max_over_mean"] == 1.5
    assert (None, "avoidable_wait", "count") not in found


def test_a_run_has_the_reasons_of_its_trials_and_of_what_left_nothing() -> None:
    """A note on a suspect trial is no reason for its doubt. A planned trial that left nothing is invalid."""
    order = [["one", "mix", "1"], ["two", "mix", "1"]]
    trial = changed(
        trial_of(SHARED, REFUSED), busy_before=0.6, run={"trials": 5, "order": order, "outcome": "interrupted"}
    )

    found = judge_run(trial.run, judge_trials(trial.run, [trial]), [])

    assert (found.verdict, found.reasons) == ("invalid", [
        "one (trial 1): suspect: the machine was 60% busy before the load began",
        "one (trial 1): all 5 silent requests failed (closed)",
        "two (trial 1): invalid: not measured: the run was interrupted before",
    ])  # fmt: skip
    assert found.notes == found.reasons[1:2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "{folder} has no run.json"),
        ("{", "{folder}/run.json cannot be read: not valid JSON: expecting property name"),
        ("\ud800", "{folder}/run.json cannot be read: it is not UTF-8"),
        pytest.param('{"a":' * 10**5, "{folder}/run.json cannot be read: it is nested too deeply", id="nested"),
        ("[]", "{folder}/run.json has schema None; this version reads schema 2"),
        *((f'{{"schema": {schema}}}', f"{{folder}}/run.json has schema {schema}; this version reads schema 2")
          for schema in (0, 1, 3)),
        ('{"schema": 2}', "{folder}/run.json: experiment: missing key; it must be text"),
    ],
)  # fmt: skip
def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content, errors="surrogatepass")

    with pytest.raises(BadRun, match="^" + re.escape(message.format(folder=tmp_path))):
        read_run(tmp_path)


def test_a_trial_that_the_run_does_not_know_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": [Request()]})
    make_trial(tmp_path, "other", 1, [Request()])

    with pytest.raises(BadRun, match=r"/other/mix/1/trial.json is of other under mix, which run.json does not know$"):
        derive_summary(tmp_path)
