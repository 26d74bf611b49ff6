"""Measures what the lab itself costs, and whether it disturbs its measurements: ``make bench``.

docs/develop/benchmarks.md has the results. Machines differ and drift. So every figure is a ratio, or stands beside the
figure to compare it with, and both are measured in turns in the same run. On an idle machine, this takes half an hour.
"""

import gzip
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import ciw
import psutil
import simpy
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright
from python_on_whales import Container, DockerClient

from stampede.docker.images import K6
from stampede.experiment.loads.script import REQUEST_MIB, USER_MIB, as_variables
from stampede.experiment.loads.scripts import K6_SCRIPTS
from stampede.logs.formats import HEAD
from stampede.paths import K6 as SCRIPTS
from stampede.paths import ROOT, SERVERS
from stampede.records.folder import read_trial, trial_folders
from stampede.theory.model import Class, Exponential, Open, QueueingSystem, Servers, WorkStep
from stampede.theory.simulate import simulate_in_chunks
from tools.browser import chromium, free_port
from tools.classes import make_class, with_results
from tools.production_logs import Served, Writing, write_logs

REPEATS = 5
LOGGED = 500_000
BEGAN = 1_795_000_000.0
POINTS_BYTES = 800 * 10**6
STATIC = """
daemon off; worker_processes 1; pid /tmp/nginx.pid; error_log /dev/stderr; worker_rlimit_nofile 16384;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 100000000;
  client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c; uwsgi_temp_path /tmp/d;
  scgi_temp_path /tmp/e;
  server { listen 8080; location / { default_type application/json;
    return 200 '{"worker": 7, "host": "0123456789ab", "thread": 9, "began": 1795169100.04491, "ended": 1795169100.04651, "server": "nginx"}'; } }
}
"""  # noqa: E501


def sending(duration: str, **classes: dict[str, float]) -> dict[str, str]:
    """Return the variables with which k6 sends classes of requests."""
    sends = K6_SCRIPTS["classes.js"]
    asked = {"classes": json.dumps(classes)}
    derived = sends.derived_environment(asked, duration)
    return as_variables(asked) | derived | {"DURATION": duration, "START_AT_MS": "0", "GRACE_S": "30"}


MIX = sending("20s", light={"users": 3}, heavy={"users": 1})
ALONE = sending("20s", light={"users": 1}, heavy={"users": 1, "takes_s": 30})
"""One virtual user without delay. The other virtual user's request sleeps in another thread."""


def main() -> None:
    """Measure all parts, or the parts that are named on the command line."""
    parts: dict[str, Callable[[Path], None]] = {
        "setup": nothing_to_do,
        "points": points_to_requests,
        "class": page_of_a_class,
        "diagnose": logs_to_answer,
        "floor": floor,
        "generator": the_generator,
        "memory": memory_of_k6,
        "added": added_by_the_lab,
        "together": side_by_side,
        "watched": watched,
        "workers": worker_classes,
        "theory": the_simulator,
        "wrapper": the_wrapper,
    }
    with tempfile.TemporaryDirectory(prefix="stampede-bench-") as folder:
        for name in sys.argv[1:] or list(parts):
            parts[name](Path(folder))


def nothing_to_do(_folder: Path) -> None:
    """Measure ``make setup`` on a machine that is ready."""
    times = [timed(["make", "setup"])[0] for _ in range(REPEATS + 1)][1:]
    show("Set-up when there is nothing to do", [("make setup", f"{median(times):.2f} s (max {max(times):.2f})")])


def page_of_a_class(folder: Path) -> None:
    """Measure how long it takes to make one page from the exports of twelve laptops."""
    archives = [str(one) for one in make_class(folder / "class", with_results(folder / "measured"))]
    command = [sys.executable, "-m", "stampede", "class", *archives, "--to", str(folder / "class.html")]
    times = [timed(command)[0] for _ in range(REPEATS)]
    show("The page of a class of twelve", [("stampede class", f"{spread(times)} (at most 30)")])


def logs_to_answer(folder: Path) -> None:
    """Measure ``stampede diagnose`` of the logs of many requests against a loop that only finds the requests."""
    (folder / "logs").mkdir()
    logs = [str(path) for path in write_logs(many_served(), folder / "logs", Writing())]
    loop = "import re, sys; found = re.compile(sys.argv[1]).search; " \
           "print(sum(bool(found(line)) for path in sys.argv[2:] for line in open(path)))"  # fmt: skip
    commands = {
        "stampede diagnose": [sys.executable, "-m", "stampede", "diagnose", *logs],
        "loop": [sys.executable, "-c", loop, HEAD, *logs],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(REPEATS):
        for name, command in commands.items():
            seconds[name].append(timed(command)[0])
    ratio = median(seconds["stampede diagnose"]) / median(seconds["loop"])
    show(
        f"The answer from two logs of {LOGGED:,} lines each",
        [
            ("stampede diagnose", spread(seconds["stampede diagnose"])),
            ("a loop with the pattern of a request", spread(seconds["loop"])),
            ("stampede diagnose / the loop", f"{ratio:.1f} (at most 15)"),
        ],
    )


def many_served() -> list[Served]:
    """Return LOGGED requests that eight workers served, some of them slow."""
    chance, sent, requests = random.Random(1), BEGAN, []
    for number in range(LOGGED):
        sent += chance.expovariate(300)
        began = sent + chance.expovariate(100)
        ended = began + chance.expovariate(1 if number % 100 == 0 else 30)
        path = chance.choice(("orders", "items", "login", "search"))
        requests.append(Served(path, sent, ended + 0.0004, began, ended, f"app:{number % 8}", f"{number:032x}"))
    return requests


def points_to_requests(folder: Path) -> None:
    """Measure how long it takes to turn points into requests, against the article's way and against only reading."""
    whole, tenth = folder / "whole", folder / "tenth"
    size = write_points_with_k6(whole)
    tenth.mkdir()
    with gzip.open(whole / "points.json.gz", "rb") as source, gzip.open(tenth / "points.json.gz", "wb", 6) as target:
        left = size // 10
        for line in source:
            target.write(line)
            left -= len(line)
            if left <= 0:
                break
    program = "from pathlib import Path; import sys; from stampede.evaluate.read.rows import write_requests; " \
              "write_requests(Path(sys.argv[1]), 'v', 'l', 1)"  # fmt: skip
    ours = [sys.executable, "-c", program]
    points = whole / "points.json.gz"
    chosen = 'select(.type=="Point" and .metric=="request_answered") | .data.metadata.worker'
    article = f"zcat {points} | jq -r '{chosen}' | sort | uniq -c"
    rows: dict[str, list[float]] = {"ours": [], "tenth": [], "zcat": [], "article": []}
    peak = 0
    for _ in range(REPEATS):
        spent, peak_now = timed([*ours, str(whole)])
        peak = max(peak, peak_now)
        rows["ours"].append(spent)
        rows["tenth"].append(timed([*ours, str(tenth)])[0])
        rows["zcat"].append(timed(["sh", "-c", f"zcat {points} > /dev/null"])[0])
    if shutil.which("jq"):
        rows["article"] = [timed(["sh", "-c", f"{article} > /dev/null"])[0] for _ in range(2)]
    middle = {name: median(values) for name, values in rows.items() if values}
    show(
        f"Points to requests: {size / 1e6:.0f} MB of points, {points.stat().st_size / 1e6:.0f} MB compressed",
        [
            ("the lab", spread(rows["ours"])),
            ("zcat > /dev/null", spread(rows["zcat"])),
            ("the lab / zcat", f"{middle['ours'] / middle['zcat']:.2f} (at most 1)"),
            (
                "the article's pipeline: zcat, jq, sort, uniq -c",
                spread(rows["article"]) if rows["article"] else "jq is not installed",
            ),
            (
                "the article's pipeline / the lab",
                f"{middle['article'] / middle['ours']:.1f} (at least 10)" if rows["article"] else "",
            ),
            ("the lab, with a tenth of the input", spread(rows["tenth"])),
            (
                "the lab with the whole input / the lab with a tenth",
                f"{middle['ours'] / middle['tenth']:.1f} (at most 11)",
            ),
            ("peak memory of the lab", f"{peak / 1024:.0f} MB (at most 1000)"),
        ],
    )


def floor(folder: Path) -> None:
    """Measure the least that a request costs: four virtual users, no delay, with more and more parts of the lab."""
    shown = []
    results: dict[str, list[tuple[float, float, float]]] = {}
    for repeat in range(3):
        with static_nginx(folder) as network:
            record(results, "k6, nginx", folder / f"static-{repeat}", network, "http://static:8080")
        with stack({"LAB_WORKERS": "1", "LAB_THREADS": "8"}) as network:
            direct = "k6, gunicorn 1x8 on 1 core, one virtual user"
            record(results, direct, folder / f"one-{repeat}", network, "http://app:8000", ALONE)
            whole = "k6, nginx, gunicorn 1x8 on 1 core, one virtual user"
            record(results, whole, folder / f"one-whole-{repeat}", network, "http://nginx:8080", ALONE)
        for cpus in ("1", "2"):
            with stack({"LAB_WORKERS": "1", "LAB_THREADS": "8", "LAB_CPUS": cpus}) as network:
                name = f"gunicorn 1x8 on {cpus} core{'s' if cpus != '1' else ''}"
                record(results, f"k6, {name}", folder / f"direct-{cpus}-{repeat}", network, "http://app:8000")
                record(results, f"k6, nginx, {name}", folder / f"whole-{cpus}-{repeat}", network, "http://nginx:8080")
    for name, ones in results.items():
        p50, p99, rate = (median(values) for values in zip(*ones, strict=True))
        shown.append((name, f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, {rate:.0f} requests/s"))
    show("The floor: 4 virtual users, delay 0, closed loop, 20 s, median of 3", shown)


def added_by_the_lab(folder: Path) -> None:
    """Measure how long a trial takes besides its load, and how long eight variants side by side take against one."""
    alone = [lab_run(folder / f"alone-{n}", "--variants", "one-process", "--duration", "30s") for n in range(REPEATS)]
    beyond = [trial_beyond_load(folder / f"alone-{n}") for n in range(REPEATS)]
    around = [wall - load - trial for (wall, load, _), trial in zip(alone, beyond, strict=True)]
    together = [lab_run(folder / f"eight-{n}", "--duration", "60s") for n in range(2)]
    longest = [lab_run(folder / f"sixty-{n}", "--variants", "shared-socket", "--duration", "60s") for n in range(2)]
    eight, one = median(wall for wall, _, _ in together), median(wall for wall, _, _ in longest)
    show(
        "How long a run takes beyond its loads",
        [
            (
                "what a trial takes beyond its load: start, wait for a quiet machine, collect, stop",
                f"{spread(beyond)} (at most 6 s)",
            ),
            ("what a command takes beyond its trials: start, analysis, report", spread(around)),
            ("eight variants of 60 s, side by side", f"{eight:.1f} s"),
            ("the slowest of the eight variants alone", f"{one:.1f} s"),
            ("side by side / alone", f"{eight / one:.2f} (less than 1.5)"),
        ],
    )


COMPARED = ("one-process", "shared-socket")
Figures = dict[tuple[str, str], dict[str, list[float]]]
"""The overhead of light requests in ms, by variant and percentile, and by what was compared."""


def side_by_side(folder: Path) -> None:
    """Measure the overhead of two variants alone and among all eight. Compare the difference with that of repeats."""
    figures: Figures = {}
    for repeat in range(REPEATS):
        for variant in COMPARED:
            _, _, summary = lab_run(folder / f"a-{variant}-{repeat}", "--variants", variant, "--duration", "30s")
            collect(figures, summary, variant, "alone")
        _, _, summary = lab_run(folder / f"e-{repeat}", "--duration", "30s")
        for variant in COMPARED:
            collect(figures, summary, variant, "among eight")
    show("Variants side by side: overhead of light requests alone and among all eight", told(figures))


def watched(folder: Path) -> None:
    """Measure the same while nobody watches, and while a browser on this machine shows it, in turns."""
    figures: Figures = {}
    busy: dict[str, list[float]] = {"not watched": [], "watched": []}
    for repeat in range(REPEATS):
        for where, seen in (("not watched", False), ("watched", True)):
            results = folder / f"{where}-{repeat}"
            _, _, summary = lab_run(results, "--variants", ",".join(COMPARED), "--duration", "30s", watched=seen)
            for variant in COMPARED:
                collect(figures, summary, variant, where)
            during = read_trial(trial_folders(results / "heavy-mix" / "latest")[0]).busy_during
            busy[where] += [] if during is None else [100 * during]
    rows = [(f"how busy the processors were, {where}", spread(values, "%")) for where, values in busy.items()]
    show("Watched by a browser on the same machine", told(figures) + rows)


WORKER_CLASSES = {
    "gthread": {},
    "gthread, worker_connections = threads": {"LAB_WORKER_CONNECTIONS": "2"},
    "IdleThreadWorker": {"LAB_WORKER_CLASS": "gunicorn_idle_thread.IdleThreadWorker"},
    "sync, as many workers as the others have threads": {
        "LAB_WORKER_CLASS": "sync", "LAB_WORKERS": "8", "LAB_THREADS": "1",
    },
}  # fmt: skip
SATURATING = sending("10s", light={"users": 12}, heavy={"users": 4})


def worker_classes(folder: Path) -> None:
    """Measure how many requests gunicorn serves in a second when it is saturated, with each worker class in turn."""
    results: dict[str, list[tuple[float, float, float]]] = {}
    for repeat in range(REPEATS):
        for place, (name, factors) in enumerate(WORKER_CLASSES.items()):
            with stack({"LAB_WORKERS": "4", "LAB_THREADS": "2", **factors}) as network:
                record(results, name, folder / f"{place}-{repeat}", network, "http://nginx:8080", SATURATING)
    rates = {name: [rate for _, _, rate in ones] for name, ones in results.items()}
    best = max(median(each) for each in rates.values())
    show(
        "Saturated gunicorn: 4 x 2 on one core, 16 virtual users without delay, 10 s, in turns",
        [
            (name, f"{spread(each, 'requests/s')}, {median(each) / best:.2f} of the best")
            for name, each in rates.items()
        ],
    )


WRAPPED = """\
import asyncio, json, sys, time

async def sent(message):
    pass

def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]

async def asgi(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})

def times_of(call):
    found = []
    for number in range(1000):
        began = time.perf_counter_ns()
        call(number)
        found.append(time.perf_counter_ns() - began)
    return found

def wsgi_with(app):
    return lambda number: app({"PATH_INFO": "/", "HTTP_LAB_ID": f"1-{number}"}, lambda *said: None)

def asgi_with(app):
    scope = {"type": "http", "path": "/"}
    loop = asyncio.new_event_loop()
    return lambda number: loop.run_until_complete(
        app(scope | {"headers": [(b"lab-id", f"1-{number}".encode())]}, None, sent))

if __name__ == "__main__":
    import wrapper
    called = sys.argv[1]
    calling = {"app": wsgi_with, "asgi": asgi_with}[called]
    calls = {"alone": calling(globals()[called]), "wrapped": calling(getattr(wrapper, called))}
    times = {name: [] for name in calls}
    for _ in range(50):
        for name, call in calls.items():
            times[name] += times_of(call)
    print(json.dumps(times))
"""


def the_wrapper(folder: Path) -> None:
    """Time calls of an application that does nothing, with and without the probe that notes who served a request."""
    folder = folder / "wrapped"
    folder.mkdir()
    (folder / "plain.py").write_text(WRAPPED)
    shutil.copyfile(SERVERS / "app" / "counters.py", folder / "stampede_counters.py")
    shutil.copyfile(SERVERS / "user-service" / "stampede_own.py", folder / "stampede_own.py")
    rows = []
    for what, called in (("WSGI", "app"), ("ASGI", "asgi")):
        kind = what.lower()
        (folder / "wrapper.py").write_text(
            f"from stampede_own import {kind} as wrap\nimport plain\n{called} = wrap(plain.{called})\n"
        )
        environment = os.environ | {
            "STAMPEDE_PROBE_ROWS": str(folder / "served"), "STAMPEDE_PROBE_ID": "Lab-Id",
            "STAMPEDE_PROBE_SEGMENTS": "1", "PYTHONPATH": str(SERVERS.parent / "probe"),
        }  # fmt: skip
        found: dict[str, list[list[float]]] = {"alone": [], "wrapped": []}
        for _ in range(REPEATS):
            done = subprocess.run(
                [sys.executable, "plain.py", called], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE
            )
            for name, times in json.loads(done.stdout).items():
                found[name].append(sorted(times))
        for stat, part in (("p50", 0.5), ("p99", 0.99)):
            at = {name: [one[int(part * len(one))] / 1000 for one in times] for name, times in found.items()}
            added = [wrapped - alone for wrapped, alone in zip(at["wrapped"], at["alone"], strict=True)]
            rows.append((f"{what}, {stat}: alone", spread(at["alone"], "µs")))
            rows.append((f"{what}, {stat}: added by the probe", spread(added, "µs")))
    show("A call of an application, and what the probe adds", rows)


def the_simulator(_folder: Path) -> None:
    """Measure how many customers of the same M/M/4 queue the simulator, SimPy and Ciw serve in a second, in turns."""
    model = QueueingSystem(Servers(threads=4), [Class("customer", Open(3.2), [WorkStep(Exponential(1.0))])])
    programs: dict[str, tuple[Callable[[], object], int]] = {
        "the lab": (lambda: served(model, 3_000_000 / 3.2), 3_000_000),
        "SimPy": (lambda: mm4_of_simpy(100_000), 100_000),
        "Ciw": (lambda: mm4_of_ciw(50_000), 50_000),
    }
    rates: dict[str, list[float]] = {name: [] for name in programs}
    served(model, 10)  # compile
    for _ in range(REPEATS):
        for name, (program, customers) in programs.items():
            began = time.monotonic()
            program()
            rates[name].append(customers / (time.monotonic() - began) / 1e6)
    ours, simpys, ciws = (median(values) for values in rates.values())
    thousand = QueueingSystem(Servers(sockets=1000, threads=4, balance="least"),
                     [Class("customer", Open(3200.0), [WorkStep(Exponential(1.0))])])  # fmt: skip
    began = time.monotonic()
    million = served(thousand, 1_000_000 / 3200)
    spent = time.monotonic() - began
    show(
        "The simulator",
        [(name, spread(values, "million customers/s")) for name, values in rates.items()]
        + [
            ("the lab / SimPy", f"{ours / simpys:.0f} (at least 40)"),
            ("the lab / Ciw", f"{ours / ciws:.0f} (at least 100)"),
            ("a million requests through a thousand workers, least connections", f"{million} in {spent:.1f} s"),
        ],
    )


def served(model: QueueingSystem, seconds: float) -> int:
    """Simulate a model, and return how many customers were served."""
    return sum(len(rows.sent) for rows in simulate_in_chunks(model, seconds, 1))


def mm4_of_simpy(customers: int) -> None:
    """Serve customers of an M/M/4 queue with SimPy."""
    environment = simpy.Environment()
    servers = simpy.Resource(environment, capacity=4)
    chance = random.Random(1)

    def customer() -> Generator[simpy.Event]:
        with servers.request() as server:
            yield server
            yield environment.timeout(chance.expovariate(1.0))

    def arrivals() -> Generator[simpy.Event]:
        for _ in range(customers):
            yield environment.timeout(chance.expovariate(3.2))
            environment.process(customer())

    environment.process(arrivals())
    environment.run()


def mm4_of_ciw(customers: int) -> None:
    """Serve customers of an M/M/4 queue with Ciw."""
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=3.2)],
        service_distributions=[ciw.dists.Exponential(rate=1.0)],
        number_of_servers=[4],
    )
    ciw.Simulation(network).simulate_until_max_customers(customers)


def told(figures: Figures) -> list[tuple[str, str]]:
    """Say of each figure whether two medians differ by more than repeats of the same measurement do."""
    rows = []
    for (variant, stat), values in figures.items():
        (one, ones), (other, others) = values.items()
        difference = abs(median(ones) - median(others))
        repeats = max(max(ones) - min(ones), max(others) - min(others))
        verdict = "within repeats" if difference <= repeats else "NOT within repeats"
        rows.append((f"{variant} {stat}", f"{one} {spread(ones, 'ms')}, {other} {spread(others, 'ms')}: {verdict}"))
    return rows


def collect(figures: Figures, summary: dict[str, Any], variant: str, where: str) -> None:
    """Add the light overhead of one variant to the figures."""
    for row in summary["rows"]:
        if (row["variant"], row["request_class"], row["metric"]) == (variant, "light", "overhead") and row["stat"] in (
            "p50", "p90", "p99",
        ) and row["measured"] is not None:  # fmt: skip
            figures.setdefault((variant, row["stat"]), {}).setdefault(where, []).append(row["measured"])


def lab_run(results: Path, *arguments: str, watched: bool = False) -> tuple[float, float, dict[str, Any]]:
    """Measure heavy-mix in a separate process. Return wall time and longest load in seconds, and the summary.

    ``watched``: a browser shows the page of ``stampede watch`` meanwhile.
    """
    began = time.monotonic()
    port = free_port()
    which = ["watch", "heavy-mix", "--port", str(port)] if watched else ["run", "heavy-mix"]
    command = [sys.executable, "-m", "stampede", *which, "--trials", "1", "--results", str(results), *arguments]
    if watched:
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as lab:
            look(port, lab)
        assert lab.returncode == 0
    else:
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    wall = time.monotonic() - began
    run = results / "heavy-mix" / "latest"
    loads = [read_trial(folder).seconds.load or 0.0 for folder in trial_folders(run)]
    return wall, max(loads), json.loads((run / "summary.json").read_text())


def look(port: int, lab: "subprocess.Popen[bytes]") -> None:
    """Show the page of ``stampede watch`` in a browser until the lab has ended."""
    with sync_playwright() as playwright, chromium(playwright) as browser:
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        while lab.poll() is None:
            with suppress(PlaywrightError):  # the lab does not listen yet
                page.goto(f"http://127.0.0.1:{port}/")
                break
            time.sleep(0.2)
        while lab.poll() is None:
            page.wait_for_timeout(500)


def trial_beyond_load(results: Path) -> float:
    """Return how many seconds the only trial of a run took besides its load."""
    [folder] = trial_folders(results / "heavy-mix" / "latest")
    trial = read_trial(folder)
    whole = datetime.fromisoformat(trial.ended) - datetime.fromisoformat(trial.began)
    return whole.total_seconds() - (trial.seconds.load or 0.0)


PLAIN = ("k6", "run", "--out", "json=/results/points.json.gz")
"""How k6 starts with its own defaults."""
AS_THE_LAB = ("sh", "/k6/run", "")
FEW_TAGS = ("k6", "run", "--system-tags", "scenario")
AS_IT_WAS = {
    "  vu = vu || exec.vu;\n": "  vu = exec.vu;\n",
    "  const { tags, metadata } = vu.metrics;\n": "  const { tags, metadata } = exec.vu.metrics;\n",
    "{ ...params, headers }": "{ ...params, headers, tags: { name } }",
}
"""What k6/lib/request.js was before 25 November 2026, by what it is now."""
PRINTS_LINES = {
    "  tags.request = name;\n  Object.assign(metadata, { id, ...known });\n": "",
    "requestSent.add(1)": "print('request_sent', 1, { id, request: name, ...known })",
    "  Object.assign(metadata, {\n": "  print('request_answered', duration, {\n    id, request: name, ...known,\n",
    "  requestAnswered.add(duration);\n": "",
    "  for (const field of Object.keys(metadata)) {\n    delete metadata[field];\n  }\n": "",
    "// Whether a request succeeded.": "const print = (metric, value, metadata) => console.log(JSON.stringify("
    "{ metric, type: 'Point', data: { time: new Date().toISOString(), value, metadata } }));\n// Whether",
}
"""Changes of k6/lib/request.js that let the script print lines instead of adding points."""
WAYS: dict[str, tuple[tuple[str, ...], dict[str, str], dict[str, str]]] = {
    "k6 with its defaults, the script as it was": (PLAIN, {}, AS_IT_WAS),
    "fewer system tags": ((*FEW_TAGS, *PLAIN[2:]), {}, AS_IT_WAS),
    "also a script that reads exec.vu once": ((*FEW_TAGS, *PLAIN[2:]), {}, {}),
    "also less garbage collection: as the lab runs k6": (AS_THE_LAB, {}, {}),
    "as the lab, points not compressed, for stampede watch": (AS_THE_LAB, {"LAB_POINTS": "json"}, {}),
    "as the lab, but CSV": (
        (*FEW_TAGS, "--out", "csv=/results/points.csv.gz"),
        {"GOGC": "400", "K6_CSV_TIME_FORMAT": "unix_nano"},
        {},
    ),
    "as the lab, but lines of the script and no points": (
        (*FEW_TAGS, "--console-output", "/results/points.json"),
        {"GOGC": "400"},
        PRINTS_LINES,
    ),
    "as the lab, but no output at all": (FEW_TAGS, {"GOGC": "400"}, {}),
}
"""Ways to run k6, by name: the command, variables, and changes of k6/lib/request.js. The first is the one before."""
SENDING = sending("6s", light={"users": 8}, heavy={"users": 8})


def the_generator(folder: Path) -> None:
    """Measure how many requests k6 sends for each second of a core, in several ways in turns. nginx has another core.

    The seconds are those that k6 used, so that the figure hardly depends on what else runs on the machine.
    """
    scripts = {name: changed(folder / f"k6-{place}", way[2]) for place, (name, way) in enumerate(WAYS.items())}
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    sizes: dict[str, list[float]] = {name: [] for name in WAYS}
    with static_nginx(folder, core=1) as network:
        for _ in range(REPEATS):
            for name, (way, variables, _) in WAYS.items():
                results = folder / "generator"
                shutil.rmtree(results, ignore_errors=True)
                settings = SENDING | {"LAB_URL": "http://static:8080"} | variables
                command = k6_command(
                    results, network, "classes.js", settings, ("sh", "-c", '"$@"; times', "sh", *way),
                    scripts[name], cpuset="0",
                )  # fmt: skip
                told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found = re.search(r"http_reqs\.*: (\d+)", told)
                assert found
                written = sum(path.stat().st_size for path in results.glob("points*"))
                rates[name].append(int(found[1]) / seconds_of_children(told))
                sizes[name].append(written / int(found[1]))
    before = rates[next(iter(WAYS))]
    rows = []
    for name, each in rates.items():
        ratio = spread([now / then for now, then in zip(each, before, strict=True)], "times")
        figures = f"{median(each):.0f} requests/s ({min(each):.0f} to {max(each):.0f}), {ratio}"
        rows.append((name, f"{figures}, {median(sizes[name]):.0f} bytes for each"))
    show("The load generator: requests per second of one core, ratio to the first row, bytes for each request", rows)


def changed(folder: Path, changes: dict[str, str]) -> Path:
    """Copy the scripts of k6/ to a folder with some changes in lib/request.js, and return the folder."""
    shutil.copytree(SCRIPTS, folder)
    text = (folder / "lib" / "request.js").read_text()
    for now, other in changes.items():
        assert text.count(now) == 1, now
        text = text.replace(now, other)
    (folder / "lib" / "request.js").write_text(text)
    return folder


def seconds_of_children(told: str) -> float:
    """Return the processor time of a shell's commands from what ``times`` printed at the end, in seconds."""
    last = told.strip().splitlines()[-1]
    return sum(60 * float(minutes) + float(seconds) for minutes, seconds in re.findall(r"(\d+)m([\d.]+)s", last))


def write_points_with_k6(folder: Path) -> int:
    """Let k6 write at least POINTS_BYTES of points, and return their size in bytes."""
    size = 0
    duration_s = 40
    while size < POINTS_BYTES:
        shutil.rmtree(folder, ignore_errors=True)
        with static_nginx(folder) as network:
            k6(folder, network, "http://static:8080", MIX | {"DURATION": f"{duration_s}s"})
        with gzip.open(folder / "points.json.gz") as points:
            size = sum(len(block) for block in iter(lambda: points.read(2**20), b""))
        duration_s = round(duration_s * max(1.5, 1.2 * POINTS_BYTES / max(size, 1)))
    return size


def memory_of_k6(folder: Path) -> None:
    """Measure k6's memory for each virtual user and for each request, which are constants of load scripts."""
    with static_nginx(folder) as network:
        few, many = (
            [peak_of_k6(folder, network, sending("10s", user={"users": users, "pause_s": 2}))[0] for _ in range(3)]
            for users in (10, 3010)
        )
        short, long = (
            [peak_of_k6(folder, network, sending(duration, user={"users": 10})) for _ in range(3)]
            for duration in ("5s", "35s")
        )  # fmt: skip
    each_user = (median(many) - median(few)) / 3000
    further = median(requests for _, requests in long) - median(requests for _, requests in short)
    each_request = 1024 * (median(peak for peak, _ in long) - median(peak for peak, _ in short)) / further
    show(
        "Memory of k6",
        [
            ("k6 with 10 virtual users", spread(few, "MiB")),
            (
                "each further virtual user",
                f"{each_user:.2f} MiB (constant in experiment.loads.script: {USER_MIB})",
            ),
            (
                "each request",
                f"{each_request:.2f} KiB (constant in experiment.loads.script: {1024 * REQUEST_MIB:.2f})",
            ),
        ],
    )


def peak_of_k6(folder: Path, network: str, settings: dict[str, str]) -> tuple[float, int]:
    """Run classes.js in a network. Return k6's peak memory in MiB, and how many requests k6 sent."""
    command = k6_command(folder, network, "classes.js", settings | {"LAB_URL": "http://static:8080"}, PLAIN)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        peak_kib = 0
        while running.poll() is None:
            time.sleep(0.2)
            for process in psutil.process_iter(["cmdline"]):
                if (process.info["cmdline"] or [""])[0] == "k6":
                    with suppress(OSError):
                        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
                        peak_kib = max(peak_kib, *map(int, re.findall(r"VmHWM:\s+(\d+)", status)), 0)
        assert running.stdout
        sent = re.search(r"http_reqs\.*: (\d+)", running.stdout.read())
    assert sent
    return peak_kib / 1024, int(sent[1])


def record(
    results: dict[str, list[tuple[float, float, float]]],
    name: str,
    folder: Path,
    network: str,
    url: str,
    load: dict[str, str] = MIX,
) -> None:
    """Measure one path once, and add p50 and p99 in ms and requests/s to the results."""
    out = k6(folder, network, url, load)
    found = re.search(r"http_req_duration\.*: (.*)", out)
    rate = re.search(r"http_reqs\.*: \d+\s+([\d.]+)/s", out)
    assert found
    assert rate
    stats = dict(word.split("=") for word in found[1].split())
    results.setdefault(name, []).append((ms(stats["p(50)"]), ms(stats["p(99)"]), float(rate[1])))


def k6(folder: Path, network: str, url: str, settings: dict[str, str]) -> str:
    """Run classes.js in a network and return what k6 printed."""
    command = k6_command(folder, network, "classes.js", settings | {"LAB_URL": url})
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def k6_command(
    folder: Path,
    network: str,
    script: str,
    settings: dict[str, str],
    way: tuple[str, ...] = AS_THE_LAB,
    scripts: Path = SCRIPTS,
    cpuset: str = "",
) -> list[str]:
    """Return the command that runs a script in a network and writes its points to a folder.

    ``way`` is the command that starts k6, and ``scripts`` is the folder k6/ or a copy of it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = {"K6_NO_USAGE_REPORT": "true", "LAB_POINTS": "json.gz", "LAB_K6_MEMORY": "1024m"} | settings
    flags = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
    program, *arguments = way
    return [
        "docker", "run", "--rm", "--network", network, "--user", f"{os.getuid()}:{os.getgid()}",
        "--volume", f"{scripts}:/k6:ro", "--volume", f"{folder}:/results", "--cpuset-cpus", cpuset, *flags,
        "--entrypoint", program, K6, *arguments, "--quiet", "--summary-trend-stats", "p(50),p(99)", f"/k6/{script}",
    ]  # fmt: skip


@contextmanager
def static_nginx(folder: Path, core: int | None = None) -> Iterator[str]:
    """Start an nginx that answers without a server, in a closed network, and yield the network's name.

    ``core`` is the only core that nginx may use; None: nginx may use all cores.
    """
    client = DockerClient()
    configuration = folder / "static"
    configuration.mkdir(parents=True, exist_ok=True)
    (configuration / "static.conf").write_text(STATIC)
    subprocess.run(["docker", "network", "create", "--internal", "stampede-bench"], check=True, capture_output=True)
    container = client.container.run(
        "stampede/nginx:trixie", ["-c", "/conf/static.conf"], detach=True, entrypoint="nginx",
        networks=["stampede-bench"], network_aliases=["static"], volumes=[(configuration, "/conf", "ro")],
        cpuset_cpus=None if core is None else [core],
    )  # fmt: skip
    assert isinstance(container, Container)
    try:
        container.execute(["sh", "-c", "until curl -sf -o /dev/null 127.0.0.1:8080; do :; done"])
        yield "stampede-bench"
    finally:
        container.remove(force=True)
        client.network.remove("stampede-bench")


@contextmanager
def stack(factors: dict[str, str]) -> Iterator[str]:
    """Start the lab by hand with some factors, and yield its network's name."""
    compose = ["docker", "compose", "--project-name", "stampede-bench", "--profile", "gunicorn"]
    environment = os.environ | factors
    subprocess.run([*compose, "up", "--detach", "--wait"], cwd=ROOT, env=environment, check=True, capture_output=True)
    try:
        yield "stampede-bench_lab"
    finally:
        subprocess.run([*compose, "down", "--timeout", "1"], cwd=ROOT, check=True, capture_output=True)


def timed(command: list[str]) -> tuple[float, int]:
    """Return how many seconds a command took, and the largest peak memory of any command so far, in KiB."""
    began = time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def ms(text: str) -> float:
    """Return one of k6's times in ms."""
    for unit, factor in (("µs", 1e-3), ("ms", 1.0), ("s", 1e3)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(text)


def spread(values: list[float], unit: str = "s") -> str:
    """Return median and range as a text."""
    return f"{median(values):.2f} {unit} ({min(values):.2f} to {max(values):.2f})"


def show(title: str, rows: list[tuple[str, str]]) -> None:
    """Print one table as Markdown, for docs/develop/benchmarks.md."""
    print(f"\n**{title}**\n\n| | |\n| --- | --- |")
    for name, value in rows:
        print(f"| {name} | {value} |", flush=True)


if __name__ == "__main__":
    main()
