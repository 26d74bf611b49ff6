"""stampede.evaluate.verdict.validity: a failed measurement says so itself."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from stampede.evaluate.read.observation import Reading
from stampede.evaluate.read.trial_data import ClassTotals, derive_raw_trial
from stampede.evaluate.verdict.validity import judge_run, judge_trial, judge_trials, unapplied
from stampede.pipeline import derive_summary
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.classes import Between, LoadClass
from stampede.records.folder import BadRun, read_run, trial_folder
from stampede.records.run import (
    Calibration,
    ClientRecord,
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
from tests.in_memory import MIX, changed, judged, trial_of
from tests.synthetic import BEGAN, Request, make_run, make_trial, observation, point, run_record, write_points
from tests.wrong import listed

BOTH = {7: 150, 8: 50}
"""What the workers of ``SHARED`` served."""
SHARED = [Request(sent_s=n / 10, worker=f"box:{7 if n % 4 else 8}") for n in range(200)]


def failed(count: int, error: str = "status 502") -> dict[str, Any]:
    """Return the totals of the requests of ``SHARED`` if so many of them had failed."""
    return {"classes": [ClassTotals("light", 200, count, errors={error: count})], "errors": [error]}


@pytest.mark.parametrize(
    ("record", "verdict", "reason"),
    [
        ({}, "valid", None),
        ({"k6_exit_code": 107}, "invalid", "k6 ended with exit code 107"),
        ({"k6_exit_code": None}, "invalid", "k6 ended with exit code None"),
        ({"k6_exit_code": 99}, "valid", "a threshold of the load script was crossed (k6 exit code 99)"),
        ({"outcome": "interrupted", "reason": "interrupted at noon"}, "invalid", "interrupted: interrupted at noon"),
        ({"outcome": "failed", "reason": "nginx said: no"}, "invalid", "failed: nginx said: no"),
        ({"raw": {"problem": "no points"}}, "invalid", "no points"),
        ({"busy_before": 0.5}, "suspect", "the machine was 50% busy before the load began"),
        ({"busy_during": 0.9}, "suspect", "the machine was 90% busy during the load"),
        ({"steal_during": 0.03}, "suspect", "other machines of this host took 3.0% of the processor time"),
        ({"pressure_during": 0.3}, "suspect", "something waited for a processor during 30% of the load"),
        ({"pressure_during": 0.9, "run": {"sleeping": False}}, "valid", None),  # that is what is measured
        ({"clock_step_s": -0.5}, "invalid", "the clock was set by -0.50 s during the load"),
        ({"pressure_during": None, "clock_step_s": 0.01}, "valid", None),
        ({"requests": failed(2)}, "valid", "2 of 200 light requests failed (status 502)"),
        ({"requests": failed(3)}, "suspect", "3 of 200 light requests failed (status 502)"),
        ({"requests": failed(200)}, "invalid", "all 200 light requests failed (status 502)"),
        ({"raw": {"dropped": 2}}, "suspect",
         "the load generator dropped 2 iterations, 1.0% of what it should have sent"),
        ({"raw": {"dropped": 50}}, "invalid",
         "the load generator dropped 50 iterations, 20.0% of what it should have sent"),
    ],
)  # fmt: skip
def test_a_trial_is_judged_by_its_record_and_its_counts(
    record: dict[str, Any], verdict: str, reason: str | None
) -> None:
    assert judged(trial_of(SHARED), **record) == (verdict, [reason] if reason else [])


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


@pytest.mark.parametrize(
    ("asked_ms", "alone_ms", "reasons"),
    [
        (100, [99.0, 104.9, 300.0], []),
        (100, [99.0, 105.1, 106.0], ["a request alone was at work for 105 ms where it asked for 100 ms"]),
        (100, [80.0, 94.9, 300.0], ["a request alone was at work for 95 ms where it asked for 100 ms"]),
        (120, [120.0], ["a request was at work for only 101 ms where it asked for 120 ms: the calibration does not "
                        "hold under load"]),
    ],
)  # fmt: skip
def test_requests_that_are_not_as_long_as_they_ask_for_are_a_doubt(
    asked_ms: float, alone_ms: list[float], reasons: list[str]
) -> None:
    """Requests are at work for 101 ms and a bit."""
    calibration = Calibration(cpu="hold", call_us=900, service_time_ms=asked_ms, alone_ms=alone_ms)

    assert judged(trial_of(SHARED), calibration=calibration) == ("suspect" if reasons else "valid", reasons)


@pytest.mark.parametrize(("alone_ms", "holds"), [([95.0], True), ([209.0], True), ([94.0], False), ([211.0], False)])
def test_a_request_alone_stands_still_while_its_container_has_used_up_its_part(
    alone_ms: list[float], holds: bool
) -> None:
    """Half a core makes 100 ms of computing last up to 200 ms."""
    calibration = Calibration(cpu="burn", call_us=900, service_time_ms=100, alone_ms=alone_ms)

    assert calibration.holds(0.5) == holds
    assert calibration.holds(4) == calibration.holds()


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


def test_of_several_machines_the_busy_one_is_named() -> None:
    quiet = MachineRecord(
        name="bench-1", hosts=["box"], generators=["points"], busy_during=0.2, steal_during=0.0, pressure_during=0.01
    )
    busy = MachineRecord(name="bench-2", busy_during=0.97, steal_during=0.03, pressure_during=0.6)

    assert judged(trial_of(SHARED), machines=[quiet, busy], busy_before=0.7) == (
        "suspect",
        [
            "the busiest machine was 70% busy before the load began",
            "bench-2 was 97% busy during the load",
            "other machines of this host took 3.0% of the processor time on bench-2",
            "something on bench-2 waited for a processor during 60% of the load",
        ],
    )


def readings(*pairs: tuple[float, float]) -> tuple[Reading, ...]:
    """Return readings at seconds after the first request was sent, with the seconds waited until then."""
    return tuple(Reading(at=BEGAN.timestamp() + at, waited_s=waited_s) for at, waited_s in pairs)


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
    assert listed(
        verdict_in_words(
            variant=of,
            before={"server-1": observation(**({"served": {7: 0, 8: 0}} | before))},
            after={"server-1": observation(**({"served": BOTH} | after))},
            seconds=Seconds(load=60),
        )
        for of, before, after in SERVERS
    ) == snapshot("""\
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
""")


def verdict_in_words(requests: list[Request] = SHARED, **change: Any) -> str:
    """Return the verdict on a trial of which something else is known, with the reasons."""
    verdict, reasons = judged(trial_of(requests), **change)
    return f"{verdict}: {'; '.join(reasons)}"


GONE = {"nginx-1": None, "server-1": None}
TWICE = observation(served={7: 151, 8: 50})


def test_a_trial_is_judged_by_what_its_balancer_says_and_by_who_was_not_observed() -> None:
    """Two requests before the load: 202 would be right. Without a balancer, the load generator is compared."""
    direct = variant(balancer="none")
    changes: list[dict[str, Any]] = [
        *({"after": {"nginx-1": observation("proxy", balanced=balanced)}} for balanced in (201, 203)),
        {"after": GONE},
        {"variant": direct, "before": {"nginx-1": None}, "after": {"nginx-1": None}},
        {"variant": direct, "before": {"nginx-1": None}, "after": {"nginx-1": None, "server-1": TWICE}},
        {"variant": direct, "before": GONE, "after": GONE},
    ]

    assert listed(verdict_in_words(**change) for change in changes) == snapshot("""\
invalid: the counts disagree: 200 requests were sent and 200 answered, the balancer served 199
invalid: the counts disagree: 200 requests were sent and 200 answered, the balancer served 201
suspect: the servers were not observed before and after the load: nothing confirms the counts; nginx-1 was not
    observed after the load; server-1 was not observed after the load
valid:
invalid: the counts disagree: 200 requests were answered by a worker, the workers served 201; the counts
    disagree: 150 answers name worker box:7, which counted 151
suspect: the servers were not observed before and after the load: nothing confirms the counts
""")


CRASH = LoadRecord(name="mix", script="mix.js", kind="crash", duration="60s", settings={"CRASH_AFTER_S": "5"})
CRASHED = [*SHARED[:100], Request(request_class="crash", sent_s=10, error="status 502"),
           *[Request(sent_s=10 + n, error="EOF") for n in range(5)]]  # fmt: skip


DIED = observation(served={7: 75, 8: 25, 9: 0}, sockets={7: [100], 9: [100]})
"""What a server says if worker 8 died and worker 9 took its place: what worker 8 counted is remembered."""


def test_a_worker_that_a_request_kills_is_the_finding() -> None:
    """It is a doubt if the worker was killed before it could count."""
    uncounted, unbalanced = (observation(served={7: 75, 8: count}) for count in (24, 25))
    changes: list[dict[str, Any]] = [
        {"load": CRASH, "after": {"server-1": DIED}},
        {"load": MIX, "after": {"server-1": DIED}},
        {"load": CRASH, "after": {"server-1": uncounted}},
        {"load": CRASH, "after": {"server-1": unbalanced, "nginx-1": observation("proxy", balanced=101)}},
    ]

    assert listed(verdict_in_words(CRASHED, **change) for change in changes) == snapshot("""\
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


def test_a_connection_that_broke_says_nothing_of_littles_law() -> None:
    """k6 does not time how long it waited for an answer that never came: here 30 s, of which it tells 1 ms."""
    broken = Request(sent_s=1, service_time_ms=0.5, overhead_ms=0.5, lag_ms=30000, error="EOF", status=0)

    assert judged(trial_of([*SHARED, broken])) == ("valid", ["1 of 201 light requests failed (EOF)"])


OVERLOAD = MIX.model_copy(update={"overloads": True})


@pytest.mark.parametrize("load", [MIX, OVERLOAD], ids=["peace", "overload"])
def test_a_load_generator_that_lags_breaks_littles_law(load: LoadRecord) -> None:
    """One request in four is under way for twice as long as k6's own timings say: 0.125 s on average, not 0.1."""
    lagging = [Request(sent_s=n / 10, lag_ms=100 if n % 4 == 0 else 0) for n in range(200)]

    assert judged(trial_of(lagging), load=load) == (
        "suspect",
        ["Little's law does not hold: 1.26 requests were under way on average, throughput times response time is 1.01"],
    )


@pytest.mark.parametrize(("load", "verdict"), [(OVERLOAD, "valid"), (MIX, "suspect")], ids=["overload", "peace"])
def test_what_too_much_load_does_is_the_finding(load: LoadRecord, verdict: str) -> None:
    """Three of two hundred fail, at the end of a wait that k6 does not time, for a full queue and a limit."""
    slow = [Request(sent_s=n / 10, error="status 502", lag_ms=60_000) for n in range(3)]
    after = observation(served={7: BOTH[7] - 2, 8: BOTH[8] - 1}, overflows=5, throttled_s=30)

    found, reasons = judged(trial_of(slow + SHARED[3:]), load=load, after={"server-1": after}, seconds=Seconds(load=60))

    little = [reason for reason in reasons if reason.startswith("Little's law")]
    assert len(little) == (load == MIX)
    assert (found, [reason for reason in reasons if reason not in little]) == (
        verdict,
        [
            "3 of 200 light requests failed (status 502)",
            "the listen queue of server-1 was full for 5 connections",
            "server-1 was kept from computing by its limit for 30.0 s",
        ],
    )
    everything = "all 200 light requests failed (status 502)"
    assert judged(trial_of(SHARED), load=OVERLOAD, requests=failed(200)) == ("valid", [everything])


DIRECT = [Request(request_class="silent", sent_s=n, worker="box:7") for n in range(3)]
REFUSED = [Request(request_class="silent", sent_s=n, error="closed", status=0) for n in range(5)]
WITH_DIRECT = {"after": {"server-1": observation(served={7: 153, 8: 50})}}


def test_requests_past_the_balancer_are_the_servers_alone() -> None:
    """What a client asks past the balancer is in the workers' counts and not in the balancer's."""
    assert judged(trial_of(SHARED, DIRECT), **WITH_DIRECT) == ("valid", [])
    assert judged(trial_of(SHARED, DIRECT))[1] == [
        "the counts disagree: 203 requests were answered by a worker, the balancer served 200, the workers 200",
        "the counts disagree: 153 answers name worker box:7, which counted 150",
    ]
    client = ClientRecord(script="silent.py", settings={}, through_balancer=True)
    through = trial_of(SHARED, DIRECT, MIX.model_copy(update={"client": client}))
    said = "the counts disagree: 203 requests were sent and 203 answered, the balancer served 200"
    assert judged(through, **WITH_DIRECT)[1][0] == said


def test_the_timings_of_a_client_are_no_doubt_about_k6() -> None:
    """A client asks for no work and has timings of its own, which k6's calibration and Little's law do not bind."""
    client = [replace(one, service_time_ms=0.1, overhead_ms=0.1, lag_ms=40_000) for one in DIRECT]
    alone = Calibration(cpu="burn", call_us=None, service_time_ms=100, alone_ms=[100, 100, 100])

    assert judged(trial_of(SHARED, client), calibration=alone, **WITH_DIRECT)[1] == []


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


def test_a_note_on_a_suspect_trial_is_no_reason_for_its_doubt() -> None:
    trial = changed(trial_of(SHARED, REFUSED), busy_before=0.6)

    found = judge_run(trial.run.model_copy(update={"trials": 5}), [judge_trial(trial)], [])

    assert found.verdict == "suspect"
    assert found.reasons[:2] == [
        "one (trial 1): suspect: the machine was 60% busy before the load began",
        "one (trial 1): all 5 silent requests failed (closed)",
    ]
    assert found.notes == found.reasons[1:2]


HEAVY = [Request(request_class="heavy", sent_s=n, error="status 502") for n in range(5)]


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


def test_a_trial_in_which_k6_got_no_answer_is_invalid_although_a_client_got_one() -> None:
    found = judge_trial(trial_of([*(replace(one, error="status 502") for one in SHARED), *HEAVY], DIRECT))

    assert found.verdict == "invalid"
    assert "all 5 heavy requests failed (status 502)" in found.reasons
    assert found.classes == {}
    assert judged(trial_of([], DIRECT))[1][0] == "no request was sent"
    assert judged(trial_of([])) == ("invalid", ["no request was sent"])


def test_few_requests_that_all_fail_do_not_vanish_among_many_that_do_not() -> None:
    requests = [
        *SHARED,
        Request(request_class="heavy", error="request timeout"),
        Request(request_class="heavy", answered=False),
    ]

    verdict, [reason] = judged(trial_of(requests))

    assert verdict == "suspect"
    assert reason.startswith("all 2 heavy requests failed (")
    assert reason.endswith("): their figures are invalid, and the other requests met another load than planned")


@pytest.mark.parametrize(
    ("claimed", "verdict"),
    [
        ({"at_least": 0.5}, "valid"),
        ({"at_most": 0.5}, "invalid"),
        ({"at_least": 0.5, "request_class": "heavy"}, "invalid"),
        ({"at_least": 0.5, "variant": "two"}, "invalid"),
        ({"at_least": 0.5, "load": "mix", "request_class": "light"}, "valid"),
    ],
)
def test_failures_that_a_claim_speaks_of_are_no_reason_to_doubt(claimed: dict[str, Any], verdict: str) -> None:
    bounds = {key: claimed[key] for key in ("at_least", "at_most") if key in claimed}
    of = {key: value for key, value in claimed.items() if key not in bounds}
    value = Quantity(**({"variant": "one", "metric": "failures", "stat": "share"} | of))
    claims = [Claim(says="They fail", value=value, **bounds)]

    assert judged(trial_of(SHARED), run={"claims": claims}, requests=failed(200, "request timeout")) == (
        verdict,
        ["all 200 light requests failed (request timeout)"],
    )


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


@pytest.mark.parametrize(
    ("generators", "waited_s"),
    [
        ([readings((1, 0), (11, 0.9))], None),
        ([readings((1, 0), (11, 1.2))], 0.12),
        ([readings((-9, 0), (1, 5), (11, 5.5))], None),  # before the load
        ([readings((1, 5))], None),
        ([], None),
        ([readings((0, 0), (10, waited_s)) for waited_s in (0.5, 3, 0)], 0.3),  # the one that waited most counts
    ],
)
def test_a_load_generator_that_waited_for_a_processor_is_doubted(
    generators: list[tuple[Reading, ...]], waited_s: float | None
) -> None:
    reason = f"the load generator waited for a processor {waited_s or 0:.2f} s in every second of the load"

    assert judged(trial_of(SHARED), raw={"generators": generators})[1] == ([reason] if waited_s else [])


def test_a_load_whose_generators_are_not_all_there_is_invalid() -> None:
    """What a client beside them sent is no generator's."""
    trial = trial_of([replace(one, generator=1 + n % 2) for n, one in enumerate(SHARED)], DIRECT)
    two, three = (MIX.model_copy(update={"generators": count}) for count in (2, 3))

    assert judged(trial, load=two, **WITH_DIRECT) == ("valid", [])
    missing = ["the points of 2 of 3 load generators are there"]
    assert judged(trial, load=three, **WITH_DIRECT) == ("invalid", missing)


def test_requests_that_are_lost_while_workers_are_replaced_are_a_finding() -> None:
    reason = "3 of 200 light requests failed (status 502)"

    for limit, verdict in ((0, "suspect"), (10, "valid")):
        replaced = variant(max_requests=limit)
        assert judged(trial_of(SHARED), variant=replaced, requests=failed(3)) == (verdict, [reason])


def test_of_an_elastic_server_nobody_knows_who_was_idle_or_free(tmp_path: Path) -> None:
    """Two workers serve 150 and 50 requests; two more would be zeros if they were known to be there."""
    make_run(tmp_path, {"one": SHARED}, variants=[elastic(server="fastcgi", threads=1)])

    summary = derive_summary(tmp_path)

    assert [row.requests for row in summary.workers if row.request_class is None] == [50, 150]
    rows = {(row.metric, row.stat): row.measured for row in summary.rows if row.request_class is None}

    assert rows["requests_by_worker", "max_over_mean"] == 1.5
    assert ("avoidable_wait", "count") not in rows


def test_a_planned_trial_that_left_nothing_is_invalid() -> None:
    trial = changed(
        trial_of(SHARED), run={"order": [["one", "mix", "1"], ["two", "mix", "1"]], "outcome": "interrupted"}
    )

    found = judge_run(trial.run, judge_trials(trial.run, [trial]), [])

    assert found.verdict == "invalid"
    assert found.reasons[0] == "two: invalid: not measured: the run was interrupted before"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "{folder} has no run.json"),
        ("{", "{folder}/run.json cannot be read: not valid JSON: expecting property name"),
        ("\ud800", "{folder}/run.json cannot be read: it is not UTF-8"),
        pytest.param('{"a":' * 10**5, "{folder}/run.json cannot be read: it is nested too deeply", id="nested"),
        ("[]", "{folder}/run.json has schema None; this version reads schema 2"),
        *(
            (f'{{"schema": {schema}}}', f"{{folder}}/run.json has schema {schema}; this version reads schema 2")
            for schema in (0, 1, 3)
        ),
        ('{"schema": 2}', "{folder}/run.json: experiment: missing key; it must be text"),
    ],
)
def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content, errors="surrogatepass")

    with pytest.raises(BadRun) as caught:
        read_run(tmp_path)

    assert str(caught.value).startswith(message.format(folder=tmp_path))


def test_a_trial_that_the_run_does_not_know_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": [Request()]})
    make_trial(tmp_path, "other", 1, [Request()])

    with pytest.raises(BadRun) as caught:
        derive_summary(tmp_path)

    assert str(caught.value) == f"{tmp_path}/other/mix/1/trial.json is of other under mix, which run.json does not know"
