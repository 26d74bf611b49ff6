"""Runs whose points are counted by hand, written in k6's format."""

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from stampede.records.folder import trial_folder, write_record
from stampede.records.run import Host, Image, LoadRecord, Run, TrialRecord, VariantRecord

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TRIAL = TrialRecord(
    variant="one", load="mix", trial=1, outcome="measured", k6_exit_code=0,
    began="2026-01-02T03:04:05.000Z", ended="2026-01-02T03:05:05.000Z", side_by_side=1,
    busy_before=0.01, busy_during=0.1, steal_during=0.0, pressure_during=0.05, clock_step_s=0.0,
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """One request as k6 saw it. If ``answered`` is false, the end of the run cut the request off.

    ``lag_ms`` is time that k6 itself spent on the request, and did not count. The worker begins ``waits_ms`` after the
    request was sent. ``status`` is the status of a failed request; 0 means that there was no answer. A request of class
    ``post`` that succeeds is redirected. ``generator`` is the number of the k6 container that sent the request.
    """

    overhead_ms: float = 1.0
    service_time_ms: float = 100.0
    request_class: str = "light"
    worker: str = "box:7"
    sent_s: float = 0.0
    error: str | None = None
    answered: bool = True
    lag_ms: float = 0.0
    waits_ms: float = 0.0
    user: int = 1
    connection: str = ""
    status: int = 502
    visit: str | None = None
    generator: int = 1


def point(metric: str, time: datetime, value: float, request_class: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return one Point line of k6's JSON output. The values of the metadata are strings, as in k6."""
    texts = {key: str(text) for key, text in metadata.items()}
    stamp = time.isoformat(timespec="microseconds").replace("+00:00", "Z")
    tags = {"group": "", "request": request_class, "scenario": request_class}
    return {"metric": metric, "type": "Point", "data": {"time": stamp, "value": value, "tags": tags, "metadata": texts}}


def lines(requests: Iterable[Request]) -> Iterable[dict[str, Any]]:
    """Yield the lines that k6 would write for the requests, with some of k6's own points among them."""
    yield {"type": "Metric", "data": {"name": "request_sent", "type": "counter"}, "metric": "request_sent"}
    for number, one in enumerate(requests, start=1):
        sent = BEGAN + timedelta(seconds=one.sent_s)
        duration_ms = one.service_time_ms + one.overhead_ms
        answered = sent + timedelta(milliseconds=duration_ms + 0.15 + one.lag_ms)
        known: dict[str, Any] = {"id": f"{one.user}-{number}", "asked_ms": one.service_time_ms}
        known |= {} if one.visit is None else {"visit": one.visit}
        yield point("request_sent", sent, 1, one.request_class, known)
        if not one.answered:
            continue
        yield point("http_req_duration", answered, duration_ms, one.request_class, known)
        status = 302 if one.request_class == "post" else 200
        outcome = {"error": one.error, "status": one.status} if one.error else {"status": status, "worker": one.worker}
        began = sent + timedelta(milliseconds=one.waits_ms)
        yield point("request_answered", answered, duration_ms, one.request_class, known | outcome | {
            "blocked_ms": 0.1, "connecting_ms": 0.05, "thread": 9, "connection": one.connection,
            "began": began.timestamp(), "ended": answered.timestamp(), "server": "gunicorn/1",
        })  # fmt: skip


def visit(
    name: str,
    at_s: float = 0,
    *,
    took_ms: tuple[float, ...] = (20, 30, 10),
    error: str | None = None,
    generator: int = 1,
    worker: str = "box:7",
) -> list[Request]:
    """Return the successive requests of a visit, as many as ``took_ms`` has times. An ``error`` fails the last one."""
    requests = []
    for place, (request_class, one_ms) in enumerate(zip(("page", "post", "newest"), took_ms, strict=False), start=1):
        failed = error if place == len(took_ms) else None
        requests.append(
            Request(one_ms, 0, request_class, worker, at_s, error=failed, visit=name, generator=generator, status=503)
        )
        at_s += (one_ms + 0.15) / 1000
    return requests


def write_points(path: Path, requests: Iterable[Request]) -> None:
    """Write a points file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines(requests))


def observation(
    host: str = "box", served: dict[int, int] | None = None, *, sockets: dict[int, list[int]] | None = None,
    overflows: int = 0, throttled_s: float = 0, out_of_memory: int = 0, balanced: int | None = None,
    counts: dict[int, dict[str, int]] | None = None, processor_s: float = 0, memory_mib: float = 30,
    stalls: Iterable[tuple[float, float]] | None = None, rows: Iterable[str] | None = None,
    database: dict[str, int] | None = None, signals: dict[str, int] | None = None,
) -> str:  # fmt: skip
    """Return what servers/observe prints in a container with such counts.

    Without ``sockets``, all workers share socket 100. ``counts`` has what a worker counted besides the requests that it
    served. ``rows`` names the visit that wrote each row of the database.
    """
    served = served or {}
    holds = {pid: [100] for pid in served} if sockets is None else sockets
    listening = sorted({inode for inodes in holds.values() for inode in inodes})
    sections = {
        "/etc/hostname": f"{host}\n",
        "TcpExt": f"TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 {overflows} {overflows}\n",
        "listening sockets: port in hexadecimal, inode": "".join(f"1F40 {inode}\n" for inode in listening),
        "sockets of processes": "".join(
            f"/proc/{pid}/fd socket:[{inode}]\n" for pid, inodes in holds.items() for inode in [7, *inodes]
        ),
        "/sys/fs/cgroup/cpu.stat": f"usage_usec {processor_s * 1e6:.0f}\nthrottled_usec {throttled_s * 1e6:.0f}\n",
        "/sys/fs/cgroup/memory.stat": f"anon {memory_mib * 2**20:.0f}\nfile 12345\n",
        "/sys/fs/cgroup/memory.events": f"oom 0\noom_kill {out_of_memory}\n",
    }
    for pid, count in served.items():
        counted = {"served": count} | (counts or {}).get(pid, {})
        sections[f"worker {pid}"] = "".join(f"{name} {value:020}\n" for name, value in counted.items())
    if balanced is not None:
        sections["balancer"] = f"served {balanced}\n"
    if stalls is not None:
        sections["stalls"] = "".join(f"{began:.6f} {ended:.6f}\n" for began, ended in stalls)
    if rows is not None:
        sections["rows"] = "".join(f"{visit}\n" for visit in rows)
    for section, numbers in (("signals", signals), ("database", database)):
        if numbers is not None:
            sections[section] = "".join(f"{name} {count}\n" for name, count in numbers.items())
    return "".join(f"==> {name} <==\n{text}" for name, text in sections.items())


def write_observations(folder: Path, requests: Iterable[Request], workers: int = 2) -> None:
    """Write what the containers would say before and after the load if every request reached its worker.

    If fewer than ``workers`` workers served requests, the first container also has idle workers. If there are visits,
    there is a database, with a row for each visit whose form was answered without an error.
    """
    requests = list(requests)
    answered = [one for one in requests if one.answered]
    seen = {tuple(one.worker.split(":")) for one in answered if not one.error} or {("box", "7")}
    seen |= {(min(seen)[0], str(99 + idle)) for idle in range(workers - len(seen))}
    for number, host in enumerate(sorted({host for host, _ in seen}), start=1):
        counts = {
            int(pid): sum(one.worker == f"{host}:{pid}" and not one.error for one in answered)
            for box, pid in seen
            if box == host
        }
        (folder / f"server-{number}.before.txt").write_text(observation(host, dict.fromkeys(counts, 0)))
        (folder / f"server-{number}.after.txt").write_text(observation(host, counts))
    (folder / "nginx-1.before.txt").write_text(observation("proxy", balanced=2))
    (folder / "nginx-1.after.txt").write_text(observation("proxy", balanced=2 + len(answered)))
    if any(one.visit for one in requests):
        rows = [one.visit for one in answered if one.visit and one.request_class == "post" and not one.error]
        for when, said in database_seen(rows).items():
            (folder / f"database-1.{when}.txt").write_text(said["database-1"])


def database_seen(rows: Iterable[str], *, before: Iterable[str] = (), refused: int = 0) -> dict[str, dict[str, str]]:
    """Return what a database would say before and after the load. ``rows`` names the visit that wrote each row."""
    counts = (
        {"connections_max": 1, "connections_refused": 2},
        {"connections_max": 5, "connections_refused": 2 + refused},
    )
    return {
        "before": {"database-1": observation("store", rows=before, database=counts[0])},
        "after": {"database-1": observation("store", rows=rows, database=counts[1])},
    }


def make_trial(
    run: Path, variant: str, number: int, requests: Iterable[Request], *, workers: int = 2, **changed: Any
) -> Path:
    """Write the folder of one trial, and return the folder."""
    folder = trial_folder(run, variant, "mix", number)
    requests = list(requests)
    for generator in sorted({one.generator for one in requests} or {1}):
        name = "points.json.gz" if generator == 1 else f"points-{generator}.json.gz"
        write_points(folder / name, [one for one in requests if one.generator == generator])
    write_observations(folder, requests, workers)
    record = dict(TRIAL) | {"variant": variant, "trial": number} | changed
    write_record(folder / "trial.json", TrialRecord(**record))
    return folder


def make_run(run: Path, requests: dict[str, list[Request]], *, times: int = 1, **changed: Any) -> Path:
    """Write the folder of a run with a trial of each variant under the load ``mix``, and return the folder.

    ``times``: there are so many trials of each variant, which are all the same.
    """
    workers = {one.name: one.workers for one in changed.get("variants", [])}
    for number in range(1, times + 1):
        for variant, ones in requests.items():
            make_trial(run, variant, number, ones, workers=workers.get(variant, 2))
    write_record(run / "run.json", run_record([*requests], times, **changed))
    return run


def older_run(results: Path) -> Path:
    """Write a run that another version wrote, and that was killed while a second trial was measured."""
    run = make_run(results / "spoilt" / "20200102T030405Z", {"one": [Request()]})
    (run / "one" / "mix" / ".2.part").mkdir()
    (run / "one" / "mix" / ".2.part" / "points.json.gz").write_bytes(b"what k6 wrote")
    for name in ("run.json", "summary.json"):
        (run / name).write_text(json.dumps(json.loads((run / "run.json").read_text()) | {"schema": 0}))
    return run


def run_record(names: Sequence[str], times: int = 1, **changed: Any) -> Run:
    """Return the record of a run of variants with these names, of each of which there are so many trials."""
    record: dict[str, Any] = {
        "experiment": "made-up", "title": "A made-up question", "question": "Does it add up?", "source": None,
        "published": [], "claims": [],
        "variants": [VariantRecord(name=name, workers=2, settings={"workers": 2}) for name in names],
        "loads": [LoadRecord(name="mix", script="mix.js", duration="60s", settings={"VUS": "1"})],
        "sleeping": True, "full": False, "trials": times, "jobs": 1, "seed": 0,
        "order": [[name, "mix", str(number)] for number in range(1, times + 1) for name in names],
        "command": "make experiment NAME=made-up",
        "host": Host(cpu="a processor", cores=2, memory_gib=4, kernel="Linux 6", engine="Docker 1", compose="2"),
        "git": None, "images": [Image(name="debian:trixie-slim", id="sha256:0123456789abcdef")],
        "began": "2026-01-02T03:04:05.000Z", "ended": "2026-01-02T03:05:05.000Z", "outcome": "completed",
    }  # fmt: skip
    return Run(**(record | changed))


NOWHERE = Host(cpu="", cores=0, memory_gib=0, kernel="", engine="", compose="")
"""The machine of a run that is only planned."""
