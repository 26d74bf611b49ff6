"""stampede.diagnosis.deaths: who ended a worker, when, and which requests paid for it."""

import json
from collections.abc import Sequence
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stampede.diagnosis import section
from stampede.diagnosis.deaths import Death, Deaths, death_bottlenecks, preload_helps, waited_for_places
from stampede.diagnosis.evidence import Evidence
from stampede.diagnosis.model import Bottleneck, Diagnosis, read_diagnosis
from stampede.evaluate.metrics.waiting import Answered
from stampede.pipeline import derive_summary
from stampede.records.run import TODAY, USER_SERVICE, LoadRecord, VariantRecord
from stampede.records.summary import Summary, TrialValidity
from stampede.run.trial.reasons import own_end_reason
from tests.synthetic import BEGAN, Request, make_run, observation

DIED_S, BACK_S = 5.0, 8.0
LOST = "status 502"


def at(seconds: float) -> float:
    """Return the time so many seconds after the load began, in epoch seconds."""
    return BEGAN.timestamp() + seconds


def logged(seconds: float, text: str) -> str:
    """Return a line of a log as the engine keeps it."""
    return f"{(BEGAN + timedelta(seconds=seconds)).isoformat().replace('+00:00', '.123456789Z')} {text}\n"


def own_run(folder: Path, requests: list[Request], *, own: bool = True, times: int = 1, **settings: Any) -> Path:
    """Write a run of somebody's own service, of two workers, and return its folder."""
    load = LoadRecord(name="mix", script=USER_SERVICE if own else "mix.js", duration="20s", settings={"CLASSES": "{}"})
    today = VariantRecord(name=TODAY, workers=2, settings={"workers": 2, "memory_mib": 512, **settings})
    return make_run(folder, {TODAY: requests}, variants=[today], loads=[load], times=times)


def note(trial: Path, **changed: Any) -> None:
    """Change the record of a trial."""
    path = trial / "trial.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def diagnosis_of(run: Path) -> tuple[Summary, Diagnosis | None]:
    """Derive the results of a run."""
    summary = derive_summary(run)
    section.write_section(run, summary)
    return summary, read_diagnosis(run)


def service(
    folder: Path, log: Sequence[str] = (), *, notes: Sequence[str] = (), out_of_memory: int = 0,
    alive: Sequence[int] = (8, 9), own: bool = True, told: dict[str, str] | None = None, **settings: Any,
) -> tuple[TrialValidity, list[Bottleneck], str]:  # fmt: skip
    """Return what is said of a service of two workers, of which worker 7 died after 5 s, and worker 9 came after 8 s.

    A request is lost with worker 7, and two requests wait until worker 9 is there. Return the judgement of the trial,
    the bottlenecks, and the diagnosis as text.
    """
    run = own_run(folder, [
        *(Request(sent_s=n / 10, worker="box:7", service_time_ms=10) for n in range(48)),
        Request(sent_s=4.9, worker="box:7", service_time_ms=100, error=LOST),
        *(Request(sent_s=6.0, worker="box:9", service_time_ms=500, overhead_ms=2000, waits_ms=2000) for _ in range(2)),
        *(Request(sent_s=8 + n / 10, worker="box:8", service_time_ms=10) for n in range(50)),
    ], own=own, **settings)  # fmt: skip
    trial = folder / TODAY / "mix" / "1"
    for path in trial.glob("server-*"):
        path.unlink()
    sockets = {process: [100] for process in alive}
    said = observation("box", {7: 48, 8: 50, 9: 2}, sockets=sockets, out_of_memory=out_of_memory)
    (trial / "server-1.before.txt").write_text(observation("box", {7: 0, 8: 0}))
    (trial / "server-1.after.txt").write_text(said)
    (trial / "server-1.log").write_text("".join(logged(DIED_S, line) for line in log))
    note(trial, settings=told or {})
    loaded = [f"loaded,,box:{pid},1,2.000000,{at(time):.6f}" for pid, time in ((7, -9), (8, -9), (9, BACK_S))]
    (trial / "served-server-1.csv").write_text("".join(f"{line}\n" for line in [*loaded, *notes]))
    summary, diagnosis = diagnosis_of(run)
    assert (diagnosis is not None) == own
    found = diagnosis or Diagnosis(alarm=False, sentences=[])
    return summary.trials[0], found.bottlenecks, " ".join(found.sentences)


BUSY = [f"began,1-1,box:7,7,,{at(DIED_S - 5.2):.6f}"]
"""Worker 7 began a request, and noted nothing more until it died."""
RECENT = [f"began,1-1,box:7,7,,{at(DIED_S - 0.2):.6f}"]
DIED = "INFO:     Child process [7] died"
KILLED = "[2026] [1] [ERROR] Worker (pid:7) was sent SIGKILL! Perhaps out of memory?"
TIMEOUT = "[2026] [1] [CRITICAL] WORKER TIMEOUT (pid:7)"
CASES: dict[str, tuple[dict[str, Any], Sequence[str], str, Sequence[str]]] = {
    "gunicorn's timeout": (
        {"server": "gunicorn-sync", "timeout_s": 3}, [TIMEOUT, "[2026] [1] [ERROR] Worker (pid:7) exited with code 1."],
        "worker-timeout", ("gunicorn's arbiter killed 1 worker",
                           "timeout of 3 s. In a sync worker, this is a request that takes longer.",
                           "5.1 s after the load")),
    "gunicorn's timeout from the service's own file": (
        {"server": "gunicorn-gthread", "told": {"server-1": json.dumps({"timeout": "3"})}}, [TIMEOUT],
        "worker-timeout", ("timeout of 3 s. Something held up its event loop, or its main thread.",)),
    "uvicorn's supervisor": (
        {"server": "uvicorn", "notes": BUSY}, [DIED],
        "worker-timeout", ("uvicorn's supervisor killed 1 worker", "5 s", "--timeout-worker-healthcheck", "lock")),
    "nobody knows, with uvicorn": (
        {"server": "uvicorn", "notes": RECENT}, [DIED],
        "worker-deaths", ("1 worker died", "the server does not say")),
    "a limit of requests": (
        {"server": "gunicorn-uvicorn", "max_requests": 100},
        ["[2026] [7] [INFO] Maximum request limit of 100 exceeded. Terminating process.",
         "[2026] [7] [INFO] Worker exiting (pid: 7)"],
        "max-requests", ("max_requests = 100 ended 1 worker", "jitter", "preload_app")),
    "a limit of requests that only the counts tell": (
        {"server": "gunicorn-gthread", "max_requests": 50, "notes": RECENT}, [],
        "max-requests", ("max_requests = 50",)),
    "uWSGI's limit": (
        {"server": "uwsgi", "max_requests": 50},
        ["...The work of process 7 is done (max requests reached (50 >= 50)). Seeya!"],
        "max-requests", ("max_requests = 50",)),
    "uWSGI's harakiri": (
        {"server": "uwsgi"}, ["HARAKIRI ON WORKER 1 (pid: 7, try: 1)"],
        "worker-timeout", ("uWSGI's harakiri killed 1 worker",)),
    "the application itself": (
        {"server": "gunicorn-gthread"}, ["[2026] [1] [ERROR] Worker (pid:7) exited with code 3."],
        "worker-deaths", ("The application itself ended 1 worker", "exit code 3")),
    "a signal": (
        {"server": "gunicorn-gthread"}, ["[2026] [1] [WARNING] Worker (pid:7) was sent SIGSEGV!"],
        "worker-deaths", ("The signal SIGSEGV ended 1 worker", "no lack of memory")),
    "a signal, with uWSGI": (
        {"server": "uwsgi"}, ["DAMN ! worker 1 (pid: 7) died, killed by signal 11 :( trying respawn ..."],
        "worker-deaths", ("The signal SIGSEGV",)),
    "a lack of memory": (
        {"server": "gunicorn-gthread", "out_of_memory": 1}, [KILLED],
        "worker-deaths", ("The kernel killed 1 worker", "512 MiB", "memory_mib")),
    "a lack of memory, with uvicorn": (
        {"server": "uvicorn", "out_of_memory": 1, "notes": RECENT}, [DIED],
        "worker-deaths", ("The kernel killed 1 worker",)),
    "SIGKILL without a lack of memory": (
        {"server": "gunicorn-gthread"}, [KILLED], "worker-deaths", ("The signal SIGKILL",)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_who_ended_a_worker_is_said_with_what_it_cost(tmp_path: Path, case: str) -> None:
    """A worker that ends is a finding about the service, so the trial stands."""
    given, log, limit, parts = CASES[case]

    trial, bottlenecks, said = service(tmp_path, log, **given)

    assert trial.verdict != "invalid"
    [found] = [each for each in bottlenecks if each.limit in ("max-requests", "worker-timeout", "worker-deaths")]
    assert found.limit == limit
    assert [part for part in parts if part not in said] == []
    assert "1 of 101 light requests" in said  # lost
    assert "2 of 101 light requests for up to 2.0 s" in said  # waited
    assert found.numbers["loads_s"] == 2
    assert found.numbers["lost"] == 1
    assert (found.explains or 0) > 0.8  # the two waits are nearly all that requests lose
    assert [each.limit for each in bottlenecks] == [limit]  # these waits are no sign that a loop is held up
    assert said.index(" after the load began") < said.index("% of the light requests failed")  # which it explains
    if log:
        assert "The place of such a worker was empty for 2.9 s" in said


def test_containers_with_different_timeouts_are_told_with_one_cure() -> None:
    deaths = [Death(1, "box:7", "timeout", "3 s", 1.0, 1.0, 2.0), Death(1, "box:8", "timeout", "5 s", 1.0, 1.0, 4.0)]
    variant = VariantRecord(name=TODAY, workers=2, settings={"server": "gunicorn-gthread"})

    [found] = death_bottlenecks({"worker-timeout": Deaths(deaths, [])}, variant, lambda _: 0.0)

    assert [said for said in found.sentences if "empty" in said] == [
        "The place of such a worker was empty for 2.0 s (up to 3.0 s)."
    ]
    assert len([said for said in found.sentences if said.startswith("A longer timeout")]) == 1


def test_a_place_that_nobody_took_again_is_told(tmp_path: Path) -> None:
    """Both workers die, and one comes back."""
    ended = [f"[2026] [1] [ERROR] Worker (pid:{process}) exited with code 3." for process in (7, 8)]

    _, _, said = service(tmp_path, ended, server="gunicorn-gthread", alive=[9])

    assert "The application itself ended 2 workers, 5.1 s and 5.1 s after the load began" in said
    assert "When the load ended, 1 place still had no worker." in said


@pytest.mark.parametrize(("trial", "waited"), [(1, True), (2, False)])
def test_a_place_that_stays_empty_explains_no_wait_of_another_trial(trial: int, waited: bool) -> None:
    one, second = np.array([0]), np.array([1.0])
    answered = Answered(
        workers=["box:8"], classes=["light"], first=at(100), last=at(102), last_sent=at(100), worker=one,
        request_class=one, sent_s=0 * second, began_s=second, ended_s=2 * second,
    )  # fmt: skip
    died = Death(1, "box:7", "unknown", "", at(5), 5.0, inf)

    assert waited_for_places({"worker-deaths": Deaths([died], [])}, trial, answered).tolist() == [waited]


def test_requests_of_an_invalid_trial_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = own_run(tmp_path, [Request()], times=2)
    note(run / TODAY / "mix" / "2", outcome="failed", reason="the engine stopped")
    seen: list[tuple[int]] = []

    def diagnose(found: Evidence) -> Diagnosis:
        seen.extend(found.rows.execute("SELECT DISTINCT trial FROM requests").fetchall())
        return Diagnosis(alarm=False, sentences=[])

    monkeypatch.setattr(section, "diagnose", diagnose)
    diagnosis_of(run)

    assert seen == [(1,)]


def test_a_server_that_ends_as_a_whole_is_what_the_diagnosis_tells(tmp_path: Path) -> None:
    """Such as the only process of uvicorn, whose application ends it."""
    run = own_run(tmp_path, [Request()])
    reason = own_end_reason("asgi", "uvicorn", 1, 5.25, "a\nMemoryError\n")
    note(run / TODAY / "mix" / "1", outcome="failed", reason=reason)

    _, diagnosis = diagnosis_of(run)

    assert diagnosis
    assert diagnosis.alarm
    [said] = diagnosis.sentences
    assert [part for part in ("uvicorn", "5.2 s", "exit code 1", "  MemoryError") if part not in said] == []


def test_the_exception_of_an_application_that_fails_is_told(tmp_path: Path) -> None:
    """Such as a pool of connections that is too small; the engine puts a time before each line."""
    run = own_run(tmp_path, [Request(sent_s=n / 10, error="status 500" if n % 2 else None) for n in range(40)])
    lines = ["Traceback (most recent call last):", '  File "pool.py", line 9', "TimeoutError: QueuePool limit reached"]
    (run / TODAY / "mix" / "1" / "server-1.log").write_text("".join(logged(3, line) for line in lines))

    _, diagnosis = diagnosis_of(run)

    assert diagnosis
    assert "its log says: TimeoutError: QueuePool limit reached." in diagnosis.sentences[0]


@pytest.mark.parametrize(
    ("server", "code", "meaning"),
    [("gunicorn", 3, "a worker could not start"), ("gunicorn", 4, "could not load"), ("uvicorn", 3, "")],
)
def test_the_exit_code_of_a_server_is_explained(server: str, code: int, meaning: str) -> None:
    said = own_end_reason("box", server, code, 1.0, "")

    assert f"exit code {code}" in said
    assert "wrote nothing" in said
    assert meaning in said
    assert ("could not" in said) == bool(meaning)


def test_a_worker_of_the_labs_own_workload_that_dies_still_spoils_its_trial(tmp_path: Path) -> None:
    assert service(tmp_path, own=False, server="gunicorn-gthread")[0].verdict == "invalid"


def test_a_server_that_lost_no_worker_has_none_to_tell_of(tmp_path: Path) -> None:
    _, bottlenecks, _ = service(tmp_path, alive=[7, 8, 9], server="gunicorn-gthread")

    assert [each for each in bottlenecks if each.limit.startswith("worker-")] == []


@pytest.mark.parametrize(("loads_s", "helps"), [(3.0, True), (0.1, False)])
def test_to_preload_is_tried_only_if_starts_are_long(loads_s: float, helps: bool) -> None:
    assert preload_helps([Bottleneck(limit="max-requests", numbers={"loads_s": loads_s})]) == helps
