"""experiment and servers: what a file asks for is what is measured; mistakes are named with their place."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic import TypeAdapter

from stampede.errors import WrongUse
from stampede.evaluate.statistics.estimates import comparable_figures
from stampede.experiment.file import load_experiment, read_experiment
from stampede.experiment.model import Api
from stampede.experiment.variations import computing
from stampede.paths import EXPERIMENTS
from stampede.plan import lay_out
from stampede.plan.timing import expected_s
from stampede.servers import Server
from stampede.servers.base import Variant
from stampede.servers.services import image_of
from tests.wrong import listed, problem_of, refusal, unnamed

SETTINGS = "  classes: {light: {users: 5, takes_s: {least: 0, most: 1}}, heavy: {users: 2, takes_s: 10}}\n"
GOOD = """\
title: A title
question: Why?
load:
  duration: {short: 60s, full: 5m}
SETTINGSvariants:
  shared-socket:
    server: gunicorn-gthread
    workers: 4
    threads: 2
  one-process: {server: gunicorn-gthread, workers: 1, threads: 8}
published:
  - {variant: shared-socket, request_class: light, metric: overhead, stats: {p99: 1000}}
claims:
  - says: It waits
    value: {variant: shared-socket, request_class: light, metric: overhead, stat: p99}
    at_least: 1000
""".replace("SETTINGS", SETTINGS)


def refused(tmp_path: Path, text: str) -> str:
    """Return the message with which an experiment is refused."""
    return refusal(read_experiment, tmp_path / "mine.yaml", text)


def test_a_good_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD)

    experiment = read_experiment(tmp_path / "mine.yaml")

    assert list(experiment.variants) == ["shared-socket", "one-process"]
    assert list(experiment.all_loads) == ["classes"]
    assert json.loads(experiment.all_loads["classes"].environment()["CLASSES"])["heavy"] == {"users": 2, "takes_s": 10}
    assert experiment.variants["one-process"].factors()["LAB_THREADS"] == "8"


FIGURES = "request_class: light, metric: overhead, stats: {p99: 1000}"
MISTAKES = [
    ("threads: 2\n", "threds: 2\n"),
    (SETTINGS, "  script: burts.js\n  settings: {}\n"),
    (SETTINGS, SETTINGS + "  script: burst.js\n"),
    (SETTINGS, ""),
    ("value: {variant: shared-socket", "value: {variant: shared"),
    ("request_class: light, metric: overhead, stat: p99}", "request_class: lite, metric: overhead, stat: p99}"),
    ("    at_least: 1000\n", ""),
    (FIGURES, "metric: response_time, completion_times: [1, 3, 2.5]"),
    ("    threads: 2\n", "    threads: 2\n    queue_timeout_s: 5\n"),
    (SETTINGS, SETTINGS + "  api: {every_s: 5, stall_s: 5, takes_s: 1}\n"),
    (SETTINGS, SETTINGS + "  variants: [shared-socket]\n"),
    ("  one-process:", "  One_Process:"),
    ("variants:\n", f"loads:\n  a: {{duration: {{short: 1s, full: 1s}},{SETTINGS.rstrip()}}}\nvariants:\n"),
    (GOOD, ""),
    (GOOD, "- a\n- b\n"),
]  # fmt: skip
PUBLISHED = "published.0 "
OTHER_MISTAKES = [
    (SETTINGS, SETTINGS + "  client: {script: sillent.py, settings: {connections: 2}}\n",
     "load.client.script sillent.py silent.py"),
    (SETTINGS, SETTINGS + "  client: {script: silent.py, settings: {lab_server: 2}}\n",
     "load.client.settings.lab_server leave"),
    ("claims:\n", "curve: {over: thread, values: [{metric: memory, stat: total}]}\nclaims:\n",
     "curve.over thread threads"),
    ("claims:\n", "curve: {over: threads, values: [{metric: memory, stat: p99}]}\nclaims:\n",
     "curve.values.0 p99 total"),
    ("metric: overhead, stat: p99", "metric: memory, stat: total", "claims.0.value memory request_class"),
    ("metric: overhead, stat: p99", "metric: throughput, stat: p99", "claims.0.value throughput p99 per_second"),
    ("stats: {p99: 1000}", "counts: [1, 2]", PUBLISHED + "counts requests_by_worker"),
    ("stats: {p99: 1000}", "stats: {p99: 1000}, completion_times: [1000]", PUBLISHED + "stats counts completion_times"),
    ("stats: {p99: 1000}", "completion_times: [1000]", PUBLISHED + "completion_times response_time"),
    ("overhead, stats: {p99: 1000}", "response_time, completion_times: [1000]", PUBLISHED + "request_class leave"),
    (FIGURES, "metric: response_time, completion_times: [0, 1]", PUBLISHED + "completion_times 0"),
    (FIGURES, "metric: response_time, completion_times: [1, .inf]", "published.0.completion_times.1 inf finite"),
    ("overhead, stats: {p99: 1000}", "requests_by_worker, counts: [1, 2], divided_by: 10",
     PUBLISHED + "divided_by times"),
    (FIGURES, "metric: burst, stats: {largest_share: 0.5}, divided_by: 10", PUBLISHED + "divided_by times"),
    (SETTINGS, SETTINGS + "  variants: [one-proces]\n", "published.0 shared-socket classes"),
    (SETTINGS, SETTINGS + "  variants: [shared-socket, one-proces]\n", "load.variants one-proces one-process"),
    (SETTINGS, SETTINGS + "  database: {}\n", "load.database shared-socket django"),
    (SETTINGS, SETTINGS + "  relative: {times: 2, of: shared-socket, under: classes}\n", "load.relative loads"),
    (SETTINGS, "  script: burst.js\n  settings: {cpu: hold}\n", "load.settings.cpu leave"),
    ("  one-process:", "  shared-socket:", "mine.yaml:11 shared-socket twice"),
    ("load:", "null: 3\nload:", "None text because burns"),
]  # fmt: skip


def test_each_rule_of_an_experiment_has_its_message(tmp_path: Path) -> None:
    others = [(GOOD.replace(old, new, 1), names) for old, new, names in OTHER_MISTAKES]

    assert listed(refused(tmp_path, GOOD.replace(*one, 1)) for one in MISTAKES) == snapshot("""\
mine.yaml:10: variants.shared-socket.threds: unknown key; there are threads, app, balance, …
mine.yaml:5: load.script: k6/burts.js does not exist; there are burst.js, steps.js, crash.js, …; requests are
    described by classes now
mine.yaml:3: load: give either classes, or a script and its settings
mine.yaml:3: load: give classes, the requests by the name of their class, or a script and its settings
mine.yaml:16: claims.0.value.variant: there is no variant shared; there are shared-socket, one-process
mine.yaml:16: claims.0.value.request_class: load classes has no class lite; it has light, heavy
mine.yaml:15: claims.0: a claim needs exactly one of at_least and at_most
mine.yaml:13: published.0: completion_times are in order of completion; 2.5 ms comes after 3 ms
mine.yaml:7: variants.shared-socket: queue_timeout_s: balancer: nginx does not queue requests here; choose
    balancer: haproxy
mine.yaml:6: load.api: a stall of 5 s every 5 s never ends; stall_s must be less than every_s
mine.yaml:12: variants.one-process: no load measures this variant; add it to the variants of a load
mine.yaml:11: variants.One_Process: 'One_Process' must be a name of lower-case letters, digits and single
    hyphens, e.g. one-process
mine.yaml: give either load or loads
mine.yaml: no value; it must be a mapping, e.g. title: …, question: …, load: {…}, variants: {…}
mine.yaml: ['a', 'b'] must be a mapping, e.g. title: …, question: …, load: {…}, variants: {…}
""")
    assert unnamed(read_experiment, tmp_path / "mine.yaml", others) == []


def with_variant(settings: str) -> str:
    """Return the good file with other settings of its first variant, on one line."""
    block = "shared-socket:\n    server: gunicorn-gthread\n    workers: 4\n    threads: 2\n"
    assert block in GOOD
    workers = "" if re.search(r"\bworkers:", settings) else "workers: 4, "
    return GOOD.replace(block, f"shared-socket: {{{workers}{settings}}}\n")


MISTAKES_OF_VARIANTS = [
    ("server: gunicorn-sync, app: flask, release: 26.2.0", "26.2.0 flask 27.0.1"),
    ("server: gunicorn-gevent, app: django, release: 25.3.0", "25.3.0 django 27.0.1"),
    ("server: uvicorn, app: django, threads: 2", "threads django leave"),
    ("server: uvicorn, app: django, middleware: base", "middleware base django sync async"),
    ("server: uvicorn, app: fastapi-async, middleware: sync", "middleware sync fastapi-async asgi base"),
    ("server: granian, app: fastapi-async, keepalive_s: 65", "keepalive_s granian uvicorn"),
    ("server: hypercorn, app: fastapi-async, limit_concurrency: 8", "limit_concurrency hypercorn uvicorn"),
    ("server: uwsgi, threads: 2, router: tcp, protocol: uwsgi", "router protocol"),
    ("server: uwsgi, threads: 2, router: unix, map_socket: true", "router map_socket"),
    ("server: uwsgi, threads: 2, release: 2.0.0", "2.0.0 2.0.31"),
    ("server: uwsgi, threads: 2, protocol: uwsgi, balancer: haproxy", "haproxy uwsgi http nginx"),
    ("server: uwsgi, threads: 2, map_socket: true, memory_mib: 1024, workers: 65", "map_socket 65 64 workers"),
    ("server: gunicorn-gthread, threads: 2, release: 23.0.0, reuse_port: true", "23.0.0 reuse_port 24"),
    ("server: gunicorn-gthread, threads: 2, release: 23.0.0, worker_class: gunicorn_idle_thread.IdleThreadWorker",
     "IdleThreadWorker 24 23.0.0"),
    ("server: gunicorn-gthread, threads: 2, release: 24.1.1, dirty_workers: 2", "dirty_workers 24.1.1 25"),
    ("server: gunicorn-gthread, threads: 2, cpus: 0.005", "cpus 0.005 0.01"),
    ("server: gunicorn-gthread, threads: 2, balancer: none, resend: true", "resend none nginx"),
    ("server: flup-prefork, threads: 2", "threads 1 flup-prefork"),
    ("server: flup-threaded, threads: 8", "workers 1 flup-threaded"),
    ("server: flup-prefork, threads: 1", "min_spare max_spare 5 workers 4"),
    ("server: flup-threaded, threads: 9, quick_exit: true", "quick_exit flup-threaded flup-prefork"),
    ("server: gunicorn-eventlet", "27.0.1 eventlet 25.3.0"),
    ("server: gunicorn-tornado, release: 25.3.0", "25.3.0 tornado 27.0.1"),
    ("server: gunicorn-gevent, release: 23.0.0", "23.0.0 gevent 27.0.1"),
    ("server: gunicorn-gevent, release: 22.0.0", "22.0.0 23.0.0"),
    ("server: gunicorn-asgi, app: fastapi-async, release: 26.2.0", "26.2.0 fastapi 27.0.1"),
    ("server: gunicorn-uvicorn, app: fastapi-async, threads: 2", "threads fastapi-async leave"),
    ("server: uvicorn, app: fastapi-sync", "fastapi-sync threads 40"),
    ("server: python314-granian, threads: 2, gil: false", "workers lock 1"),
    ("server: uvicorn, app: fastapi-async, health: loop", "health fastapi-async leave"),
    ("server: uvicorn, app: fastapi-async, health: port", "health port workers 1 balancer none"),
    ("server: granian, app: fastapi-async, max_requests: 9", "max_requests granian uvicorn uwsgi"),
    ("server: gunicorn-sync, max_requests_jitter: 9", "max_requests_jitter max_requests"),
    ("server: uwsgi, threads: 2, max_requests: 9, max_requests_jitter: 9", "max_requests_jitter uWSGI leave"),
    ("server: hypercorn, app: fastapi-async, hup_after_s: 9", "hup_after_s hypercorn another"),
    ("server: gunicorn-sync, term_after_s: 9", "term_after_s replicas 2"),
    ("server: gunicorn-sync, term_after_s: 9, replicas: 2, balancer: haproxy", "term_after_s haproxy nginx"),
    ("server: gunicorn-sync, resend: true, replicas: 2, balancer: envoy", "resend envoy nginx haproxy"),
    ("server: gunicorn-sync, balance: ewma, replicas: 2, balancer: haproxy", "ewma nginx"),
    ("server: gunicorn-sync, balance: ewma, replicas: 2, max_conns: 1", "ewma max_conns"),
    ("server: gunicorn-sync, pre_stop_s: 9", "pre_stop_s term_after_s"),
    ("server: uvicorn, app: fastapi-async, workers: 1, hup_after_s: 1", "hup_after_s uvicorn 2"),
    ("server: gunicorn-sync, upstream_keepalive: 9, balancer: none", "upstream_keepalive none nginx"),
    ("server: uvicorn, app: fastapi-async, backpressure: 9", "backpressure uvicorn granian"),
    *((f"server: uwsgi, threads: 2, balancer: none, {name}: {value}", f"{name} none nginx") for name, value in {
        "replicas": 2, "balance": "least_conn", "max_conns": 4, "queue_timeout_s": 5, "map_socket": "true",
        "protocol": "fastcgi",
    }.items()),
]  # fmt: skip


def test_each_rule_of_a_server_names_its_setting_and_the_way_out(tmp_path: Path) -> None:
    files = [
        (with_variant(settings), f"mine.yaml:7: variants.shared-socket {names}")
        for settings, names in MISTAKES_OF_VARIANTS
    ]

    assert unnamed(read_experiment, tmp_path / "mine.yaml", files) == []


PATIENCE = "timeout_steps: 1, users_max: 40"
CLIMBS = f"first_per_s: 8, last_per_s: 80, step_s: 1, {PATIENCE}"
RELATIVE = "relative: {times: 2, of: one, under: capacity}"
LOADS = (
    """\
title: A title
question: Why?
loads:
  capacity: {script: visits.js, duration: {short: 7s, full: 60s}, settings: {CLIMBS}}
  overload: {script: visits.js, duration: {short: 5s, full: 10s}, settings: {step_s: 10, PATIENCE}, RELATIVE}
variants:
  one: {server: gunicorn-sync, app: django, workers: 4}
  other: {server: gunicorn-sync, app: django, workers: 2}
""".replace("CLIMBS", CLIMBS)
    .replace("RELATIVE", RELATIVE)
    .replace("PATIENCE", PATIENCE)
)


MISTAKES_OF_RATES = [
    ("step_s: 10", "step_s: 10, first_per_s: 8", "settings.first_per_s relative delete"),
    ("step_s: 10", "step_s: 10, last_per_s: 8", "settings.last_per_s relative delete"),
    ("under: capacity", "under: capacty", "relative.under capacty capacity"),
    ("under: capacity", "under: overload", "relative.under overload capacity"),
    ("  capacity: {script: visits.js, duration: {short: 7s, full: 60s}, settings: {" + CLIMBS + "}}\n", "",
     "relative.under capacity first"),
    ("first_per_s: 8", "first_per_s: 80", "relative.under capacity last_per_s first_per_s"),
    ("of: one", "of: ones", "relative.of ones one, other"),
    (CLIMBS + "}", CLIMBS + "}, variants: [other]", "relative.of one capacity"),
]  # fmt: skip


def test_each_rule_of_a_relative_rate_names_its_place_and_the_way_out(tmp_path: Path) -> None:
    files = [(LOADS.replace(old, new, 1), f"loads.overload.{names}") for old, new, names in MISTAKES_OF_RATES]

    assert unnamed(read_experiment, tmp_path / "mine.yaml", files) == []


def test_only_who_asks_a_database_may_have_one(tmp_path: Path) -> None:
    """A load that is not for a variant does not give it one."""
    given = LOADS.replace(PATIENCE + "}, relative", PATIENCE + "}, database: {}, relative")
    plain = given.replace("app: django, workers: 2", "workers: 2")
    tornado = given.replace("gunicorn-sync, app: django, workers: 2", "gunicorn-tornado, app: django, workers: 2")
    pools = (EXPERIMENTS / "pools.yaml").read_text()
    wrong = [plain, tornado, pools.replace("    database: {}\n", "", 1),
             pools.replace("app: fastapi-depends", "app: fastapi-typed")]  # fmt: skip

    assert listed(refused(tmp_path, text) for text in wrong) == snapshot("""\
mine.yaml:5: loads.overload.database: other does not use a database; only variants with app: django do
mine.yaml:5: loads.overload.database: other: Django refuses to use a database on tornado's event loop
mine.yaml:15: loads.long-queries: a class of requests asks the database; add database: {}
mine.yaml:23: loads.short-queries.database: dependency does not use a database; only variants with app:
    fastapi-sync or fastapi-depends on uvicorn do
""")
    (tmp_path / "good.yaml").write_text(
        plain.replace("database: {}", "database: {max_connections: 50}, variants: [one]")
    )
    database = read_experiment(tmp_path / "good.yaml").loads["overload"].database
    assert database
    assert database.factors() == {"LAB_DATABASE": "mariadb", "LAB_DATABASE_CONNECTIONS": "50"}


def test_a_relative_rate_is_rounded_and_at_least_one_visit_a_second(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(LOADS)
    capacity, overload = read_experiment(tmp_path / "mine.yaml").loads.values()

    assert (capacity.climbs, overload.climbs) == (True, False)
    assert capacity.at(None) is capacity
    said = {"STEP_S": "10", "TIMEOUT_STEPS": "1", "USERS_MAX": "40"}
    assert overload.at(75.6).environment() == said | {"FIRST_PER_S": "76", "LAST_PER_S": "76"}
    assert overload.at(0.2).environment() == said | {"FIRST_PER_S": "1", "LAST_PER_S": "1"}
    assert overload.environment() == said


def variant(**settings: object) -> Variant:
    """Return the variant that a file describes with some settings, with two workers."""
    read: Variant = TypeAdapter(Server).validate_python({"workers": 2} | settings)
    return read


STARTS = """\
gunicorn-sync | gunicorn:27.0.1 shared | WORKER_CLASS=sync APP=wsgi:app THREADS=1
gunicorn-sync, app: flask | gunicorn:27.0.1 shared | APP=flask_app:app
gunicorn-gthread, threads: 3, app: flask | gunicorn:27.0.1 shared | WORKER_CLASS=gthread APP=flask_app:app
gunicorn-gevent | gunicorn:27.0.1 shared | WORKER_CLASS=gevent APP=wsgi:app THREADS=
gunicorn-eventlet, release: 25.3.0 | gunicorn:25.3.0 shared | WORKER_CLASS=eventlet
gunicorn-tornado, reuse_port: true | gunicorn:27.0.1 per-worker | WORKER_CLASS=event_loops.CountedTornado
gunicorn-asgi, app: fastapi-async | gunicorn:27.0.1 shared |
    WORKER_CLASS=asgi APP=fastapi_app:asynchronous THREADS= LOOP=asyncio
gunicorn-uvicorn, app: fastapi-sync, threads: 40, loop: uvloop, reuse_port: true | gunicorn:27.0.1 per-worker |
    WORKER_CLASS=event_loops.Uvicorn APP=fastapi_app:sync
uvicorn, app: fastapi-typed, threads: 4 | asgi:trixie shared |
    SERVER=uvicorn APP=fastapi_app:typed LOOP=asyncio KEEPALIVE_S=5 RESEND=false
uvicorn, app: fastapi-sync, threads: 4, health: loop | asgi:trixie shared | APP=fastapi_app:sync HEALTH_URL=
uvicorn, app: fastapi-blocking, workers: 1, balancer: none, health: port | asgi:trixie shared |
    APP=fastapi_app:blocking HEALTH_URL=http://app:9000
uvicorn, app: fastapi-async, max_requests: 100, boot_s: 2.5 | asgi:trixie shared | MAX_REQUESTS_JITTER=0
uvicorn, app: fastapi-async, hup_after_s: 1 | asgi:trixie shared | HUP_AFTER_S=1.0
gunicorn-sync, replicas: 2, term_after_s: 3, pre_stop_s: 2 | gunicorn:27.0.1 shared | HUP_AFTER_S=0
granian, app: fastapi-async, loop: uvloop, backpressure: 9 | asgi:trixie per-worker |
    SERVER=granian APP=fastapi_app:asynchronous BACKPRESSURE=9
hypercorn, app: fastapi-async, balancer: haproxy | asgi:trixie shared | SERVER=hypercorn
granian-wsgi, threads: 3, backpressure: 16 | asgi:trixie per-worker | SERVER=granian-wsgi APP=counted:app
gunicorn-gthread, threads: 3, app: django, memory_mib: 2048, somaxconn: 16 | gunicorn:27.0.1 shared |
    APP=django_app:app MEMORY=2048m
gunicorn-sync, balance: ewma, replicas: 2 | gunicorn:27.0.1 shared | BALANCE=ewma UPSTREAM=app:8000
uvicorn, app: django | asgi:trixie shared | APP=django_app:asgi THREADS= MEMORY=256m SOMAXCONN=4096
granian, app: django-async, middleware: sync | asgi:trixie per-worker | APP=django_app:asynchronous MIDDLEWARE=sync
uwsgi, threads: 1, app: django, protocol: fastcgi | uwsgi:2.0.31 shared | APP=django_app:app ROUTER=none
uwsgi, threads: 1, router: unix | uwsgi:2.0.31 none | URL=http://balancer:8080
uwsgi, threads: 1, balancer: none | uwsgi:2.0.31 shared | URL=http://app:8000
python314-gunicorn, threads: 2, gil: true | python314:gil shared | SERVER=gunicorn RELEASE=gil APP=wsgi:app
python314-granian, workers: 1, threads: 8, gil: false | python314:free per-worker | SERVER=granian RELEASE=free
python314-uwsgi, threads: 2, gil: false, app: flask | python314:free shared | SERVER=uwsgi APP=flask_app:app
flup-prefork, workers: 10, threads: 1 | flup:1.1.1 shared |
    SERVER=flup-prefork MIN_SPARE=2 MAX_SPARE=5 QUICK_EXIT=false APP=django_app:app PROTOCOL=fastcgi
flup-threaded, workers: 1, threads: 9, min_spare: 9, max_spare: 9, app: flask | flup:1.1.1 shared |
    SERVER=flup-threaded APP=flask_app:app
"""
"""Settings of a variant | the image, and which sockets its workers accept from | factors without LAB_."""


@pytest.mark.parametrize("start", STARTS.replace("|\n   ", "|").splitlines())
def test_a_server_is_started_as_its_file_says(start: str) -> None:
    """Another test sees that each setting reaches the factor of its name; here are those that have another name."""
    settings, of_image, *factors = start.split(" | ")
    one = variant(**yaml.safe_load(f"{{server: {settings}}}"))

    assert f"{image_of(one.service, one.factors())} {one.accept or 'none'}" == f"stampede/{of_image}"
    comes_and_goes = re.search("flup-prefork|max_requests:|hup_after_s:|term_after_s:", settings)
    assert one.elastic == bool(comes_and_goes), "threads that come and go belong to a process that stays"
    assert one.service == of_image.partition(":")[0]
    assert (one.front, one.front_port) == ((one.service, 8000) if one.balancer == "none" else (one.balancer, 8080))
    assert {f"LAB_{each}" for each in " ".join(factors).split()} <= {
        f"{name}={of}" for name, of in one.factors().items()
    }


def test_what_is_not_said_of_a_called_service_is_that_it_never_stalls() -> None:
    assert Api(one_device=True).factors() == {
        "LAB_API_ONE_DEVICE": "true", "LAB_API_FIRST_S": "0", "LAB_API_EVERY_S": "3600", "LAB_API_STALL_S": "0",
        "LAB_API_TAKES_S": "0",
    }  # fmt: skip
    assert Api().factors()["LAB_API_ONE_DEVICE"] == "false"


def test_published_times_are_divided_and_nothing_else(tmp_path: Path) -> None:
    """A lab in which a request takes 3 s where it took 660 s is 220 times quicker."""
    for name, figures in {
        "burst": "metric: burst, stats: {total: 1334958, largest_share: 0.5}, divided_by: 220",
        "steps": "metric: response_time, completion_times: [658000, 1334000], divided_by: 220",
        "overhead": "request_class: light, metric: overhead, stats: {p99: 1000}",
    }.items():
        text = GOOD.replace(FIGURES, figures)
        (tmp_path / f"{name}.yaml").write_text(text)

    published = {path.stem: read_experiment(path).published[0] for path in tmp_path.glob("*.yaml")}

    assert comparable_figures(published["burst"]) == {"total": 1334958 / 220, "largest_share": 0.5}
    assert published["steps"].expected_completion_times == [658000 / 220, 1334000 / 220]
    assert (comparable_figures(published["overhead"]), published["overhead"].expected_completion_times) == (
        {"p99": 1000},
        [],
    )


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(max_size=80), st.binary(max_size=40).map(lambda raw: raw.decode("latin-1"))))
def test_no_text_makes_the_reader_fail_otherwise(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(WrongUse):
        read_experiment(path)


GARBLED = [
    "!!bool x", "!!int ''", "!!int x", "!!float x", "!!timestamp x", "!!binary x", "!!set {a, b}", "!!omap [a: b]",
    "!!null x", "!!python/object/apply:os.system [id]", "!unknown x", "2020-13-45", "190:20:30", "0x_", "0b", "~",
    "9" * 30, "9" * 5000, "0x" + "f" * 5000, "1.0e+999", ".nan", "-.inf", "-0.0", r"'\'",
    r'"\0"', r'"\ud800"', r'"a\nb"', r'"a\u2028b"', '"it\'s"', "'it\\'", "${HOME}", "*itself", "*nobody",
    "&itself [*itself]", "{<<: 1}", "{? [a] : b}",
    "[" * 60 + "]" * 60, "[" * 400 + "]" * 400, "{a: 1, a: 2}", "a" * 5000 + ".js", "../k6/classes.js",
]  # fmt: skip
"""What no program writes, but somebody may, as text of YAML."""


def places(node: object) -> list[tuple[Any, Any]]:
    """Return every place of a document where a value stands: what holds it, and under which key."""
    found: list[tuple[Any, Any]] = []
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in pairs:
        found += [(node, key), *places(value)]
    return found


def check(path: Path) -> None:
    """Read a file: what is accepted can be planned, handed to Compose and written to run.json; else it is WrongUse."""
    try:
        experiment = read_experiment(path)
    except WrongUse as error:
        error.message.encode()  # whatever it quotes can be printed
        return
    laid_out = lay_out(experiment, trials=2, jobs=3)
    assert expected_s(laid_out) > 0
    json.dumps(experiment.model_dump(mode="json"), allow_nan=False, ensure_ascii=False).encode()
    for trial in laid_out.trials:
        for name, value in [*trial.variant.factors().items(), *trial.load.environment().items()]:
            assert re.fullmatch(r"[A-Z][A-Z0-9_]*", name)
            assert not re.search(r"['\n\r\0]|\\$", value)


@pytest.mark.parametrize("which", range(len(GARBLED)))
def test_a_garbled_value_in_any_place_is_an_experiment_or_wrong_use(tmp_path: Path, which: int) -> None:
    for number in range(which % 8, len(places(yaml.safe_load(GOOD))), 8):
        document = yaml.safe_load(GOOD)
        holder, key = places(document)[number]
        holder[key] = "@@"
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(document).replace("'@@'", GARBLED[which]), encoding="utf-8")
        check(tmp_path / "mine.yaml")


def test_aliases_of_aliases_are_read_in_no_time(tmp_path: Path) -> None:
    """Nine names for nine names for … of one list: followed one by one they would take minutes."""
    letters = "abcdefghijkl"
    lines = [f"{one}: &{one} [{', '.join([f'*{before}'] * 9)}]" for before, one in pairwise(letters)]
    text = "\n".join(["a: &a [x]", *lines, GOOD])

    assert "with its aliases it has more than 100,000 values" in refused(tmp_path, text)


NO_VALUES = [
    ("workers: 4", "workers: !!bool x"),
    ("workers: 4", "workers: 2020-13-45"),
    ("workers: 4", f"workers: 0x{'f' * 5000}"),
    ("A title", '"A\\x1b[2J"'),
    ("A title", '"\\ud800"'),
    ("A title", "A\x07"),
    ("question: Why?\n", "question: Why?\nsource: " + "[" * 3000 + "]" * 3000 + "\n"),
    *((GOOD, deep) for deep in ("[" * 100_000, "- " * 100_000, "{a: " * 100_000)),
    (GOOD, "title: A title\nload: {script: x\n"),
]  # fmt: skip


def test_what_looks_like_a_value_and_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    """What is nested so deeply would end the process in the composer of LibYAML."""
    assert listed(refused(tmp_path, GOOD.replace(*one, 1)) for one in NO_VALUES) == snapshot("""\
mine.yaml:9: not valid YAML: 'x' cannot be read as bool
mine.yaml:9: not valid YAML: '2020-13-45' cannot be read as timestamp
mine.yaml:9: not valid YAML: the number has more than 63 bits
mine.yaml:1: not valid YAML: the text must not contain '\\x1b'
mine.yaml:1: not valid YAML: found invalid Unicode character escape code
mine.yaml: not valid YAML: control characters are not allowed (#x0007)
mine.yaml: not valid YAML: it is nested too deeply
mine.yaml: not valid YAML: it is nested too deeply
mine.yaml: not valid YAML: it is nested too deeply
mine.yaml: not valid YAML: it is nested too deeply
mine.yaml:3: not valid YAML: did not find expected ',' or '}'
""")


def test_requests_burn_where_there_are_cores_for_all_workers_and_hold_elsewhere() -> None:
    """The largest variant has four workers; the rest of the lab wants two cores."""
    experiment = load_experiment("gil-sharing").model_copy(update={"parallel": True})

    def asked(cores: int, cpu: str = "", variants: list[str] | None = None) -> tuple[object, bool]:
        told = computing(experiment, cpu, variants, cores)
        [kind] = {load.environment()["CPU"] for load in told.all_loads.values()}
        return kind, told.parallel

    assert asked(5) == ("hold", True)
    assert asked(6) == ("burn", False)
    assert asked(3, variants=["1x4"]) == ("burn", False)
    assert asked(2, "burn") == ("burn", False)
    assert asked(64, "hold") == ("hold", True)
    experiment = experiment.model_copy(update={"burns": True})
    assert (asked(2), asked(2, "hold")) == (("burn", False), ("hold", True))
    assert "cpu" not in next(iter(experiment.all_loads.values())).settings


def test_a_way_of_computing_that_is_none_or_for_nothing_is_refused() -> None:
    wrong = ("gil-sharing", "brun"), ("heavy-mix", "burn")

    assert listed(problem_of(computing, load_experiment(name), cpu) for name, cpu in wrong) == snapshot("""\
There is no CPU='brun'. CPU=…, one of hold, burn
CPU=burn has no effect, because no request of this experiment computes. Leave CPU out.
""")
    assert computing(load_experiment("heavy-mix"), "") == load_experiment("heavy-mix")
