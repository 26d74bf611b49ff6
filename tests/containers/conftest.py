"""One run whose trials are spoilt, each in its own way; the modules read from it what the lab says of each."""

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from python_on_whales import Container
from python_on_whales.exceptions import DockerException

from stampede.records.folder import read_trial, trial_folder
from stampede.records.run import TrialRecord
from tests.conftest import PATIENCE_S, Lab, copy_lab, finish, lab_objects, wait_until
from tests.spoilt import answering, container_after, container_of, tell_which, trials
from tests.synthetic import older_run

EXPERIMENT = """\
title: Variants that are all spoilt but one
question: Does the lab notice?
loads:
  users:
    duration: {short: 8s, full: 1m}
    classes: {user: {users: 8, takes_s: {least: 0.05, most: 0.15}, pause_s: 0.2}}
    variants: [fine, uncounted, lying, starved, dawdling, throttled, overflowing, one-socket, two-sockets,
               worker-killed, server-killed, balancer-killed,
               refused, throws-one, throws-all, nowhere, sometimes, crossed, unhealthy, never-ready,
               k6-outgrows, server-outgrows, start-outgrows]
  killed:  # so long that it lasts until it is killed, on a busy machine, too
    duration: {short: 40s, full: 1m}
    classes: {user: {users: 8, takes_s: {least: 0.05, most: 0.15}, pause_s: 0.2}}
    variants: [process-of-k6-killed, k6-killed]
  too-many:
    duration: {short: 2s, full: 1m}
    classes: {arrival: {per_second: 40, takes_s: 0.5, users_max: 4}}
    variants: [plain]
  beside-a-client:
    duration: {short: 4s, full: 1m}
    classes: {user: {users: 8, takes_s: {least: 0.05, most: 0.15}, pause_s: 0.2}}
    client: {script: silent.py, settings: {connections: 1, silent_s: 0.5}}
    variants: [client-refuses, client-outgrows]
  beside-others:
    duration: {short: 4s, full: 1m}
    classes: {user: {users: 8, takes_s: {least: 0.05, most: 0.15}}}
    variants: [squeezed]
parallel: true
variants:
  plain:       {server: gunicorn-gthread, workers: 2, threads: 8, balancer: none}
  fine:        {server: gunicorn-gthread, workers: 2, threads: 8}
  uncounted:   {server: gunicorn-gthread, workers: 2, threads: 8}
  lying:       {server: gunicorn-gthread, workers: 2, threads: 9, balancer: none}
  starved:     {server: gunicorn-gthread, workers: 2, threads: 8, balancer: none}
  dawdling:    {server: gunicorn-gthread, workers: 2, threads: 8, balancer: none}
  throttled:   {server: gunicorn-gthread, workers: 2, threads: 12, cpus: 0.1, balancer: none}
  overflowing: {server: gunicorn-gthread, workers: 1, threads: 1, worker_connections: 1, somaxconn: 1}
  one-socket:  {server: gunicorn-gthread, workers: 2, threads: 10, reuse_port: true, balancer: none}
  two-sockets: {server: gunicorn-gthread, workers: 2, threads: 11, balancer: none}
  worker-killed:   {server: gunicorn-gthread, workers: 2, threads: 8, worker_class: acceptors.CountedThreads,
                    balancer: none}
  server-killed:   {server: gunicorn-gthread, workers: 2, threads: 8, balancer: none}
  balancer-killed: {server: gunicorn-gthread, workers: 2, threads: 8}
  k6-killed:       {server: gunicorn-gthread, workers: 2, threads: 8, balancer: none}
  process-of-k6-killed: {server: gunicorn-gthread, workers: 2, threads: 8, balancer: none}
  refused:     {server: gunicorn-gthread, workers: 1, threads: 8, balancer: none}
  throws-one:  {server: gunicorn-gthread, workers: 1, threads: 8, balancer: none}
  throws-all:  {server: gunicorn-gthread, workers: 1, threads: 8, balancer: none}
  nowhere:     {server: gunicorn-gthread, workers: 1, threads: 8, balancer: none}
  sometimes:   {server: gunicorn-gthread, workers: 1, threads: 8, balancer: none}
  crossed:     {server: gunicorn-gthread, workers: 1, threads: 8, balancer: none}
  unhealthy:   {server: gunicorn-gthread, workers: 1, threads: 2, replicas: 2, balance: least_conn}
  never-ready: {server: gunicorn-gthread, workers: 1, threads: 8, balancer: none}
  k6-outgrows:     {server: gunicorn-gthread, workers: 2, threads: 8, balancer: none}
  server-outgrows: {server: gunicorn-gthread, workers: 2, threads: 13, memory_mib: 300, balancer: none}
  start-outgrows:  {server: gunicorn-gthread, workers: 8, threads: 8, memory_mib: 64, balancer: none}
  client-refuses:  {server: gunicorn-gthread, workers: 2, threads: 8, balancer: none}
  client-outgrows: {server: gunicorn-gthread, workers: 2, threads: 8, balancer: none}
  squeezed:    {server: gunicorn-gthread, workers: 2, threads: 8, balancer: none}
claims:
  - says: Nothing waits where nothing is found
    value: {variant: nowhere, load: users, request_class: user, metric: overhead, stat: p99}
    at_most: 50
  - says: Nothing waits where something is found sometimes
    value: {variant: sometimes, load: users, request_class: user, metric: overhead, stat: p99}
    at_most: 50
"""
KILL_K6 = 'for one in /proc/[0-9]*; do read -r name < $one/comm; [ "$name" != k6 ] || kill -9 ${one#/proc/}; done'
SERVED = """$(cat /tmp/workers/* 2> /dev/null | awk '$1 == "served" { sum += $2 } END { print sum + 0 }')"""
UNTIL_SERVED = f"until [ {SERVED} -gt 20 ]; do sleep 0.2; done"
BUSY = "const until = Date.now() + {ms}; while (Date.now() < until) {{}}"
IS = "__ENV.WHICH === '{}'"
UNCOUNTED = f"if ({IS.format('uncounted')}) http.get(LAB_URL + path);"
DAWDLING = f"if ({IS.format('dawdling')} && sequence % 4 === 0) {{ {BUSY.format(ms=150)} }}"
STARVED = f"if ({IS.format('starved')}) {{ {BUSY.format(ms=20)} }}"
KEEPING = f"if ({IS.format('k6-outgrows')}) kept.push(new Array(100000).fill(__ITER));"
THROWING = f"""\
if ({IS.format("throws-all")} || ({IS.format("throws-one")} && __VU === 1)) {{
    sleep(0.1);
    throw new Error('broken on purpose');
  }}"""
LOST = f"{IS.format('nowhere')} || ({IS.format('sometimes')} && Math.random() < 0.2)"
OTHERS, OTHERS_FOR_S = 8, 7


def spoil(lab: Lab) -> None:
    (lab.root / "experiments" / "spoilt.yaml").write_text(EXPERIMENT)
    lab.start_loads_apart()
    lab.predict_roughly()
    lab.draw_nothing()
    lab.edit("stampede/run/trial/trial.py", "UP_WITHIN_S = 60", "UP_WITHIN_S = 120")  # so many start side by side
    tell_which(
        lab,
        LAB_K6_CPUS="'0.2' if name == 'starved' else '0'",
        LAB_K6_MEMORY="'64m' if name == 'k6-outgrows' else factors['LAB_K6_MEMORY']",
        LAB_READY="'never' if name == 'never-ready' else 'ready'",
        LAB_RETRIES="'4' if name == 'never-ready' else '14'",
    )
    which = '{"WHICH": trial.variant_name}'
    longer = which + ' | ({"DURATION": "2m"} if trial.variant_name.endswith("-outgrows") else {})'
    lab.edit("stampede/run/trial/compose.py", which, longer)
    spoil_scripts(lab)
    spoil_servers(lab)
    lab.edit("docker-compose.yml", "    profiles: [load]\n", "    profiles: [load]\n    cpus: ${LAB_K6_CPUS:-0}\n")
    lab.edit("docker-compose.yml", "http://127.0.0.1:8000/-/ready", "http://127.0.0.1:8000/-/${LAB_READY:-ready}")
    lab.edit("docker-compose.yml", "retries: 14", "retries: ${LAB_RETRIES:-14}")
    lab.edit("stampede/servers/base.py", '"wsgi": 8', '"wsgi": 1')
    together = "Plan((sum(batches[:-1], ()), batches[-1]), jobs, seed)"  # squeezed must squeeze nobody else
    lab.edit("stampede/plan/__init__.py", "Plan(tuple(batches), jobs, seed)", together)
    jumps = 'clock_step_s=load and load.clock_step_s + 3.5 * (self.planned.variant_name == "squeezed")'
    lab.edit("stampede/run/trial/trial.py", "clock_step_s=load and load.clock_step_s", jumps)


def spoil_scripts(lab: Lab) -> None:
    lab.edit("k6/lib/request.js", "  const response =", f"  {UNCOUNTED}\n  {DAWDLING}\n  const response =")
    users = "k6/classes.js"
    lab.edit(users, "text('PATHS')", f"text({IS.format('refused')} ? 'MORE_PATHS' : 'PATHS')")
    crossed = f"thresholds: {IS.format('crossed')} ? {{ http_reqs: ['count<1'] }} : {{}}"
    lab.edit(users, "  scenarios:", f"  {crossed},\n  scenarios:")
    begin = "export function ask() {"
    lab.edit(users, begin, f"const kept = [];\n\n{begin}\n  {KEEPING}\n  {THROWING}")
    lab.edit(users, "  const takesS =", f"  {STARVED}\n  const takesS =")
    lab.edit(users, "PATHS[name].replace(", f"PATHS[name].replace('/', {LOST} ? '/nowhere' : '/').replace(")
    lab.edit("stampede/run/trial/compose.py", 'start = {"START', 'start = {"WHICH": trial.variant_name, "START')
    client, told = "clients/silent.py", 'os.environ["WHICH"] == "client-{}"'
    lab.edit(client, "import sys", "import os\nimport sys")
    lab.edit(client, 'number("SILENT_S")', f'number("SILENT_FOR_S" if {told.format("refuses")} else "SILENT_S")')
    lab.edit(client, "await connection.get()", f"bytearray(2**30 * ({told.format('outgrows')}))")


def spoil_servers(lab: Lab) -> None:
    """Spoil what the servers do in some variants, which they know by their number of threads."""
    told, workload = 'os.environ.get("LAB_THREADS")', "servers/app/workload.py"
    app = '"LAB_APP": self.modules[self.app],'
    lab.edit("stampede/servers/base.py", app, f'{app} **({{"LAB_THREADS": "two"}} if self.replicas > 1 else {{}}),')
    lab.edit(workload, '"worker": os.getpid()', f'"worker": 77 if {told} == "9" else os.getpid()')
    reuse = 'os.environ["LAB_REUSE_PORT"] == "true"'
    lab.edit("servers/gunicorn/gunicorn.conf.py", reuse, f'({reuse}) != ({told} in ("10", "11"))')
    slow = f'if {told} == "12":\n        sum(range(500_000))'
    greed = f'if delay_s > 0.14 and {told} == "13":\n        globals()["_kept"] = bytearray(2**30)'
    lab.edit(workload, "return lambda: iter", f"{slow}\n    {greed}\n    return lambda: iter")


@dataclass
class Spoilt:
    """A run whose trials were spoilt, each in its own way."""

    lab: Lab
    exit_code: int
    said: str
    killed_worker: str
    older: dict[Path, bytes]
    unanswered_s: float

    def judged(self, which: str) -> tuple[str, list[str]]:
        """Return the verdict on a variant, or on plain under a load, and the reasons."""
        trial = trials(self.lab)[which]
        return trial["verdict"], trial["reasons"]

    @property
    def summary(self) -> dict[str, Any]:
        """The run's summary."""
        return dict(json.loads((self.lab.latest("spoilt") / "summary.json").read_text()))

    def record(self, variant: str, load: str = "users") -> TrialRecord:
        """Return the record of a trial."""
        return read_trial(trial_folder(self.lab.latest("spoilt"), variant, load, 1))

    def why_failed(self, variant: str, load: str = "users") -> str:
        """Return why a trial failed; it is invalid."""
        record = self.record(variant, load)
        assert record.outcome == "failed"
        assert self.judged(variant)[0] == "invalid"
        return record.reason or ""


@pytest.fixture(scope="session")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Spoilt:
    """All variants under their loads, nearly all side by side; of five of them something is killed meanwhile.

    Beside the run lies another one, which another version of the lab wrote. Nothing is left running.
    """
    assert lab_objects() == []
    lab = copy_lab(tmp_path_factory.mktemp("spoilt"))
    spoil(lab)
    older = content(older_run(lab.results))
    left = lab.leftovers()
    with answering() as gaps, ThreadPoolExecutor(1) as pool:
        process = lab.start("run", "spoilt", "--jobs", "28")
        try:
            pool.submit(compute_beside, "squeezed", process)
            worker = kill()
        finally:
            code, _, said = finish(process, patience_s=2 * PATIENCE_S)
    assert lab_objects() == []
    assert lab.leftovers() == left
    return Spoilt(lab, code, said, worker, older, gaps.longest_s)


def kill() -> str:
    """Kill what is to be killed, each under its own load, and return the process id of the worker that was."""
    with ThreadPoolExecutor(5) as pool:
        worker = pool.submit(kill_a_worker)
        killed: list[Future[Any]] = [
            pool.submit(lambda: under_load("server-killed").kill()),
            pool.submit(lambda: under_load_there("balancer-killed", "nginx").kill()),
            pool.submit(lambda: under_load_there("k6-killed", "k6").kill()),
            pool.submit(lambda: kill_k6(under_load_there("process-of-k6-killed", "k6"))),
        ]
    for one in killed:
        one.result()
    return worker.result()


def kill_a_worker() -> str:
    server = under_load("worker-killed")
    [worker, *_] = str(server.execute(["sh", "-c", "ls /tmp/workers"])).split()
    server.execute(["sh", "-c", f"kill -9 {worker}"])
    return worker


def under_load_there(variant: str, service: str) -> Container:
    """Wait until the workers of a variant have counted some requests, and return the container of another service."""
    found = wait_until(lambda: container_of(variant, service), 2 * PATIENCE_S, every_s=0.3)  # it takes a while to look
    under_load(variant)
    return found


def kill_k6(container: Container) -> None:
    """Kill k6 itself, which is not the first process of its container."""
    with suppress(DockerException):  # the shell ends with the container
        container.execute(["sh", "-c", KILL_K6])


def under_load(variant: str) -> Container:
    """Wait until the workers of a variant have counted some requests, and return its server's container."""
    return container_after(variant, "gunicorn", UNTIL_SERVED)


def compute_beside(variant: str, run: "subprocess.Popen[str]") -> None:
    """Compute for some seconds in several processes as soon as the load of a variant, which is short, starts."""
    wait_until(lambda: container_of(variant, "k6") or run.poll() is not None, 2 * PATIENCE_S, every_s=0.3)
    program = f"import time\nend = time.monotonic() + {OTHERS_FOR_S}\nwhile time.monotonic() < end: pass"
    for other in [subprocess.Popen([sys.executable, "-c", program]) for _ in range(OTHERS)]:
        other.wait()


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
