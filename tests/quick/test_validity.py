"""analysis.verdict.validity: a failed measurement says so itself."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.pipeline import derive_summary
from analysis.read.trial_data import read_trials
from analysis.records.claims import Claim, Published, Quantity
from analysis.records.folder import BadRun, read_run, trial_folder, trial_folders
from analysis.records.run import (
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
from analysis.records.summary import TrialValidity
from analysis.report.tables.quantities import workers_tables
from analysis.verdict.validity import judge_trials
from tests.synthetic import BEGAN, Request, make_run, make_trial, observation, point, write_points

FINE = [Request(sent_s=n / 10) for n in range(200)]


def judged(tmp_path: Path, requests: list[Request] | None = None, **trial: Any) -> tuple[str, list[str]]:
    """Return the verdict on a trial and its reasons."""
    make_run(tmp_path, {"one": FINE})
    make_trial(tmp_path, "one", 1, FINE if requests is None else requests, **trial)
    run = read_run(tmp_path)
    with read_trials(tmp_path, run, trial_folders(tmp_path), {}) as (_, trials):
        [judgement] = judge_trials(run, trials)
    return judgement.verdict, judgement.reasons


def test_a_good_trial_is_valid_without_reasons(tmp_path: Path) -> None:
    assert judged(tmp_path) == ("valid", [])


@pytest.mark.parametrize(
    ("trial", "verdict", "reason"),
    [
        ({"k6_exit_code": 107}, "invalid", "k6 ended with exit code 107"),
        ({"k6_exit_code": None}, "invalid", "k6 ended with exit code None"),
        ({"k6_exit_code": 99}, "valid", "a threshold of the load script was crossed (k6 exit code 99)"),
        ({"outcome": "interrupted", "reason": "interrupted at noon"}, "invalid", "interrupted: interrupted at noon"),
        ({"outcome": "failed", "reason": "nginx said: no"}, "invalid", "failed: nginx said: no"),
        ({"busy_before": 0.5}, "suspect", "the machine was 50% busy before the load began"),
        ({"busy_during": 0.9}, "suspect", "the machine was 90% busy during the load"),
        ({"steal_during": 0.03}, "suspect", "other machines of this host took 3.0% of the processor time"),
        ({"pressure_during": 0.3}, "suspect", "something waited for a processor during 30% of the load"),
        ({"clock_step_s": -0.5}, "invalid", "the clock was set by -0.50 s during the load"),
        ({"pressure_during": None, "clock_step_s": 0.01}, "valid", None),
    ],
)
def test_a_trial_is_judged_by_its_record(
    tmp_path: Path, trial: dict[str, Any], verdict: str, reason: str | None
) -> None:
    assert judged(tmp_path, **trial) == (verdict, [reason] if reason else [])


@pytest.mark.parametrize(
    ("alone_ms", "verdict", "reasons"),
    [
        ([99.0, 104.9, 300.0], "valid", []),
        ([99.0, 105.1, 106.0], "suspect", ["a request alone was at work for 105 ms where it asked for 100 ms"]),
        ([80.0, 94.9, 300.0], "suspect", ["a request alone was at work for 95 ms where it asked for 100 ms"]),
    ],
)
def test_a_request_alone_that_is_not_as_long_as_it_asks_for_is_a_doubt(
    tmp_path: Path, alone_ms: list[float], verdict: str, reasons: list[str]
) -> None:
    calibration = Calibration(cpu="hold", call_us=900, service_time_ms=100, alone_ms=alone_ms)

    assert judged(tmp_path, calibration=calibration) == (verdict, reasons)


def test_a_calibration_that_does_not_hold_under_load_is_a_doubt(tmp_path: Path) -> None:
    """Requests are at work for 101 ms and a bit."""
    calibration = Calibration(cpu="hold", call_us=900, service_time_ms=120, alone_ms=[120.0])

    verdict, [reason] = judged(tmp_path, calibration=calibration)

    assert verdict == "suspect"
    assert reason == (
        "a request was at work for only 101 ms where it asked for 120 ms: the calibration does not hold under load"
    )


@pytest.mark.parametrize(
    ("cpu", "workers", "said"),
    [
        ("hold", 1, ["computing was imitated: requests held the interpreter lock without using a core (CPU=hold)"]),
        ("burn", 4, ["4 workers computed on 4 cores (CPU=burn): they waited for cores, too"]),
        ("burn", 2, []),
    ],
)
def test_a_run_says_how_its_requests_computed(tmp_path: Path, cpu: str, workers: int, said: list[str]) -> None:
    host = Host(cpu="a processor", cores=4, memory_gib=4, kernel="Linux 6", engine="Docker 1", compose="2")
    loads = [LoadRecord(name="mix", script="mix.js", duration="60s", settings={"CPU": cpu})]
    variants = [VariantRecord(name="one", workers=workers, settings={})]

    summary = derive_summary(make_run(tmp_path, {"one": FINE}, host=host, loads=loads, variants=variants))

    assert [one for one in summary.validity.reasons if "CPU=" in one] == said


def test_a_machine_that_computes_may_be_short_of_processors(tmp_path: Path) -> None:
    """Where requests compute, waiting for a processor is what is measured."""
    make_run(tmp_path, {"one": FINE}, sleeping=False)
    make_trial(tmp_path, "one", 1, FINE, pressure_during=0.9)

    assert derive_summary(tmp_path).validity.verdict == "valid"


def test_of_several_machines_the_busy_one_is_named(tmp_path: Path) -> None:
    quiet = MachineRecord(
        name="bench-1", hosts=["box"], generators=["points"], busy_during=0.2, steal_during=0.0, pressure_during=0.01
    )
    busy = MachineRecord(name="bench-2", busy_during=0.97, steal_during=0.03, pressure_during=0.6)

    verdict, reasons = judged(tmp_path, machines=[quiet, busy], busy_before=0.7)

    assert verdict == "suspect"
    assert reasons[:4] == [
        "the busiest machine was 70% busy before the load began",
        "bench-2 was 97% busy during the load",
        "other machines of this host took 3.0% of the processor time on bench-2",
        "something on bench-2 waited for a processor during 60% of the load",
    ]


def test_machines_for_servers_that_are_not_alike_are_named(tmp_path: Path) -> None:
    """A machine for load may be another one."""
    host = Host(cpu="a processor", cores=4, memory_gib=4, kernel="Linux 6.1", engine="Docker 28", compose="2")
    newer = host.model_copy(update={"kernel": "Linux 6.18"})
    other = host.model_copy(update={"cpu": "another", "engine": "Docker 20"})
    machines = [
        RunMachine(name="a", role="both", host=host),
        RunMachine(name="b", role="servers", host=newer),
        RunMachine(name="c", role="servers", host=host),
        RunMachine(name="d", role="load", host=other),
    ]

    summary = derive_summary(make_run(tmp_path, {"one": FINE}, machines=machines))

    assert [one for one in summary.validity.reasons if one.startswith("the machines")] == [
        "the machines for servers differ in their kernel: Linux 6.1 on a, c; Linux 6.18 on b"
    ]


AFTER_10_S = int(BEGAN.timestamp()) + 10
WAITED = (
    "whether the load generator waited for a processor, because the kernel does not report it, or the load was too "
    "short"
)
STOLEN = "whether other machines took processor time, because the kernel does not report it"


@pytest.mark.parametrize(
    ("record", "spoilt", "what"),
    [
        ({}, {}, []),
        ({"pressure_during": None}, {},
         ["whether something waited for a processor, because the kernel has no pressure information"]),
        ({"steal_during": None}, {}, [STOLEN]),
        ({}, {"k6-processor.txt": (f"{AFTER_10_S} 1000000\n", "")}, [WAITED]),
        ({}, {"server-1.after.txt": ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/elsewhere")},
         ["whether a limit kept a container from computing, because the kernel does not report it"]),
        ({}, {"nginx-1.after.txt": ("oom_kill 0", "")},
         ["whether a container ran out of memory, because the kernel does not report it"]),
    ],
)  # fmt: skip
def test_a_rule_that_could_not_be_applied_is_named(
    tmp_path: Path, record: dict[str, Any], spoilt: dict[str, tuple[str, str]], what: list[str]
) -> None:
    """Once for the run, whatever the number of its trials, and the trial stays valid."""
    make_run(tmp_path, {"one": FINE, "two": FINE})
    for variant, changed in (("one", record), ("two", {})):
        folder = make_trial(tmp_path, variant, 1, FINE, **changed)
        (folder / "k6-processor.txt").write_text(f"{AFTER_10_S - 9} 0\n{AFTER_10_S} 1000000\n")
    for name, (old, new) in spoilt.items():
        path = trial_folder(tmp_path, "one", "mix", 1) / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    validity = derive_summary(tmp_path).validity

    assert validity.verdict == "valid"
    assert [one for one in validity.reasons if one.startswith("not checked")] == [
        f"not checked in 1 of 2 trials: {one}" for one in what
    ]


def test_a_rule_that_no_trial_could_be_judged_by_needs_no_count(tmp_path: Path) -> None:
    reasons = derive_summary(make_run(tmp_path, {"one": FINE})).validity.reasons

    assert f"not checked: {WAITED}" in reasons


BOTH = {7: 150, 8: 50}
"""What the workers of ``SHARED`` served."""
SHARED = [Request(sent_s=n / 10, worker=f"box:{7 if n % 4 else 8}") for n in range(200)]


@pytest.mark.parametrize(
    ("before", "after", "verdict", "reason"),
    [
        ({}, {}, "valid", None),
        ({}, {"served": {7: 151, 8: 50}}, "invalid",
         "the counts disagree: 200 requests were answered by a worker, the balancer served 200, the workers 201"),
        ({}, {"served": {7: 151, 8: 49}}, "invalid",
         "the counts disagree: 150 answers name worker box:7, which counted 151"),
        ({}, {"overflows": 2}, "suspect", "the listen queue of server-1 was full for 2 connections"),
        ({}, {"throttled_s": 0.9}, "suspect", "server-1 was kept from computing by its limit for 0.9 s"),
        ({}, {"throttled_s": 0.1}, "valid", None),
        ({}, {"sockets": {7: [100]}}, "invalid", "server-1 lost worker 8 during the load"),
        ({}, {"sockets": {7: [100]}, "out_of_memory": 1}, "invalid",
         "server-1 lost worker 8 during the load (out of memory)"),
        ({}, {"served": {**BOTH, 9: 0, 10: 0}}, "invalid", "server-1 started workers 9, 10 during the load"),
        ({"served": {7: 0}}, {"served": {7: 150}}, "invalid", "1 workers served where 2 were asked for"),
        ({"sockets": {7: [100], 8: [101]}}, {}, "invalid",
         "the workers of server-1 hold 2 listening sockets, not one socket that all share"),
    ],
)  # fmt: skip
def test_a_trial_is_judged_by_what_its_servers_say(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], verdict: str, reason: str | None
) -> None:
    variant = VariantRecord(name="one", workers=2, accept="shared", settings={})
    make_run(tmp_path, {"one": SHARED}, variants=[variant], sleeping=True)
    folder = make_trial(tmp_path, "one", 1, SHARED, seconds=Seconds(load=60))
    (folder / "server-1.before.txt").write_text(observation(**({"served": {7: 0, 8: 0}} | before)))
    (folder / "server-1.after.txt").write_text(observation(**({"served": BOTH} | after)))

    [trial] = derive_summary(tmp_path).trials

    assert trial.verdict == verdict
    assert (reason in trial.reasons) if reason else trial.reasons == []


@pytest.mark.parametrize(
    ("sockets", "reason"),
    [
        ({7: [100], 8: [101]}, None),
        ({7: [100], 8: [100]}, "the workers of server-1 hold 1 listening socket, not a socket of their own each"),
        ({7: [100, 101], 8: [101]}, "the workers of server-1 hold 2 listening sockets, not a socket of their own each"),
    ],
)
def test_workers_that_should_have_a_socket_each_must_have_one(
    tmp_path: Path, sockets: dict[int, list[int]], reason: str | None
) -> None:
    make_run(
        tmp_path, {"one": SHARED}, variants=[VariantRecord(name="one", workers=2, accept="per-worker", settings={})]
    )
    folder = make_trial(tmp_path, "one", 1, SHARED)
    (folder / "server-1.before.txt").write_text(observation(served={7: 0, 8: 0}, sockets=sockets))
    (folder / "server-1.after.txt").write_text(observation(served=BOTH, sockets=sockets))

    [trial] = derive_summary(tmp_path).trials

    assert trial.reasons == ([reason] if reason else [])


@pytest.mark.parametrize(("balanced", "counted"), [(201, 199), (203, 201)])
def test_a_trial_is_judged_by_what_the_balancer_counted(tmp_path: Path, balanced: int, counted: int) -> None:
    """Two requests before the load: 202 would be right."""
    make_run(tmp_path, {"one": SHARED})
    folder = make_trial(tmp_path, "one", 1, SHARED)
    (folder / "nginx-1.after.txt").write_text(observation("proxy", balanced=balanced))

    [trial] = derive_summary(tmp_path).trials

    assert (trial.verdict, trial.reasons) == (
        "invalid",
        [f"the counts disagree: 200 requests were sent and 200 answered, the balancer served {counted}"],
    )


ASKED_DIRECTLY = VariantRecord(name="one", workers=2, settings={"balancer": "none"})


@pytest.mark.parametrize(
    ("served", "reasons"),
    [
        (BOTH, []),
        ({7: 151, 8: 50},
         ["the counts disagree: 200 requests were answered by a worker, the workers served 201",
          "the counts disagree: 150 answers name worker box:7, which counted 151"]),
    ],
)  # fmt: skip
def test_workers_that_are_asked_directly_are_compared_with_the_load_generator(
    tmp_path: Path, served: dict[int, int], reasons: list[str]
) -> None:
    make_run(tmp_path, {"one": SHARED}, variants=[ASKED_DIRECTLY])
    folder = make_trial(tmp_path, "one", 1, SHARED)
    (folder / "server-1.after.txt").write_text(observation(served=served))
    for path in folder.glob("nginx-1.*"):
        path.unlink()

    [trial] = derive_summary(tmp_path).trials

    assert (trial.verdict, trial.reasons) == ("invalid" if reasons else "valid", reasons)


def test_workers_that_are_asked_directly_and_were_not_observed_confirm_nothing(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": SHARED}, variants=[ASKED_DIRECTLY])
    for path in make_trial(tmp_path, "one", 1, SHARED).glob("*-1.*.txt"):
        path.unlink()

    [trial] = derive_summary(tmp_path).trials

    assert trial.reasons == ["the servers were not observed before and after the load: nothing confirms the counts"]


CRASH = LoadRecord(name="mix", script="mix.js", kind="crash", duration="60s", settings={"CRASH_AFTER_S": "5"})
PEACE = LoadRecord(name="mix", script="mix.js", duration="60s", settings={})
CRASHED = [*SHARED[:100], Request(request_class="crash", sent_s=10, error="status 502"),
           *[Request(sent_s=10 + n, error="EOF") for n in range(5)]]  # fmt: skip


@pytest.mark.parametrize(
    ("load", "verdict", "crash"),
    [
        (CRASH, "valid", "all 1 crash requests failed (EOF; status 502)"),
        (
            PEACE,
            "invalid",
            "all 1 crash requests failed (status 502): their figures are invalid, and the other requests met another "
            "load than planned",
        ),
    ],
    ids=["crash", "peace"],
)
def test_a_worker_that_a_request_kills_is_the_finding(
    tmp_path: Path, load: LoadRecord, verdict: str, crash: str
) -> None:
    """Worker 8 dies of the request, worker 9 takes its place; what worker 8 counted is remembered."""
    make_run(tmp_path, {"one": CRASHED}, loads=[load])
    folder = make_trial(tmp_path, "one", 1, CRASHED)
    (folder / "server-1.before.txt").write_text(observation(served={7: 0, 8: 0}))
    after = observation(served={7: 75, 8: 25, 9: 0}, sockets={7: [100], 9: [100]})
    (folder / "server-1.after.txt").write_text(after)

    [trial] = derive_summary(tmp_path).trials

    assert trial.verdict == verdict
    assert sorted(trial.reasons) == [
        "5 of 105 light requests failed (EOF; status 502)",
        crash,
        "server-1 lost worker 8 during the load",
        "server-1 started worker 9 during the load",
    ]


@pytest.mark.parametrize(
    ("served", "balanced", "reason"),
    [
        ({7: 75, 8: 24}, 108, "the counts disagree: 100 requests were answered by a worker, the balancer served 106, "
         "the workers 99"),
        ({7: 75, 8: 24}, 108, "the counts disagree: 25 answers name worker box:8, which counted 24"),
        ({7: 75, 8: 25}, 101, "the counts disagree: 106 requests were sent and 106 answered, the balancer served 99"),
    ],
)  # fmt: skip
def test_a_worker_that_was_killed_before_it_could_count_is_a_doubt(
    tmp_path: Path, served: dict[int, int], balanced: int, reason: str
) -> None:
    make_run(tmp_path, {"one": CRASHED}, loads=[CRASH])
    folder = make_trial(tmp_path, "one", 1, CRASHED)
    (folder / "server-1.after.txt").write_text(observation(served=served))
    (folder / "nginx-1.after.txt").write_text(observation("proxy", balanced=balanced))

    [trial] = derive_summary(tmp_path).trials

    assert trial.verdict == "suspect"
    assert reason in trial.reasons


def test_a_connection_that_broke_says_nothing_of_littles_law(tmp_path: Path) -> None:
    """k6 does not time how long it waited for an answer that never came: here 30 s, of which it tells 1 ms."""
    make_run(tmp_path, {"one": FINE})
    folder = make_trial(tmp_path, "one", 1, FINE)
    broken = Request(sent_s=1, service_time_ms=0.5, overhead_ms=0.5, lag_ms=30000, error="EOF", status=0)
    write_points(folder / "points.json.gz", [*FINE, broken])

    [trial] = derive_summary(tmp_path).trials

    assert (trial.verdict, trial.reasons) == ("valid", ["1 of 201 light requests failed (EOF)"])


DIRECT = [Request(request_class="silent", sent_s=n, worker="box:7") for n in range(3)]


def test_requests_past_the_balancer_are_the_servers_alone(tmp_path: Path) -> None:
    """What a client asks past the balancer is in the workers' counts and not in the balancer's."""
    make_run(tmp_path, {"one": SHARED})
    folder = make_trial(tmp_path, "one", 1, SHARED)
    write_points(folder / "points-client.json.gz", DIRECT)
    (folder / "server-1.after.txt").write_text(observation(served={7: 153, 8: 50}))

    [trial] = derive_summary(tmp_path).trials

    assert (trial.verdict, trial.reasons) == ("valid", [])


def test_a_request_past_the_balancer_that_no_worker_served_is_missed(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": SHARED})
    folder = make_trial(tmp_path, "one", 1, SHARED)
    write_points(folder / "points-client.json.gz", DIRECT)

    [trial] = derive_summary(tmp_path).trials

    assert trial.reasons == [
        "the counts disagree: 203 requests were answered by a worker, the balancer served 200, the workers 200",
        "the counts disagree: 153 answers name worker box:7, which counted 150",
    ]


def test_requests_of_a_client_through_the_balancer_are_in_its_counts(tmp_path: Path) -> None:
    client = ClientRecord(script="silent.py", settings={}, through_balancer=True)
    mix = LoadRecord(name="mix", script="mix.js", duration="60s", settings={"VUS": "1"}, client=client)
    make_run(tmp_path, {"one": SHARED}, loads=[mix])
    folder = make_trial(tmp_path, "one", 1, SHARED)
    write_points(folder / "points-client.json.gz", DIRECT)
    (folder / "server-1.after.txt").write_text(observation(served={7: 153, 8: 50}))

    [trial] = derive_summary(tmp_path).trials

    said = "the counts disagree: 203 requests were sent and 203 answered, the balancer served 200"
    assert trial.reasons[0] == said


REFUSED = [Request(request_class="silent", sent_s=n, error="closed", status=0) for n in range(5)]


def with_client(folder: Path, requests: list[Request], client: list[Request], **changed: Any) -> Path:
    """Write a run of five trials of variant ``one``, in which a client sends requests past the balancer beside k6."""
    run = make_run(folder, {"one": requests}, times=5, **changed)
    for number in range(1, 6):
        write_points(run / "one" / "mix" / str(number) / "points-client.json.gz", client)
        if served := sum(not one.error for one in client):
            counts = {pid: sum(one.worker == f"box:{pid}" for one in requests) for pid in (7, 8)}
            after = observation(served=counts | {7: counts[7] + served})
            (run / "one" / "mix" / str(number) / "server-1.after.txt").write_text(after)
    return run


@pytest.mark.parametrize("refused", [REFUSED, [*REFUSED, *DIRECT]], ids=["always", "sometimes"])
def test_what_a_client_that_misbehaves_suffers_is_a_finding(tmp_path: Path, refused: list[Request]) -> None:
    """The users' requests are the question, and a server that refuses silent clients may give the right answer."""
    quick = Quantity(variant="one", request_class="light", metric="overhead", stat="p50")
    claims = [Claim(says="Nobody waits", value=quick, at_most=100)]
    summary = derive_summary(with_client(tmp_path, SHARED, refused, claims=claims))

    which = f"all {len(refused)}" if refused == REFUSED else f"5 of {len(refused)}"
    assert {one.verdict for one in summary.trials} == {"valid"}
    assert summary.trials[0].reasons == [f"{which} silent requests failed (closed)"]
    assert [(one.verdict, one.suspect) for one in summary.claims] == [("reproduced", False)]
    share = next(row.measured for row in summary.rows if (row.request_class, row.metric) == ("silent", "failures"))
    assert share == 5 / len(refused)
    assert [(one.request_class, one.error, one.requests) for one in summary.errors][:1] == [("silent", "closed", 5)]
    too_few = [reason for reason in summary.validity.reasons if "silent requests" in reason and "it needs" in reason]
    assert bool(too_few) == (refused != REFUSED)  # that all failed says enough


def test_a_note_on_a_suspect_trial_is_no_reason_for_its_doubt(tmp_path: Path) -> None:
    with_client(tmp_path, SHARED, REFUSED)
    for number in range(1, 6):
        path = tmp_path / "one" / "mix" / str(number) / "trial.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"busy_before": 0.6}))

    summary = derive_summary(tmp_path)

    assert summary.validity.verdict == "suspect"
    assert summary.validity.reasons[:2] == [
        "one (trial 1): suspect: the machine was 60% busy before the load began",
        "one (trial 1): all 5 silent requests failed (closed)",
    ]


HEAVY = [Request(request_class="heavy", sent_s=n, error="status 502") for n in range(5)]


def test_a_class_that_failed_as_a_whole_spoils_only_itself(tmp_path: Path) -> None:
    """The other classes met another load than planned, so they are suspect; their numbers are there."""
    quick = Quantity(variant="one", request_class="light", metric="overhead", stat="p50")
    claims = [
        Claim(says="Nobody waits", value=quick, at_most=100),
        Claim(says="Heavy requests are slow", value=quick.model_copy(update={"request_class": "heavy"}), at_least=100),
        Claim(says="No heavy request fails", value=Quantity(
            variant="one", request_class="heavy", metric="failures", stat="share"), at_most=0),
    ]  # fmt: skip
    published = [Published(variant="one", request_class="heavy", metric="overhead", stats={"p50": 9})]
    run = make_run(tmp_path, {"one": [*SHARED, *HEAVY]}, claims=claims, published=published, times=5)
    summary = derive_summary(run)

    why = "all 5 heavy requests failed (status 502)"
    assert {one.verdict for one in summary.trials} == {"suspect"}
    assert summary.trials[0].classes == {"heavy": why}
    assert summary.trials[0].reasons[0].startswith(f"{why}: their figures are invalid")
    light, *heavy = summary.claims
    assert (light.verdict, light.suspect) == ("reproduced", True)
    assert [(one.verdict, one.measured, one.reason) for one in heavy] == [("invalid", None, f"one: {why}")] * 2
    assert [(one.verdict, one.reason.partition(";")[0]) for one in summary.published if one.reason] == [
        ("invalid", f"one: {why}")
    ]
    assert not [row for row in summary.rows if row.request_class == "heavy" and row.measured is not None]
    assert [row for row in summary.rows if row.request_class == "light" and row.measured is not None]
    assert json.loads((run / "summary.json").read_text())["trials"][0]["classes"] == {"heavy": why}


def test_a_class_that_failed_as_a_whole_in_one_trial_has_the_numbers_of_the_others(tmp_path: Path) -> None:
    slow = [replace(one, error=None) for one in HEAVY]
    run = make_run(tmp_path, {"one": [*SHARED, *slow]}, times=3)
    make_trial(run, "one", 2, [*SHARED, *HEAVY])
    summary = derive_summary(run)

    row = next(row for row in summary.rows if (row.request_class, row.metric, row.stat) == ("heavy", "overhead", "p50"))
    assert [*row.values] == [1, 3]
    assert [one.verdict for one in summary.trials] == ["valid", "suspect", "valid"]


def test_a_trial_in_which_k6_got_no_answer_is_invalid_although_a_client_got_one(tmp_path: Path) -> None:
    failed = [replace(one, error="status 502") for one in SHARED]
    summary = derive_summary(with_client(tmp_path / "all", [*failed, *HEAVY], DIRECT))

    assert {one.verdict for one in summary.trials} == {"invalid"}
    assert "all 5 heavy requests failed (status 502)" in summary.trials[0].reasons
    assert summary.trials[0].classes == {}

    nothing = derive_summary(with_client(tmp_path / "nothing", [], DIRECT))
    assert nothing.trials[0].reasons[0] == "no request was sent"


def test_the_timings_of_a_client_are_no_doubt_about_k6(tmp_path: Path) -> None:
    """A client asks for no work and has timings of its own, which k6's calibration and Little's law do not bind."""
    client = [replace(one, service_time_ms=0.1, overhead_ms=0.1, lag_ms=40_000) for one in DIRECT]
    alone = Calibration(cpu="burn", call_us=None, service_time_ms=100, alone_ms=[100, 100, 100])
    run = with_client(tmp_path, SHARED, client)
    changed = json.loads((run / "one" / "mix" / "1" / "trial.json").read_text())
    changed["calibration"] = alone.model_dump(mode="json")
    (run / "one" / "mix" / "1" / "trial.json").write_text(json.dumps(changed))

    assert derive_summary(run).trials[0].reasons == []


def test_trials_of_older_summaries_have_no_classes() -> None:
    old = {"variant": "one", "load": "mix", "trial": 1, "verdict": "valid", "reasons": []}

    assert TrialValidity.model_validate(old).model_dump() == old


@pytest.mark.parametrize(
    ("claimed", "verdict"),
    [
        ({"at_least": 0.5}, "valid"),
        ({"at_most": 0.5}, "invalid"),
        ({"at_least": 0.5, "request": "heavy"}, "invalid"),
        ({"at_least": 0.5, "variant": "two"}, "invalid"),
        ({"at_least": 0.5, "load": "mix", "request": "light"}, "valid"),
    ],
)
def test_failures_that_a_claim_speaks_of_are_no_reason_to_doubt(
    tmp_path: Path, claimed: dict[str, Any], verdict: str
) -> None:
    bounds = {key: claimed.pop(key) for key in ("at_least", "at_most") if key in claimed}
    value = Quantity(**({"variant": "one", "metric": "failures", "stat": "share"} | claimed))
    failing = [Request(error="request timeout", sent_s=n) for n in range(20)]
    make_run(tmp_path, {"one": failing}, claims=[Claim(says="They fail", value=value, **bounds)])

    [trial] = derive_summary(tmp_path).trials

    assert (trial.verdict, trial.reasons) == (verdict, ["all 20 light requests failed (request timeout)"])


def test_servers_that_nobody_looked_at_confirm_nothing(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": FINE})
    folder = make_trial(tmp_path, "one", 1, FINE)
    for path in folder.glob("*.after.txt"):
        path.unlink()

    [trial] = derive_summary(tmp_path).trials

    assert (trial.verdict, trial.reasons) == (
        "suspect",
        [
            "the servers were not observed before and after the load: nothing confirms the counts",
            "nginx-1 was not observed after the load",
            "server-1 was not observed after the load",
        ],
    )


def test_an_observation_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": FINE})
    folder = make_trial(tmp_path, "one", 1, FINE)
    (folder / "server-1.after.txt").write_text("==> /etc/hostname <==\n")

    [trial] = derive_summary(tmp_path).trials

    assert trial.verdict == "invalid"
    assert trial.reasons[0].startswith("one/mix/1/server-1.after.txt is not an observation: ")


@pytest.mark.parametrize(
    ("dropped", "verdict", "reason"),
    [
        (0, "valid", None),
        (2, "suspect", "the load generator dropped 2 iterations, 1.0% of what it should have sent"),
        (50, "invalid", "the load generator dropped 50 iterations, 20.0% of what it should have sent"),
    ],
)
def test_a_load_that_was_not_sent_whole_is_doubted(
    tmp_path: Path, dropped: int, verdict: str, reason: str | None
) -> None:
    make_run(tmp_path, {"one": FINE})
    folder = make_trial(tmp_path, "one", 1, FINE)
    with gzip.open(folder / "points.json.gz", "at") as points:
        for _ in range(dropped):
            points.write(json.dumps(point("dropped_iterations", BEGAN, 1, "light", {})) + "\n")

    [trial] = derive_summary(tmp_path).trials

    assert (trial.verdict, trial.reasons) == (verdict, [reason] if reason else [])


@pytest.mark.parametrize(
    ("readings", "doubted"),
    [
        ([(1, 0), (11, 0.9)], False),
        ([(1, 0), (11, 1.2)], True),
        ([(-9, 0), (1, 5), (11, 5.5)], False),
        ([(1, 5)], False),
        ([], False),
    ],
    ids=["little", "much", "before the load", "one reading", "none"],
)
def test_a_load_generator_that_waited_for_a_processor_is_doubted(
    tmp_path: Path, readings: list[tuple[float, float]], doubted: bool
) -> None:
    """Readings are seconds after the first request was sent, and seconds waited until then."""
    make_run(tmp_path, {"one": FINE})
    folder = make_trial(tmp_path, "one", 1, FINE)
    lines = [f"{BEGAN.timestamp() + at:.0f} {waited * 1e9:.0f}\n" for at, waited in readings]
    (folder / "k6-processor.txt").write_text("".join(lines))

    [trial] = derive_summary(tmp_path).trials

    reason = "the load generator waited for a processor 0.12 s in every second of the load"
    assert trial.reasons == ([reason] if doubted else [])


def test_of_several_load_generators_the_one_that_waited_most_counts(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": FINE})
    folder = make_trial(tmp_path, "one", 1, FINE)
    for name, waited in (("k6-processor", 0.5), ("k6-processor-2", 3), ("k6-processor-3", 0)):
        lines = [f"{BEGAN.timestamp() + at:.0f} {waited * at * 1e8:.0f}\n" for at in (0, 10)]
        (folder / f"{name}.txt").write_text("".join(lines))

    [trial] = derive_summary(tmp_path).trials

    assert trial.reasons == ["the load generator waited for a processor 0.30 s in every second of the load"]


@pytest.mark.parametrize(
    ("generators", "verdict", "reasons"),
    [
        (2, "valid", []),
        (3, "invalid", ["the points of 2 of 3 load generators are there"]),
    ],
)
def test_a_load_whose_generators_are_not_all_there_is_invalid(
    tmp_path: Path, generators: int, verdict: str, reasons: list[str]
) -> None:
    """What a client beside them sent is no generator's."""
    both = [Request(sent_s=n / 10, generator=1 + n % 2) for n in range(200)]
    loads = [LoadRecord(name="mix", script="mix.js", duration="60s", settings={}, generators=generators)]
    make_run(tmp_path, {"one": both}, loads=loads)
    folder = tmp_path / "one" / "mix" / "1"
    write_points(folder / "points-client.json.gz", DIRECT)
    (folder / "server-1.after.txt").write_text(observation(served={7: 203, 99: 0}))

    [trial] = derive_summary(tmp_path).trials

    assert (trial.verdict, trial.reasons) == (verdict, reasons)


OVERLOAD = LoadRecord(name="mix", script="mix.js", duration="60s", settings={}, overloads=True)


@pytest.mark.parametrize(("load", "verdict"), [(OVERLOAD, "valid"), (PEACE, "suspect")], ids=["overload", "peace"])
def test_what_too_much_load_does_is_the_finding(tmp_path: Path, load: LoadRecord, verdict: str) -> None:
    """Three of two hundred fail, at the end of a wait that k6 does not time, for a full queue and a limit."""
    slow = [Request(sent_s=n / 10, error="status 502", lag_ms=60_000) for n in range(3)]
    make_run(tmp_path, {"one": slow + FINE[3:]}, loads=[load])
    folder = make_trial(tmp_path, "one", 1, slow + FINE[3:], seconds=Seconds(load=60))
    after = observation(served={7: 197, 99: 0}, overflows=5, throttled_s=30)
    (folder / "server-1.after.txt").write_text(after)

    [trial] = derive_summary(tmp_path).trials

    little = [reason for reason in trial.reasons if reason.startswith("Little's law")]
    assert len(little) == (load == PEACE)
    assert (trial.verdict, [reason for reason in trial.reasons if reason not in little]) == (
        verdict,
        [
            "3 of 200 light requests failed (status 502)",
            "the listen queue of server-1 was full for 5 connections",
            "server-1 was kept from computing by its limit for 30.0 s",
        ],
    )


def test_littles_law_is_judged_of_an_overload_that_hardly_fails(tmp_path: Path) -> None:
    lagging = [Request(sent_s=n / 10, lag_ms=100 if n % 4 == 0 else 0) for n in range(200)]

    [trial] = derive_summary(make_run(tmp_path, {"one": lagging}, loads=[OVERLOAD])).trials

    assert trial.verdict == "suspect"
    assert trial.reasons == [
        "Little's law does not hold: 1.26 requests were under way on average, throughput times response time is 1.01"
    ]


def test_an_overload_that_fails_altogether_is_the_finding(tmp_path: Path) -> None:
    failing = [Request(sent_s=n, error="status 502") for n in range(20)]

    [trial] = derive_summary(make_run(tmp_path, {"one": failing}, loads=[OVERLOAD])).trials

    assert (trial.verdict, trial.reasons) == ("valid", ["all 20 light requests failed (status 502)"])


ELASTIC = VariantRecord(name="one", workers=4, elastic=True, settings={"server": "fastcgi", "threads": 1})


@pytest.mark.parametrize(
    ("before", "after", "verdict", "reasons"),
    [
        ({7: 0, 8: 0}, {"served": BOTH}, "valid", []),
        ({7: 0, 8: 0}, {"served": {**BOTH, 9: 0}}, "valid",
         ["server-1 started 1 and ended 0 workers during the load"]),
        ({7: 0, 8: 0, 5: 0, 6: 0}, {"served": BOTH}, "valid",
         ["server-1 started 0 and ended 2 workers during the load"]),
        ({7: 0}, {"served": {**BOTH, 9: 0, 10: 0}, "sockets": {8: [100], 10: [100]}}, "valid",
         ["server-1 started 3 and ended 2 workers during the load"]),
        ({7: 0}, {"served": BOTH, "sockets": {8: [100]}, "out_of_memory": 1}, "valid",
         ["server-1 started 1 and ended 1 workers during the load (out of memory)"]),
        ({7: 0, 8: 0}, {"served": {**BOTH, 9: 0, 10: 0, 11: 0}}, "invalid",
         ["5 workers served where at most 4 were asked for",
          "server-1 started 3 and ended 0 workers during the load"]),
        ({1: 0, 2: 0, 3: 0, 7: 0, 8: 0}, {"served": BOTH}, "invalid",
         ["5 workers served where at most 4 were asked for",
          "server-1 started 0 and ended 3 workers during the load"]),
    ],
)  # fmt: skip
def test_an_elastic_server_may_start_and_end_workers_up_to_its_number(
    tmp_path: Path, before: dict[int, int], after: dict[str, Any], verdict: str, reasons: list[str]
) -> None:
    """Those that it remembers and that neither lived before nor live after did both."""
    make_run(tmp_path, {"one": SHARED}, variants=[ELASTIC])
    folder = tmp_path / "one" / "mix" / "1"
    (folder / "server-1.before.txt").write_text(observation(served=before))
    (folder / "server-1.after.txt").write_text(observation(**after))

    [trial] = derive_summary(tmp_path).trials

    assert (trial.verdict, trial.reasons) == (verdict, reasons)


@pytest.mark.parametrize(
    ("settings", "before", "after", "verdict", "reasons"),
    [
        ({"max_requests": 40}, {7: 0, 8: 0}, {"served": {**BOTH, 9: 0}, "sockets": {8: [100], 9: [100]}}, "valid",
         ["server-1 started 1 and ended 1 workers during the load"]),
        ({"max_requests": 160}, {7: 0, 8: 0}, {"served": {**BOTH, 9: 0}, "sockets": {8: [100], 9: [100]}}, "invalid",
         ["server-1: worker 7 ended before its limit of 160 requests",
          "server-1 started 1 and ended 1 workers during the load"]),
        ({"hup_after_s": 5}, {7: 0, 8: 0}, {"served": {**BOTH, 9: 0, 10: 0}, "sockets": {9: [100], 10: [100]}}, "valid",
         ["server-1 started 2 and ended 2 workers during the load"]),
        ({"hup_after_s": 5}, {7: 0, 8: 0}, {"served": {**BOTH, 9: 0}, "sockets": {8: [100], 9: [100]}}, "invalid",
         ["server-1: HUP did not replace worker 8", "server-1 started 1 and ended 1 workers during the load"]),
        ({"hup_after_s": 5}, {7: 0, 8: 0}, {"served": {**BOTH, 9: 0, 10: 0}, "sockets": {10: [100]}}, "invalid",
         ["server-1: worker 9 ended, and not by HUP", "server-1 started 2 and ended 3 workers during the load"]),
        ({"max_requests": 40}, {7: 0, 8: 0},
         {"served": {**BOTH, 9: 0}, "sockets": {8: [100], 9: [100]}, "out_of_memory": 1}, "invalid",
         ["server-1: a worker ran out of memory",
          "server-1 started 1 and ended 1 workers during the load (out of memory)"]),
    ],
)  # fmt: skip
def test_workers_that_are_meant_to_be_replaced_are_no_fault_and_others_are(
    tmp_path: Path, settings: dict[str, int], before: dict[int, int], after: dict[str, Any], verdict: str,
    reasons: list[str],
) -> None:  # fmt: skip
    """A worker may end at its limit of requests, or by HUP if it was there before the load."""
    variant = ELASTIC.model_copy(update={"settings": settings})
    make_run(tmp_path, {"one": SHARED}, variants=[variant])
    folder = tmp_path / "one" / "mix" / "1"
    (folder / "server-1.before.txt").write_text(observation(served=before))
    (folder / "server-1.after.txt").write_text(observation(**after))

    [trial] = derive_summary(tmp_path).trials

    assert (trial.verdict, trial.reasons) == (verdict, reasons)


def test_requests_that_are_lost_while_workers_are_replaced_are_a_finding(tmp_path: Path) -> None:
    failing = [Request(error="status 502", status=502, sent_s=n / 10) for n in range(5)]
    good = [Request(sent_s=1 + n / 10) for n in range(20)]
    never, replaced = ({"max_requests": limit} for limit in (0, 10))
    verdicts = []
    for settings in (never, replaced):
        variant = VariantRecord(name="one", workers=1, settings=settings)
        summary = derive_summary(make_run(tmp_path / str(settings["max_requests"]), {"one": [*failing, *good]},
                                          variants=[variant]))  # fmt: skip
        verdicts.append([reason for reason in summary.trials[0].reasons if "failed" in reason])
        assert ("5 of 25 light requests failed (status 502)" in summary.trials[0].notes) == (settings is replaced)

    assert verdicts == 2 * [["5 of 25 light requests failed (status 502)"]]


def test_of_an_elastic_server_nobody_knows_who_was_idle_or_free(tmp_path: Path) -> None:
    """Two workers serve 150 and 50 requests; two more would be zeros if they were known to be there."""
    make_run(tmp_path, {"one": SHARED}, variants=[ELASTIC])

    summary = derive_summary(tmp_path)

    [table] = workers_tables(read_run(tmp_path), summary)
    assert [row[-1] for row in table.rows] == ["50 150"]
    rows = {(row.metric, row.stat): row.measured for row in summary.rows if row.request_class is None}

    assert rows["requests_by_worker", "max_over_mean"] == 1.5
    assert ("avoidable_wait", "count") not in rows


def test_a_load_generator_that_lags_breaks_littles_law(tmp_path: Path) -> None:
    """One request in four is under way for twice as long as k6's own timings say: 0.125 s on average, not 0.1."""
    lagging = [Request(sent_s=n / 10, lag_ms=100 if n % 4 == 0 else 0) for n in range(200)]

    verdict, [reason] = judged(tmp_path, lagging)

    assert verdict == "suspect"
    assert reason == (
        "Little's law does not hold: 1.26 requests were under way on average, throughput times response time is 1.01"
    )


@pytest.mark.parametrize(
    ("failed", "verdict", "reason"),
    [
        (2, "valid", "2 of 200 light requests failed (status 502)"),
        (3, "suspect", "3 of 200 light requests failed (status 502)"),
        (200, "invalid", "all 200 light requests failed (status 502)"),
    ],
)
def test_a_trial_is_judged_by_its_failures(tmp_path: Path, failed: int, verdict: str, reason: str) -> None:
    requests = [Request(error="status 502")] * failed + FINE[failed:]

    assert judged(tmp_path, requests) == (verdict, [reason])


def test_few_requests_that_all_fail_do_not_vanish_among_many_that_do_not(tmp_path: Path) -> None:
    requests = [
        *FINE,
        Request(request_class="heavy", error="request timeout"),
        Request(request_class="heavy", answered=False),
    ]

    verdict, [reason] = judged(tmp_path, requests)

    assert verdict == "suspect"
    assert reason.startswith("all 2 heavy requests failed (")
    assert reason.endswith("): their figures are invalid, and the other requests met another load than planned")


def test_a_trial_without_requests_is_invalid(tmp_path: Path) -> None:
    assert judged(tmp_path, []) == ("invalid", ["no request was sent"])


def test_a_planned_trial_that_left_nothing_is_invalid(tmp_path: Path) -> None:
    run = make_run(tmp_path, {"one": FINE}, order=[["one", "mix", "1"], ["two", "mix", "1"]], outcome="interrupted")

    summary = derive_summary(run)

    assert summary.validity.verdict == "invalid"
    assert summary.validity.reasons[0] == "two: invalid: not measured: the run was interrupted before"


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ({}, "one trial of each variant: no claim is decided, because another start of the servers may differ"),
        ({"outcome": "running"}, "the run did not end: its process was killed, or it is still at work"),
        ({"git": Git(commit="1" * 40, dirty=True)}, "the lab's own files had uncommitted changes"),
        (
            {"images": [Image(name="grafana/k6:2.1.0", id="sha256:1", stand_in="Go module proxy")]},
            "stand-in base images were used: grafana/k6:2.1.0 (Go module proxy)",
        ),
    ],
)
def test_a_run_says_what_to_keep_in_mind(tmp_path: Path, run: dict[str, Any], reason: str) -> None:
    summary = derive_summary(make_run(tmp_path, {"one": FINE}, **run))

    assert summary.validity.verdict == "valid"
    assert reason in summary.validity.reasons


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "{folder} has no run.json"),
        ("{", "{folder}/run.json cannot be read: Expecting property name enclosed in double quotes: line 1 column 2"),
        ("[]", "{folder}/run.json has schema None; this version reads the schemas 1 to 2"),
        ('{"schema": 0}', "{folder}/run.json has schema 0; this version reads the schemas 1 to 2"),
        ('{"schema": 1}', "{folder}/run.json: experiment: Field required"),
    ],
)
def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)

    with pytest.raises(BadRun) as caught:
        derive_summary(tmp_path)

    assert str(caught.value).startswith(message.format(folder=tmp_path))


def test_a_trial_that_the_run_does_not_know_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": FINE})
    make_trial(tmp_path, "other", 1, FINE)

    with pytest.raises(BadRun) as caught:
        derive_summary(tmp_path)

    assert str(caught.value) == f"{tmp_path}/other/mix/1/trial.json is of other under mix, which run.json does not know"
