"""Somebody's own application: its file, its image, the wrapper around it, and what try makes of it."""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote
from wsgiref.util import FileWrapper, setup_testing_defaults

import pytest
import yaml
from inline_snapshot import snapshot
from jsonschema import Draft202012Validator

from stampede.advise.options import ServingOption
from stampede.cli import app
from stampede.diagnosis.model import Bottleneck, Diagnosis, Limit, write_diagnosis
from stampede.errors import LabError, WrongUse
from stampede.paths import SERVERS
from stampede.records.classes import OWN_CLASSES, Login, OwnRequestClass, as_json
from stampede.records.folder import trial_folder
from stampede.records.run import TODAY, Queueing
from stampede.records.summary import Summary, TrialValidity, Validity, Verdict
from stampede.run.options import MeasureOptions, RunRequest
from stampede.servers.base import Variant
from stampede.service import trying
from stampede.service.answers import Answers, Followed, Record, as_told
from stampede.service.build import not_built
from stampede.service.description import Served, UserService, read_env_files, read_user_service
from stampede.service.discovery import Description, describe_folder
from stampede.service.layer import Layer, lay_out_layer, requirements_with_server
from stampede.service.trying import Replay, choose_ways, experiment_of, read_replay, results_name
from stampede.service.variants import LIFTING, kinds_that_lift, possible_ways, untried_reasons
from stampede.terminal import INTERRUPTED
from tests.conftest import Lab
from tests.quick.test_diagnosis import row, run_of, summary_of
from tests.synthetic import Request
from tests.wrong import listed, refusal, unnamed

SHOP = """\
import os
import time
from flask import Flask, Response, request

app = Flask(__name__)


@app.route("/")
def home():
    time.sleep(0.01)
    return os.environ["GREETING"]


@app.route("/report")
def report():
    print("they greet with", os.environ["GREETING"])
    time.sleep(0.5)
    return {"rows": 100}


@app.route("/stream")
def stream():
    def parts():
        for number in range(3):
            time.sleep(0.02)
            yield f"{number}\\n"
    return Response(parts(), mimetype="text/plain")


hooked = []


@app.post("/buy")
def buy():
    assert hooked or request.environ["SERVER_SOFTWARE"] == "Granian"  # which has no hooks
    assert request.headers["Authorization"] == f"Bearer {os.environ['TOKEN']}" == f"Bearer {request.args['token']}"
    assert request.get_json() == {"it's": '50 % \\ "é"'}
    return {"bought": 1}


@app.route("/items/<int:number>")
def item(number):
    raise RuntimeError("there is no item")
"""
FILE = """\
application:
  folder: shop
  command: gunicorn --workers 2 --threads 2 app:app
  requirements: requirements.txt
  environment: {GREETING: hello}
served: {gunicorn: 27.0.1}
requests:
  home: {path: /, users: 4}
  report: {path: /report, users: 3}
  stream: {path: /stream, per_second: 2}
"""


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """A small shop and the file that describes it."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").write_text(SHOP)
    (tmp_path / "shop" / "requirements.txt").write_text("flask==3.1.3\ngunicorn==20.1\n")
    (tmp_path / "my-service.yaml").write_text(FILE)
    return tmp_path / "my-service.yaml"


LAYER = Layer(Path("nowhere"), "abc")
TOLD = Record(what="server", server="gunicorn", folder="/opt/application", words=["gunicorn"], callable="app:app",
              settings={"workers": 2, "threads": 2, "worker_class": "gthread"})  # fmt: skip
COMMAND = "command: gunicorn --workers 2 --threads 2 app:app"
RELEASE = "gunicorn: 27.0.1"
MISTAKES = [
    ("folder: shop", "folder: nowhere"),
    ("folder: shop", "image: shop"),
    (RELEASE, "uwsgi: 2.0.24"),
    ("users: 4", "users: 4, per_second: 2"),
    (RELEASE, f"{RELEASE}, workers: 2"),
    (COMMAND, "callable: app:api"),
    ("requirements: requirements.txt", "requirements: setup.cfg"),
    (f"  {COMMAND}\n", ""),
    ("path: /,", 'path: "/?t=${TOKEN}",'),
    ("requests:", "login: {path: /login, form: {user: ada}, body: user=ada}\nrequests:"),
]
OTHER_MISTAKES = [
    ("  folder: shop\n", "", "application folder image"),
    (f"folder: shop\n  {COMMAND}\n  requirements: requirements.txt", "image: shop\n  system_packages: [gcc]",
     "application system_packages folder"),
    ("requirements.txt", "more.txt", "application.requirements more.txt"),
    ("path: /,", "path: '/?q=\"x\"',", "requests.home.path /?q /items?page=2"),
    (RELEASE, f"{RELEASE}, uvicorn: 0.38.0", "served gunicorn uvicorn"),
    (RELEASE, f"{RELEASE}, worker_class: sync", "served.worker_class command"),
    (FILE.partition("requests:")[0], "application: {folder: shop, callable: 'app:api'}\nserved: {uvicorn: 0.38.0, "
     "workers: 3}\n", "application.callable: uvicorn --workers 3 app:api"),
    (RELEASE, f"{RELEASE}, settings: conf.py", "served settings"),
    ("app:app", "app:app\n  system_packages: [libpq5, --purge]", "application.system_packages.1 --purge libpq5"),
    ("app:app", "app:app\n  hosts: [api.example.com]", "application.hosts outside beside.services name environment"),
    ("requests:", "login: {path: /login, form: {password: '${PASSWORD}'}}\nrequests:", "login ${PASSWORD} env_file"),
    ("path: /,", "path: '/?t=${cookie.csrf}',", "requests.home ${cookie.csrf} env_file"),
    ("path: /,", "path: /, headers: {X Y: 1},", "requests.home.headers X-Api-Key"),
]  # fmt: skip


def test_each_rule_of_the_file_has_its_message(service: Path) -> None:
    hint = "docs/how-to/your-service.md has an example of such a file."
    others = [(FILE.replace(old, new, 1), names) for old, new, names in OTHER_MISTAKES]

    assert listed(refusal(read_user_service, service, FILE.replace(*one, 1), hint) for one in MISTAKES) == snapshot("""\
my-service.yaml:2: application.folder: there is no folder …/nowhere
my-service.yaml:1: application: requirements are for a folder; an image has all that the application requires
my-service.yaml: served.uwsgi: the lab compiles uWSGI 2.0.31, and not 2.0.24; write 2.0.31, or give an image
    that has 2.0.24
my-service.yaml:8: requests.home: give either users or per_second: who sends these requests, or how many come
    per second
my-service.yaml: served.workers: the command says this; change it there
my-service.yaml: application.callable: write a command in its place, such as command: gunicorn app:api
my-service.yaml:1: application: requirements: the lab does not read setup.cfg; write its install_requires into
    a requirements.txt, and name that
my-service.yaml:1: application: give command, which starts the service
my-service.yaml:8: requests.home: ${TOKEN} is no variable of env_file; there are none
my-service.yaml:7: login: form sends the fields as the page's form says; leave body and method out
""")
    assert unnamed(read_user_service, service, others) == []


def test_commands_without_what_they_need_say_so(lab: Lab, service: Path, tmp_path: Path) -> None:
    for arguments, says in (
        (["try"], "error: No file that describes a service is named.\n\nhint: stampede try my-service.yaml"),
        (["init"], "error: No folder of an application is named."),
        (["init", str(tmp_path / "nowhere")], f"error: There is no folder {tmp_path}/nowhere."),
        (["init", str(tmp_path), "--to", str(service)], f"error: {service} exists already."),
    ):  # fmt: skip
        done = lab.call(*arguments)
        assert done.returncode == 2
        assert done.stderr.replace("\n", "").startswith(says.replace("\n", "")), done.stderr


def test_workers_are_replaced_in_every_way_whose_server_counts_requests(service: Path) -> None:
    found = asked(service)
    replaced = found.served.model_copy(update={"max_requests": 200, "max_requests_jitter": 10})
    ways = candidates(found.model_copy(update={"served": replaced}), LAYER, TOLD)

    limits = {way.name: (json.dumps(way_of(way.variant)), way.variant.elastic) for way in ways}

    assert limits["today"] == ("{}", True)
    assert "max_requests" not in limits["limit-2x2"][0]  # the command says it
    assert '"--max-requests", "200"' in limits["uwsgi-2x2"][0]
    assert "max" not in limits["granian-2x2"][0]
    assert [limits[name][1] for name in ("limit-2x2", "uwsgi-2x2", "granian-2x2")] == [True, True, False]
    assert not any(way.variant.elastic for way in candidates(found, LAYER, TOLD))


def rewritten(service: Path, *changes: tuple[str, str], further: str = "", env: str = "") -> UserService:
    """Change the file of the shop, add lines at its end and variables in names.env, and read it."""
    text = FILE.replace("  requirements:", "  env_file: names.env\n  requirements:") if env else FILE
    service.with_name("names.env").write_text(env)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    service.write_text(text + further)
    return read_user_service(service)


def described(lab: Lab, service: Path, *options: str) -> tuple[str, str]:
    """Describe the shop, which has a Procfile, as found.yaml; return what is said, and the text of the file."""
    (service.parent / "shop" / "Procfile").write_text("web: gunicorn shop:app\n")
    to = service.with_name("found.yaml")
    done = lab.call("init", str(service.parent / "shop"), "--to", str(to), *options)
    assert done.returncode == 0, done.stderr
    return done.stderr, to.read_text()


def test_init_writes_the_command_which_is_all_that_try_needs(lab: Lab, service: Path, tmp_path: Path) -> None:
    """The first line names a schema, with which editors complete and check keys."""
    said, text = described(lab, service)

    assert read_user_service(tmp_path / "found.yaml").application.command == "gunicorn shop:app"
    assert "Its numbers and routes come with --check: stampede init " in said
    assert text.startswith("# yaml-language-server: $schema=my-service.schema.json\n")
    schema = json.loads((tmp_path / "my-service.schema.json").read_text())
    assert [*Draft202012Validator(schema).iter_errors(yaml.safe_load(text))] == []
    assert [*Draft202012Validator(schema).iter_errors({"application": {"foldr": "x"}})] != []


def test_init_takes_the_requests_from_a_log(lab: Lab, service: Path, tmp_path: Path) -> None:
    at = "[24/Nov/2026:10:00:{:02} +0000]"
    asked = ["GET /report?token=s3cret", "GET /items/7", "GET /", "GET /", "POST /buy", "GET /report"]
    lines = [f'1.2.3.4 - - {at.format(2 * n)} "{one} HTTP/1.1" 200 5' for n, one in enumerate(asked)]
    (tmp_path / "access.log").write_text("\n".join(lines) + "\n")

    _, text = described(lab, service, "--log", str(tmp_path / "access.log"))

    assert '  get: {path: "/", method: GET, per_second: 0.2}  # from the log: 40.0% of the requests\n' in text
    assert '  # get-items-id: {path: "/items/{id}", method: GET, per_second: 0.1}  # from the log: ' in text
    assert "s3cret" not in text
    found = read_user_service(tmp_path / "found.yaml")
    assert {name: one.path for name, one in found.requests.items()} == {"get": "/", "get-report": "/report"}


def test_init_reads_a_log_in_the_format_of_a_configuration(lab: Lab, service: Path, tmp_path: Path) -> None:
    """Also without durations, because the load needs only rates."""
    config = "log_format short '$msec $host $request_method $request_uri';"
    (tmp_path / "access.log").write_text("".join(f"1793714{n}00.000 shop GET /\n" for n in (4, 5)))

    said, _ = described(lab, service, "--log", str(tmp_path / "access.log"), "--format", config)

    assert "access.log: nginx's log_format short; durations: none." in said
    found = read_user_service(tmp_path / "found.yaml")
    assert {name: each.path for name, each in found.requests.items()} == {"get": "/"}


def asked(path: Path) -> UserService:
    """Return a described service with what its server says of itself."""
    return as_told(read_user_service(path), TOLD)


def candidates(service: UserService, layer: Layer, told: Record, cores: int = 1) -> list[ServingOption]:
    """Return the ways to serve that are possible."""
    return possible_ways(service, layer, told, cores)[0]


def way_of(variant: Variant) -> dict[str, Any]:
    """Return what is changed of today's command."""
    way: dict[str, Any] = json.loads(unquote(variant.factors()["LAB_WAY"]))
    return way


def served_as(service: Path, **served: object) -> UserService:
    """Return the service with another way to serve it."""
    return read_user_service(service).model_copy(update={"served": Served.model_validate(served)})


def test_the_ways_that_a_release_allows_are_tried(service: Path) -> None:
    def found_with(**served: object) -> list[ServingOption]:
        return candidates(served_as(service, **served), LAYER, TOLD)

    def ways(**served: object) -> tuple[list[str], list[str]]:
        names = [one.name for one in found_with(**served) if not one.name.startswith(("preload", "longer-timeout"))]
        return names, list(untried_reasons(served_as(service, **served)))

    lifting_of_threads = ["more-workers-8x2", "more-threads-4x4"]
    every = [TODAY, "one-process-1x8", "limit-4x2", "idle-thread-4x2", "uwsgi-4x2", "least-conn-4x2",
             "reuse-port-4x2", "sync-8x1", "granian-4x2", *lifting_of_threads]  # fmt: skip
    assert ways(workers=4, threads=2) == (every, [])
    assert ways(workers=4, threads=2, gunicorn="22.0.0") == (
        [TODAY, "one-process-1x8", "uwsgi-4x2", "least-conn-4x2", "sync-8x1", "granian-4x2", *lifting_of_threads],
        ["limit needs gunicorn 24 or later.", "idle-thread needs gunicorn 24 or later."],
    )
    assert ways(workers=4, threads=2, worker_connections=2)[0] == [one for one in every if "limit" not in one]
    assert ways(workers=1, threads=8) == (
        [TODAY, "uwsgi-1x8", "sync-8x1", "granian-1x8", "more-workers-2x8", "more-threads-1x16"],
        ["ways against waits beside a free thread, because a single worker has no other worker beside it."],
    )
    assert "least-conn-40x1" not in ways(workers=40, memory_mib=1024)[0]
    with pytest.raises(WrongUse, match=r"served: 40 workers need about .* at most 27 fit\."):
        ways(workers=40)
    assert ways(workers=40, memory_mib=1024)[1] == ["least-conn would need 40 containers; the lab starts at most 32."]
    assert ways(workers=3, worker_class="sync")[0][0] == TODAY
    sync = found_with(workers=3, worker_class="sync")[0].variant
    assert (sync.threads, sync.record(TODAY).settings["threads"]) == (1, 1)
    assert found_with(workers=3, uwsgi="2.0.31")[0].variant.threads == 1
    told = TOLD.model_copy(update={"server": "uwsgi", "settings": {"processes": "3", "http": ":8000"}})
    by_router = candidates(served_as(service, workers=3, uwsgi="2.0.31"), LAYER, told)
    accepts = {one.name.rpartition("-")[0]: one.variant.accept for one in by_router}
    assert (accepts[""], accepts["map-socket"], accepts["least-conn"]) == (None, "per-worker", None)
    found = found_with(workers=2, threads=2, replicas=2, cpus=0.5, memory_mib=256)
    shared = {one.name: one.variant for one in found}
    assert {round(each.cpus * each.replicas, 6) for each in shared.values()} == {1.0}, "cores are shared, too"
    assert shared["least-conn-4x2"].factors()["LAB_CPUS"] == "0.25"
    assert {shared[name].memory_mib for name in ("one-process-1x8", "limit-4x2", "uwsgi-4x2", "sync-8x1")} == {512}
    assert ways(workers=2, threads=2, replicas=2) == (every, [])
    assert ways(workers=1, threads=2, replicas=4, balance="least_conn")[0] == [
        one for one in every if "least-conn" not in one
    ]
    greenlets = [TODAY, "least-conn-3x1", "reuse-port-3x1", "more-workers-6x1", "gthread-3x4"]
    assert ways(workers=3, worker_class="eventlet", gunicorn="25.3.0")[0] == greenlets
    loops = [TODAY, "one-process-1x1", "least-conn-3x1"]
    no_limit = "limit and idle-thread, because they count busy threads, and {} no threads."
    assert ways(workers=3, uvicorn="0.38.0") == (
        [*loops, "granian-3x1", "more-workers-6x1"], [no_limit.format("an event loop has")]
    )  # fmt: skip
    assert ways(workers=3, worker_class="uvicorn.workers.UvicornWorker", gunicorn="23.0.0")[0] == [
        *loops, "granian-3x1", "uvicorn-3x1", "more-workers-6x1"
    ]  # fmt: skip
    assert ways(workers=3, hypercorn="0.18.0")[0] == [*loops, "granian-3x1", "uvicorn-3x1", "more-workers-6x1"]
    assert ways(workers=3, granian="2.8.7", interface="asgi")[0] == [*loops, "uvicorn-3x1", "more-workers-6x1"]
    assert ways(daphne="4.2.3")[0] == [TODAY, "granian-1x1", "uvicorn-1x1", "more-workers-2x1"]
    assert ways(workers=4, threads=2, granian="2.8.7", interface="wsgi") == (
        [TODAY, "one-process-1x8", "least-conn-4x2", "gunicorn-4x2", *lifting_of_threads],
        ["limit and idle-thread, because only gunicorn has them."],
    )
    assert ways(workers=3, worker_class="gevent")[1] == [no_limit.format("greenlets have")]
    assert ways(workers=3, worker_class="gevent")[0] == greenlets
    assert ways(workers=3, threads=2, uwsgi="2.0.31")[0] == [
        TODAY, "one-process-1x6", "least-conn-3x2", "map-socket-3x2", "more-workers-6x2", "more-threads-3x4"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("served", "limit", "cores", "names"),
    [
        ({"workers": 1, "threads": 4}, "processors", 8, ["more-workers-8x4"]),
        ({"workers": 1, "uvicorn": "0.38.0"}, "processors", 2, ["more-workers-2x1"]),
        ({"workers": 6, "worker_class": "sync"}, "processors", 8, ["more-workers-12x1"]),
        ({"workers": 2, "threads": 4}, "processors", 2, []),  # all processors are busy already
        ({"workers": 1, "threads": 4}, "threads", 2, ["more-threads-1x8"]),
        ({"workers": 2, "worker_class": "sync"}, "threads", 2, ["more-workers-4x1", "gthread-2x4"]),
        ({"workers": 2, "threads": 3, "uwsgi": "2.0.31"}, "threads", 2, ["more-threads-2x6"]),
        ({"workers": 1, "uvicorn": "0.38.0"}, "event-loop", 4, ["more-workers-4x1"]),
        ({"daphne": "4.2.3"}, "event-loop", 4, ["more-workers-4x1"]),
        ({"workers": 2, "granian": "2.8.7", "interface": "asgi"}, "inside", 2, ["more-workers-4x1"]),
        ({"workers": 1, "threads": 4, "granian": "2.8.7", "interface": "wsgi"}, "threads", 2, ["more-threads-1x8"]),
        ({"workers": 6, "worker_class": "gevent"}, "event-loop", 2, ["gthread-6x4"]),
        ({"workers": 1, "worker_class": "asgi"}, "thread-pool", 2, ["more-workers-2x1"]),
        ({"workers": 2, "replicas": 2, "uvicorn": "0.38.0"}, "inside", 2, ["more-workers-8x1"]),
        ({"workers": 2, "threads": 4}, "avoidable-wait", 2, []),
        ({"workers": 2, "threads": 4, "max_requests": 100}, "max-requests", 2,
         ["jitter-2x4", "never-replaced-2x4", "preload-2x4"]),
        ({"workers": 2, "uvicorn": "0.54.0", "max_requests": 100}, "max-requests", 2,
         ["jitter-2x1", "never-replaced-2x1"]),
        ({"workers": 2, "uvicorn": "0.38.0", "max_requests": 100}, "max-requests", 2, ["never-replaced-2x1"]),
        ({"workers": 2, "threads": 4, "uwsgi": "2.0.31", "max_requests": 100}, "max-requests", 2,
         ["never-replaced-2x4"]),
        ({"workers": 2, "uvicorn": "0.54.0"}, "worker-timeout", 2, ["longer-timeout-2x1"]),
        ({"workers": 2, "uvicorn": "0.36.0"}, "worker-timeout", 2, []),
        ({"workers": 2, "worker_class": "sync"}, "worker-timeout", 2, ["longer-timeout-2x1"]),
        ({"workers": 2, "threads": 4}, "worker-deaths", 2, []),
    ],
)  # fmt: skip
def test_a_limit_is_met_with_ways_that_lift_it(
    service: Path, served: dict[str, object], limit: Limit, cores: int, names: list[str]
) -> None:
    """They are tried beside the default ways, and only then, or if they are named."""
    found = served_as(service, **served)
    every = candidates(found, LAYER, TOLD, cores)
    default = choose_ways(every, "")

    tried = choose_ways(every, "", kinds_that_lift(found, [limit], cores))

    assert [way.name for way in tried if way not in default] == names
    assert default[0].name == TODAY
    assert not [way for way in default if way.name.startswith(LIFTING)]
    for way in tried[len(default) :]:
        assert way.variant.deployment()


def commanded(service: Path, **served: object) -> UserService:
    """Return the service with a start command, whose server has said how it serves."""
    found = served_as(service, **served)
    application = found.application.model_copy(update={"command": "./start.sh"})
    return found.model_copy(update={"application": application})


@pytest.mark.parametrize(
    ("served", "way", "options", "pasted"),
    [
        ({"workers": 2, "threads": 2}, "today", {}, ""),
        ({"workers": 2, "threads": 2, "max_requests": 100, "timeout_s": 20}, "today", {}, ""),
        ({"workers": 2, "threads": 2}, "limit", {"worker_connections": 2}, "worker_connections = 2"),
        ({"workers": 2, "threads": 2, "worker_connections": 9}, "one-process",
         {"workers": 1, "threads": 4, "worker_connections": 1000},
         "workers = 1\nthreads = 4\nworker_connections = 1000"),
        ({"workers": 2, "max_requests": 100}, "jitter", {"max_requests_jitter": 100}, "max_requests_jitter = 100"),
        ({"workers": 2, "max_requests": 100, "max_requests_jitter": 9}, "never-replaced",
         {"max_requests": 0, "max_requests_jitter": 0}, "max_requests = 0\nmax_requests_jitter = 0"),
        ({"workers": 2, "max_requests": 100}, "preload", {"preload_app": True}, "preload_app = True"),
        ({"workers": 2, "timeout_s": 20}, "longer-timeout", {"timeout": 200}, "timeout = 200"),
        ({"workers": 2, "worker_class": "sync"}, "gthread", {"worker_class": "gthread", "threads": 4},
         'worker_class = "gthread"\nthreads = 4'),
        ({"workers": 2, "uvicorn": "0.54.0"}, "longer-timeout", {"timeout_worker_healthcheck": 50},
         "uvicorn --timeout-worker-healthcheck 50"),
        ({"workers": 2, "granian": "2.8.7", "interface": "wsgi", "threads": 2}, "more-threads",
         {"blocking_threads": 4}, "granian --blocking-threads 4"),
        ({"workers": 2, "threads": 2, "uwsgi": "2.0.31"}, "one-process", {"processes": 1, "threads": 4},
         "[uwsgi]\nprocesses = 1\nthreads = 4"),
    ],
)  # fmt: skip
def test_a_way_is_todays_command_with_an_option_more(
    service: Path, served: dict[str, object], way: str, options: dict[str, object], pasted: str
) -> None:
    found = candidates(commanded(service, **served), LAYER, TOLD, 2)
    [variant] = [each.variant for each in found if each.name.startswith(way)]

    changed = way_of(variant)

    assert changed.get("options", {}).get("settings", {}) == options
    assert set(changed) <= {"options"}
    assert variant.record(way).settings["added"] == options  # the run has what was changed
    assert "\n".join(line for line in variant.configuration() if not line.startswith("#")) == pasted


@pytest.mark.parametrize(
    ("served", "way", "server", "further", "says"),
    [
        ({"granian": "2.8.7", "interface": "wsgi", "workers": 2, "threads": 2, "backpressure": 8}, "one-process",
         "granian-wsgi", "", "granian --workers 1 --blocking-threads 4 --backpressure 16"),
        ({"granian": "2.8.7", "interface": "wsgi", "workers": 2, "threads": 2}, "gunicorn", "gunicorn-gthread",
         "gunicorn==20.1", "gunicorn --worker-class gthread --workers 2 --threads 2 app:app"),
        ({"workers": 2, "threads": 2}, "granian", "granian-wsgi", "granian==2.8.7",
         "--interface wsgi --workers 2 --blocking-threads 2 --backpressure 512 app:app"),
        ({"hypercorn": "0.18.0", "workers": 2}, "granian", "granian", "granian==2.8.7",
         "--interface asgi --workers 2 --backpressure 512 app:app"),
        ({"daphne": "4.2.3"}, "more-workers", "daphne", "",
         "# start daphne 2 times: --bind 127.0.0.1 --port 8001 to 8002\n\n# nginx.conf"),
        ({"daphne": "4.2.3"}, "uvicorn", "uvicorn", "uvicorn==0.38.0",
         "uvicorn --no-access-log --backlog 4096 --workers 1 app:app"),
        ({"workers": 2, "threads": 2}, "uwsgi", "uwsgi", "", "--processes 2 --threads 2 --module app:app"),
    ],
)  # fmt: skip
def test_a_way_says_how_to_serve_like_that_and_which_server_its_image_lacks(
    service: Path, served: dict[str, object], way: str, server: str, further: str, says: str
) -> None:
    """The requirements pin gunicorn 20.1, so gunicorn in the place of another server is 20.1, too."""
    found = served_as(service, **served)
    layer = Layer(Path("nowhere"), "abc", server=(found.served.server, found.served.release))

    variant = next(each for each in candidates(found, layer, TOLD, 2) if each.name.startswith(way)).variant

    factors = variant.factors()
    assert (variant.server, factors["LAB_FURTHER"]) == (server, further)
    tag = f"abc-{further.replace('==', '-')}" if further else "abc-uwsgi-2.0.31" if server == "uwsgi" else "abc"
    assert factors["LAB_USER_SERVICE"] == tag
    assert says in variant.deployment()
    assert variant.record(way).queueing == variant.queueing


UVICORN = TOLD.model_copy(update={
    "server": "uvicorn", "release": "0.54.0", "chdir": "/opt/application/src", "imports": ["/opt/application", "/usr"],
    "settings": {"workers": 3, "limit_max_requests": 500, "timeout_worker_healthcheck": 5},
})  # fmt: skip
STANDS_IN = "gunicorn --worker-class gthread --workers 1 --threads 6 app:app"
WAITRESS = TOLD.model_copy(update={"server": "waitress", "settings": {"workers": 1, "threads": 6}})
LACKS = Record(what="missing", program="fastapi", folder="/", words=["fastapi"])


@pytest.mark.parametrize(
    ("follows", "served", "command"),
    [
        ([[UVICORN]], {"server": "uvicorn", "release": "0.54.0", "workers": 3, "max_requests": 500}, "./start.sh"),
        ([[LACKS], [UVICORN]], {"server": "uvicorn", "workers": 3}, "./start.sh"),
        ([[WAITRESS], [TOLD]], {"server": "gunicorn", "workers": 2}, STANDS_IN),
        ([[]], {"server": "gunicorn"}, "./start.sh"),
    ],
)
def test_a_command_is_followed_to_a_server_that_can_be_measured(
    service: Path, monkeypatch: pytest.MonkeyPatch, follows: list[list[Record]], served: dict[str, object], command: str
) -> None:
    """If the image lacks the server, the command is followed once more; what cannot be measured has a stand-in."""
    asked = iter(follows)
    monkeypatch.setattr(trying, "follow_start", lambda *_: Followed(records=next(asked)))

    with trying.followed_today(commanded(service, workers=2)) as today:
        found = today.service
        assert {name: getattr(found.served, name) for name in served} == served
        assert found.application.command == command
        assert (today.told is None) == (not follows[-1])
        assert today.followed == Followed(records=follows[0 if command == STANDS_IN else -1])
        if today.told and today.told.server == "uvicorn":
            assert today.layer.loaded["folder"] == "/opt/application/src"
            assert today.layer.loaded["imports"] == ["/opt/application"]
            assert today.layer.server == (found.served.server, found.served.release)


def test_what_the_start_told_is_in_the_file_although_another_server_stands_in(
    service: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second follow is that of gunicorn, which tells nothing of migrations, variables or flask run."""
    migrates = Record(what="before", folder="/opt/application", words=["flask", "db", "upgrade"])
    develops = TOLD.model_copy(update={"server": "werkzeug", "settings": {}})
    asked = iter([Followed(records=[migrates, develops], assumed=["STAGE"]), Followed(records=[TOLD])])
    monkeypatch.setattr(trying, "follow_start", lambda *_: next(asked))
    (service.parent / "shop" / "Procfile").write_text("web: flask db upgrade && flask run --port $STAGE\n")

    with trying.followed_today(commanded(service)) as today:
        assert today.told == TOLD
        text = describe_folder(service.parent / "shop", answers=Answers(followed=today.followed)).text

    application = yaml.safe_load(text)["application"]
    assert application["command"] == "gunicorn --worker-class gthread --workers 1 --threads 1 app:app"
    assert (application["before"], application["environment"]) == ("flask db upgrade", {"STAGE": "1"})
    assert "# Procfile:1: flask run is for development" in text


def test_an_application_that_nobody_can_import_is_to_be_named(service: Path) -> None:
    """As that of a server for development, which gets an object of a function."""
    told = TOLD.model_copy(update={"server": "werkzeug", "callable": ""})

    with pytest.raises(LabError, match=r"^werkzeug names no application that can be imported\.$") as raised:
        as_told(read_user_service(service), told)

    assert raised.value.hint == "Write a command that names it: gunicorn 'shop:create_app()'."


@pytest.mark.parametrize(("ended", "why"), [(1, "starts no server that the lab knows"), (None, "does not end")])
def test_a_command_that_reaches_no_server_is_told_with_its_last_words(
    service: Path, monkeypatch: pytest.MonkeyPatch, ended: int | None, why: str
) -> None:
    """By init, too, whose file says so."""
    monkeypatch.setattr(trying, "follow_start", lambda *_: Followed(records=[], said="no database yet", ended=ended))
    written = Description(service.read_text(), {})

    with pytest.raises(LabError, match=rf"^The start command of my-service.yaml {why}\.$") as raised:
        trying.asked_today(service).__enter__()
    with pytest.raises(LabError, match=r"my-service.yaml starts no server that the lab can measure\.$") as of_init:
        trying.ask_and_start(service, written, lambda _: Description(f"\n\n# a: {why}\n# b\n"), service.parent)

    assert raised.value.hint == "Its last words: no database yet"
    assert of_init.value.hint.splitlines() == [f"a: {why}", "b", trying.GIVE_COMMAND]
    assert service.read_text() == f"\n\n# a: {why}\n# b\n"


@pytest.mark.parametrize(
    ("config", "command"),
    [
        ({"Entrypoint": ["/start.sh"], "Cmd": ["gunicorn", "app:app"]}, "/start.sh gunicorn app:app"),
        ({"Entrypoint": None, "Cmd": ["/bin/sh", "-c", "exec gunicorn $A"]}, "/bin/sh -c 'exec gunicorn $A'"),
        ({"Cmd": None}, None),
    ],
)
def test_an_image_starts_with_its_own_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, list[str] | None], command: str | None
) -> None:
    """If the file gives neither a command nor a callable."""
    path = tmp_path / "my.yaml"
    path.write_text(
        "{application: {image: 'shop:1'}, served: {gunicorn: 23.0.0}, requests: {a: {path: /, users: 1}}}\n"
    )
    monkeypatch.setattr("stampede.service.build.inspected", lambda _: {"Config": config})
    followed: list[list[str]] = []

    def follow(layer: Layer, *_: object) -> Followed:
        followed.append(json.loads((layer.folder / "srv" / "start.json").read_text())["words"])
        return Followed(records=[])

    monkeypatch.setattr(trying, "follow_start", follow)
    if command is None:
        with pytest.raises(WrongUse, match="The image shop:1 has no command of its own"):
            trying.followed_today(read_user_service(path)).__enter__()
        return
    with trying.followed_today(read_user_service(path)) as today:
        assert today.service.application.command == command
    assert followed == [["sh", "-c", command] if "$" in command else shlex.split(command)]


def test_another_server_calls_a_factory_that_it_cannot_call_by_itself(service: Path) -> None:
    told = TOLD.model_copy(update={"callable": "app:create_app('prod')"})
    [way] = [each for each in candidates(commanded(service, workers=2, threads=2), LAYER, told, 2)
             if each.name.startswith("granian")]  # fmt: skip

    changed = way_of(way.variant)

    assert changed["words"][-1] == "stampede_called:application"
    assert changed["environment"] == {"STAMPEDE_CALLABLE": "app:create_app('prod')"}
    assert way.variant.deployment().endswith("'app:create_app('\"'\"'prod'\"'\"')'")


@pytest.mark.parametrize(
    ("layer", "volumes", "of_others"),
    [
        (Layer(Path(), "abc"), ["/opt/application"], None),
        (Layer(Path(), "abc", before="python manage.py migrate"), None, ["beside-before"]),
        (Layer(Path(), "abc", image="shop:7"), None, None),
    ],
)
def test_an_application_in_a_folder_may_write_there_and_finds_what_the_command_before_wrote(
    layer: Layer, volumes: list[str] | None, of_others: list[str] | None
) -> None:
    box: dict[str, object] = dict.fromkeys(("dns", "labels", "logging", "oom_score_adj", "security_opt"), "")
    composed: dict[str, Any] = {"services": {"uwsgi": {**box, "read_only": True}}, "networks": {"lab": {}}}
    layer.extend(composed, "uwsgi")
    server, before = composed["services"]["uwsgi"], composed["services"].get("beside-before")
    mounts = server.get("volumes")
    assert (mounts and [mount["target"] for mount in mounts]) == volumes
    assert server.get("volumes_from") == of_others
    assert before is None or before["volumes"] == [{"type": "volume", "target": "/opt/application"}]


def test_granian_has_a_socket_for_each_worker_from_2_8_on(service: Path) -> None:
    def today(**served: object) -> Variant:
        return candidates(served_as(service, interface="wsgi", workers=4, **served), LAYER, TOLD)[0].variant

    assert (today(granian="2.7.9").accept, today(granian="2.8").accept) == ("shared", "per-worker")
    limited = today(granian="2.8.7", threads=4, backpressure=8)
    assert limited.queueing == Queueing(threads=4, max_connections=8, race="even", keeps_idle=True)


def test_more_workers_than_the_memory_holds_are_named(service: Path) -> None:
    ways, refused = possible_ways(served_as(service, workers=3, threads=2, memory_mib=80), LAYER, TOLD, 2)

    assert "more-workers" not in "".join(way.name for way in ways)
    says = r"more-workers: 6 workers need about .* but memory_mib is 80; .* Give more memory_mib\."
    assert re.match(says, refused["more-workers"])
    many = served_as(service, granian="2.8.7", interface="wsgi", workers=2, threads=512, replicas=2, memory_mib=4096)
    assert possible_ways(many, LAYER, TOLD, 2)[1]["one-process"] == (
        "one-process: 1 x (1 + 2,048) = 2,049 processes and threads are more than the 2,048 that a container may have."
    )


@pytest.mark.parametrize(
    ("server", "settings", "says"),
    [
        ("granian", {"interface": "rsgi"}, "granian's interface rsgi; if the application has another, add --interface"),
        ("gunicorn", {"worker_class": "aiohttp.GunicornWebWorker"}, "worker_class aiohttp.GunicornWebWorker."),
        ("uwsgi", {"gevent": "100"}, "uwsgi's gevent 100, only its processes and threads."),
    ],
)
def test_workers_that_the_lab_does_not_serve_are_refused(
    service: Path, server: str, settings: dict[str, str], says: str
) -> None:
    told = TOLD.model_copy(update={"server": server, "settings": {"workers": 2, **settings}})

    with pytest.raises(LabError, match=re.escape(says)):
        as_told(commanded(service, workers=1), told)


def test_the_experiment_has_the_requests_and_the_ways(service: Path) -> None:
    found = asked(service)
    every = candidates(found, LAYER, TOLD)
    tried = choose_ways(every, "limit")
    assert "reuse-port-2x2" in [way.name for way in every]
    assert "reuse-port-2x2" not in [way.name for way in choose_ways(every, "")]
    with pytest.raises(WrongUse, match="--ways limt: there is no way limt for this service; there are limit, "):
        choose_ways(every, "limt")

    experiment = experiment_of(service, found, tried)

    assert list(experiment.variants) == [TODAY, "limit-2x2"]
    [load] = experiment.all_loads.values()
    assert json.loads(load.environment()["CLASSES"])["report"] == {"users": 3, "path": "/report"}
    assert json.loads(load.derived_environment("5s")["USERS_MAX"]) == {"home": 4, "report": 3, "stream": 20}
    factors = experiment.variants[TODAY].factors()
    assert way_of(experiment.variants[TODAY]) == {}
    assert factors["LAB_USER_SERVICE"] == "abc"
    assert "nowhere" not in experiment.variants[TODAY].record(TODAY).model_dump_json()
    assert results_name(service) == "my-service-tried"
    many = found.model_copy(update={"requests": {"home": found.requests["home"].model_copy(update={"users": 90_000})}})
    with pytest.raises(WrongUse, match=r"my-service.yaml: requests: 90,000 virtual users are more than the 16,000"):
        experiment_of(service, many, tried)


def test_an_image_has_the_application_and_what_it_requires(service: Path) -> None:
    """Variables may contain those of the env file."""
    shop = service.parent / "shop"
    (shop / ".git").mkdir()
    (shop / ".git" / "config").write_text("secret")
    url = ("environment: {GREETING: hello}", "environment: {GREETING: hello, URL: 'db://${TOKEN}@db/${OTHER}'}")
    found = rewritten(service, url, env="# a comment\n\nexport TOKEN='s3cret'\nGREETING=bye\n")

    with lay_out_layer(found) as layer:
        assert (layer.folder / "requirements.txt").read_text() == "flask==3.1.3\ngunicorn==27.0.1\n"
        start = json.loads((layer.folder / "srv" / "start.json").read_text())
        assert start["environment"] == {"TOKEN": "s3cret", "GREETING": "hello", "URL": "db://s3cret@db/${OTHER}"}
        assert not (layer.folder / "application" / ".git").exists()
        assert layer.masked(b"token s3cret, bye") == b"token $TOKEN, bye"
        assert (layer.folder / "application" / "app.py").read_text() == SHOP
        first = layer.tag
    with lay_out_layer(found) as layer:
        assert layer.tag == first
    (shop / "app.py").write_text(SHOP + "\n")
    with lay_out_layer(found) as layer:
        assert layer.tag != first


def test_what_cannot_be_an_image_is_refused(service: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (service.parent / "wrong.env").write_text("A=1\nMY-TOKEN=s3cret\n")
    with pytest.raises(WrongUse, match=r"^wrong.env:2: not NAME=value$"):
        read_env_files([service.parent / "wrong.env"])
    monkeypatch.setattr("stampede.service.layer.MOST_MIB", 0)
    with (
        pytest.raises(WrongUse, match=r"shop has 0 MiB, but an application may have 0."),
        lay_out_layer(read_user_service(service)),
    ):
        pass


def module_at(path: Path) -> Any:
    """Return a new module from a file."""
    spec = spec_from_file_location(path.stem.replace(".", "_"), path)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """A function that wraps an application, given its source, as its server does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name, value in (("ROWS", str(tmp_path / "served")), ("ID", "Lab-Id"), ("SEGMENTS", "1")):
        monkeypatch.setenv(f"STAMPEDE_PROBE_{name}", value)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for folder in (SERVERS / "app", SERVERS / "user-service", SERVERS.parent / "probe"):
        monkeypatch.syspath_prepend(str(folder))
    counters = import_module("counters")
    monkeypatch.setattr(counters, "FOLDER", tmp_path / "workers")
    monkeypatch.setitem(sys.modules, "stampede_counters", counters)

    def wrap(source: str, kind: str = "wsgi") -> ModuleType:
        (tmp_path / "wrapped_shop.py").write_text(source)
        own = module_at(SERVERS / "user-service" / "stampede_own.py")
        own.SERVED = tmp_path / "served"
        own.application = own.load(os.environ.get("CALLABLE", "wrapped_shop:app"))
        setattr(own, "asgi" if kind == "asgi" else "app", getattr(own, kind)(own.application))
        return own  # type: ignore[no-any-return]

    before = dict(sys.modules)
    for name in [name for name in sys.modules if name.partition(".")[0] == "stampede_probe"]:
        del sys.modules[name]  # it has read another environment
    import_module("stampede_probe.serve")  # which its thread would import
    yield wrap
    if "stampede_probe.worker" in sys.modules:
        sys.modules["stampede_probe.worker"].state.off = True
    sys.modules.clear()
    sys.modules.update(before)


APPLICATION = """\
def app(environ, start_response):
    assert "HTTP_LAB_ID" not in environ
    path = environ["PATH_INFO"]
    if path == "/crash":
        raise RuntimeError("crashed")
    start_response("200 OK", [("X-Own", "1"), ("Content-Length", "4")], None)
    if path == "/list":
        return [b"ab", b"cd"]
    if path == "/file":
        import io
        return environ["wsgi.file_wrapper"](io.BytesIO(b"abcd"))
    def parts():
        yield b"ab"
        yield b"cd"
    return parts()
"""


def ask(app: Any, path: str, ident: str) -> tuple[bytes, list[tuple[object, ...]]]:
    """Ask a WSGI application, and return the body and what it said to the server."""
    environ: dict[str, Any] = {"PATH_INFO": path, "wsgi.file_wrapper": FileWrapper}
    setup_testing_defaults(environ)
    if ident:
        environ["HTTP_LAB_ID"] = ident
    said: list[tuple[object, ...]] = []
    body = app(environ, lambda *words: said.append(words))
    try:
        return b"".join(body), said
    finally:
        if hasattr(body, "close"):
            body.close()


def notes(tmp_path: Path) -> list[list[str]]:
    """Return what the probe wrote of requests after the application was loaded."""
    lines = [line for path in (tmp_path / "served").glob("*") for line in path.read_text().splitlines()]
    return [line.split(",") for line in lines if line.startswith(("began,", "ended,"))]


@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
def test_hooks_of_the_server_find_the_attributes_of_the_application(wrapped: Any, kind: str) -> None:
    """Such as ``worker.wsgi.logger`` in gunicorn's post_worker_init."""
    source = APPLICATION if kind == "wsgi" else ASGI_APPLICATION
    own = wrapped(f"{source}\napp.logger = object()\n", kind)
    around = own.asgi if kind == "asgi" else own.app

    assert around.logger is own.application.logger
    assert not hasattr(around, "loggers")


def test_the_wrapper_leaves_answers_as_they_are_and_counts_each_request(wrapped: Any, tmp_path: Path) -> None:
    """The file is there when the application is loaded, because nothing else tells that a worker is ready."""
    own = wrapped(APPLICATION)
    [counted] = (tmp_path / "workers").iterdir()
    assert counted.read_text() == f"served {0:020}\n"

    for path in ("/list", "/file", "/parts"):
        assert ask(own.app, path, "3-14") == ask(own.application, path, "")
        began, ended = notes(tmp_path)[-2:]
        assert (began[0], began[1], ended[0], ended[1]) == ("began", "3-14", "ended", "3-14")
        assert re.fullmatch(r".+:\d+", began[2])
        assert float(began[5]) <= float(ended[5])
    with pytest.raises(RuntimeError, match="crashed"):
        ask(own.app, "/crash", "1-1")
    assert [line[:2] for line in notes(tmp_path)[-2:]] == [["began", "1-1"], ["ended", "1-1"]]
    assert counted.read_text() == f"served {4:020}\n"


@pytest.mark.parametrize(("server", "at_once"), [("granian", True), ("daphne", True), ("uvicorn", False)])
def test_a_worker_is_ready_at_once_if_its_server_knows_no_lifespan(
    wrapped: Any, tmp_path: Path, server: str, at_once: bool
) -> None:
    sys.modules["stampede_probe.worker"].state.capacity = (0, server)

    wrapped(ASGI_APPLICATION, "asgi")

    assert (tmp_path / "workers").exists() == at_once


def test_the_wrapper_passes_on_what_is_not_of_k6(wrapped: Any, tmp_path: Path) -> None:
    own = wrapped(APPLICATION)

    assert [ask(own.app, "/list", ident)[0] for ident in ("", "a,b")] == [b"abcd", b"abcd"]
    assert ask(own.app, "/-/ready", "")[0] == b"ready\n"
    assert len(notes(tmp_path)) == 4
    assert {line[1] for line in notes(tmp_path)} & {"", "a,b"} == set()


@pytest.mark.parametrize("source", ["WSGI", "ASGI"])
def test_an_application_says_itself_when_it_is_ready(
    wrapped: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setenv("STAMPEDE_READY", "/list?all=1")
    if source == "WSGI":
        assert ask(wrapped(APPLICATION).app, "/-/ready", "")[0] == b"abcd"
    else:
        assert ask_asgi(wrapped(ASGI_APPLICATION, "asgi").asgi, "/-/ready")[0]["headers"] == [(b"x-own", b"1")]
    assert notes(tmp_path) == []


@pytest.mark.parametrize("called", ["create_app()", "create_app(served=app)"])
def test_the_wrapper_finds_a_factory_and_serves_when_the_disk_is_full(
    wrapped: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str
) -> None:
    monkeypatch.setenv("CALLABLE", f"wrapped_shop:{called}")
    (tmp_path / "served").write_text("a file in the place of the folder")
    source = APPLICATION.replace('assert "HTTP_LAB_ID"', 'environ["HTTP_LAB_ID"] #')  # the probe turns itself off
    own = wrapped(f"def create_app(served=None):\n    return served or app\n\n{source}")

    assert ask(own.app, "/parts", "1-1")[0] == b"abcd"


@pytest.mark.parametrize(
    ("asks", "loads", "says"),
    [
        ("requests: {home: {path: /, users: 1}}", ["own"], "starts, and answers each class of requests. To measure it"),
        ("replay: {log: access.log}", ["replay"], "The application starts. To measure it"),
    ],
)
def test_a_service_can_be_started_once_without_a_load(
    service: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asks: str,
    loads: list[str], says: str,
) -> None:  # fmt: skip
    asked: list[RunRequest] = []
    monkeypatch.setattr(trying, "measure_quietly", asked.append)
    (tmp_path / "access.log").write_text(log_of("0|GET /report|0.100", "9|GET /|0.100"))
    service.write_text(f"{FILE.partition('requests:')[0]}{asks}\n")

    trying.start_once(service, MeasureOptions(), results=tmp_path)

    [request] = asked
    assert request.only_check
    assert ([*request.experiment.variants], [*request.experiment.all_loads]) == ([TODAY], loads)
    assert request.options.trials == 1
    assert f"{says}: stampede try {service}" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("changed", [False, True])
def test_the_file_gets_what_the_application_tells_unless_somebody_has_changed_it(
    service: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], changed: bool
) -> None:
    """The service is started in any case."""
    started: list[str] = []
    monkeypatch.setattr(trying, "start_once", lambda path, *_, **__: started.append(path.read_text()))
    told = Answers(framework="flask", problem="nobody knows")
    monkeypatch.setattr(trying, "ask_application", lambda *_: told)
    written = Description(service.read_text(), fallbacks={})
    if changed:
        service.write_text("mine: 1\n")

    trying.ask_and_start(service, written, lambda answers: written._replace(text=f"{answers.problem}\n"), tmp_path)

    assert started == ["mine: 1\n" if changed else "nobody knows\n"]
    assert ("The requests are guessed, because nobody knows" in capsys.readouterr().err) != changed
    service.write_text("no command\n")
    with pytest.raises(WrongUse, match=r"^No start command was found, so .*my-service.yaml is not complete\.$"):
        trying.ask_and_start(service, Description("no command\n"), lambda _: written, tmp_path)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expect the machine to be quiet, and each start command to be followed to the server that TOLD describes."""
    monkeypatch.setattr("stampede.service.trying.is_busy", lambda: False)
    monkeypatch.setattr(trying, "machine_lock", lambda *_: nullcontext())
    monkeypatch.setattr(trying, "make_ready", lambda _: None)
    monkeypatch.setattr(trying, "follow_start", lambda *_: Followed(records=[TOLD]))


class Measured:
    """The runs that a command would have measured: their variants and trials, and what it would have found."""

    def __init__(
        self, tmp_path: Path, first: Diagnosis, verdict: Verdict = "valid", outcome: str = "measured"
    ) -> None:  # fmt: skip
        self.asked: list[tuple[list[str], int]] = []
        self.checks: list[bool] = []
        self._folder, self._first, self._verdict = tmp_path / "run", first, verdict
        run_of(tmp_path, [Request()])
        path = trial_folder(self._folder, TODAY, "mix", 1) / "trial.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"outcome": outcome}))

    def __call__(self, request: RunRequest) -> tuple[Path, Summary]:
        """Stand for measure_quietly."""
        self.checks.append(request.check)
        plan = request.options.plan(request.experiment)
        names = list(dict.fromkeys(one.variant_name for one in plan.trials))
        self.asked.append((names, len(plan.rounds)))
        rows = [row(one, "home", "overhead", "p99", 4) for one in names]
        reasons = [] if self._verdict == "valid" else ["the counts disagree"]
        trial = TrialValidity(variant=TODAY, load="mix", trial=1, verdict=self._verdict, reasons=reasons)
        validity = Validity(verdict=self._verdict, reasons=reasons)
        write_diagnosis(self._folder, self._first)
        return self._folder, summary_of(*rows).model_copy(update={"validity": validity, "trials": [trial]})


COMPUTING = Diagnosis(
    alarm=True, sentences=["They compute all the time."],
    bottlenecks=[Bottleneck(limit="processors", sentences=["They compute all the time."])],
)  # fmt: skip
WELL = Diagnosis(alarm=False, sentences=["All is well."])
ONE = {"worker_class": "gthread", "workers": 1, "threads": 4}


@pytest.mark.parametrize(
    ("served", "first", "further", "asked"),
    [
        (ONE, COMPUTING, [], [([TODAY], 1), ([TODAY, "more-workers-2x4"], 3)]),
        (ONE, WELL, [], [([TODAY], 1), ([TODAY], 3)]),
        (ONE, WELL, ["--trials", "1"], [([TODAY], 1)]),  # the first trial is all that is asked
        (ONE, COMPUTING, ["--ways", "more-threads"], [([TODAY, "more-threads-1x8"], 3)]),
        ({"worker_class": "sync", "workers": 1}, COMPUTING, [], [([TODAY], 1), ([TODAY, "more-workers-2x1"], 3)]),
    ],
)
def test_ways_follow_from_what_a_first_trial_finds(
    service: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    served: dict[str, str | int], first: Diagnosis, further: list[str], asked: list[tuple[list[str], int]],
) -> None:  # fmt: skip
    told = TOLD.model_copy(update={"settings": served})
    monkeypatch.setattr(trying, "follow_start", lambda *_: Followed(records=[told]))
    measured = Measured(tmp_path, first)
    monkeypatch.setattr("stampede.service.trying.engine_cores", lambda: 2)
    monkeypatch.setattr("stampede.service.trying.measure_quietly", measured)

    app(["try", str(service), "--results", str(tmp_path / "results"), *further], standalone_mode=False)

    assert measured.asked == asked
    assert measured.checks == [True, False][: len(asked)]  # each class was asked alone a minute ago
    said = capsys.readouterr().err
    assert ("So far, after one trial of today's way:" in said) == (asked[0] == ([TODAY], 1))
    assert (f"- {first.sentences[0]}" in said) == (asked[0] == ([TODAY], 1))


def test_the_first_answer_is_kept_when_the_ways_are_interrupted(
    service: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is built, it is said about when this answer comes."""
    measured = Measured(tmp_path, WELL)

    def interrupted(request: RunRequest) -> tuple[Path, Summary]:
        if measured.asked:
            signal.raise_signal(signal.SIGINT)
        return measured(request)

    monkeypatch.setattr("stampede.service.trying.engine_cores", lambda: 2)
    monkeypatch.setattr("stampede.service.trying.measure_quietly", interrupted)

    code = app(["try", str(service), "--results", str(tmp_path), "--duration", "9s"], standalone_mode=False)

    assert code == INTERRUPTED

    assert measured.asked == [([TODAY], 1)]
    assert capsys.readouterr().err.replace(str(tmp_path), "…") == snapshot("""\
Following the start command …
Today's way, 1 trial: about 23 s, and about 1 min 00 s if the image is not built. Then comes the first answer; \
Ctrl-C after it keeps it.
After it, today's way and 4 other ways, 3 trials each: about 3 min 45 s; longer if further ways may lift a limit.

So far, after one trial of today's way:
- All is well.

Interrupted. Nothing is left running; what was measured is kept.
The first answer is kept: …/run/report.html
To read it: stampede report …/run
To measure the other ways: stampede try …/my-service.yaml --ways one-process,limit,idle-thread,least-conn --duration 9s
""")


def test_what_cannot_be_measured_is_named_before_anything_is_built(
    service: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(_: RunRequest) -> None:
        raise WrongUse("something is built")

    (service.parent / "shop" / "compose.yml").write_text("services: {db: {image: 'db:1', cap_add: [SYS_NICE]}}\n")
    service.write_text(FILE.replace(RELEASE, "gunicorn: 23.0.0, memory_mib: 80")
                       + "beside: {compose: shop/compose.yml, services: [db]}\n")  # fmt: skip
    told = TOLD.model_copy(update={
        "settings": ONE | {"workers": 3, "threads": 2},
        "aside": {"user": "nobody: the container runs as a user without rights"},
    })  # fmt: skip
    monkeypatch.setattr(trying, "follow_start", lambda *_: Followed(records=[told]))
    monkeypatch.setattr("stampede.service.trying.engine_cores", lambda: 2)
    monkeypatch.setattr("stampede.service.trying.measure_quietly", build)

    with pytest.raises(WrongUse, match="something is built"):
        app(["try", str(service), "--results", str(tmp_path / "results")], standalone_mode=False)

    said = " ".join(capsys.readouterr().err.split())
    assert "Not tried: limit needs gunicorn 24 or later. Not tried: idle-thread needs gunicorn 24 or later." in said
    assert "Not tried: more-workers: 6 workers need about " in said
    assert "Not kept: user nobody: the container runs as a user without rights." in said
    assert "Not kept: compose.yml: db: cap_add." in said


def test_an_invalid_first_trial_changes_nothing(
    service: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = Measured(tmp_path, COMPUTING, "invalid")
    monkeypatch.setattr("stampede.service.trying.measure_quietly", measured)

    assert app(["try", str(service), "--results", str(tmp_path / "results")], standalone_mode=False) == 1

    [_, (tried, _)] = measured.asked
    assert "limit-2x2" in tried
    assert not [name for name in tried if name.startswith(LIFTING)]
    assert "The first trial is invalid, so its numbers do not count:\n- the counts disagree" in capsys.readouterr().err


def test_servers_that_do_not_start_are_not_started_in_other_ways(
    service: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured(tmp_path, WELL, "invalid", outcome="failed")
    monkeypatch.setattr("stampede.service.trying.measure_quietly", measured)

    assert app(["try", str(service), "--results", str(tmp_path / "results")], standalone_mode=False) == 1

    assert measured.asked == [([TODAY], 1)]


def test_requirements_name_the_release_of_the_server_that_is_served() -> None:
    def lines(*required: str, **served: object) -> list[str]:
        return requirements_with_server(required, Served.model_validate({"workers": 1} | served))

    assert lines("flask", "gunicorn>=20", "gunicorn-x==1") == ["flask", "gunicorn-x==1", "gunicorn==27.0.1"]
    assert lines("uvicorn[standard]>=0.30", uvicorn="0.38.0") == ["uvicorn[standard]==0.38.0"]
    assert lines("Gunicorn [gevent] == 21", gunicorn="22.0.0") == ["gunicorn[gevent]==22.0.0"]
    assert lines("granian[uvloop]", granian="2.8.7", interface="wsgi") == ["granian[uvloop]==2.8.7"]
    assert lines("uwsgi==2.0.20", "flask==3.0 --hash=sha256:abc", uwsgi="2.0.31") == ["flask==3.0"]


def test_requirements_include_further_files(service: Path) -> None:
    shop = service.parent / "shop"
    (shop / "requirements.txt").write_text("-r base.txt\nhumanize\n")
    with (
        pytest.raises(WrongUse, match=r"^requirements.txt includes base.txt, but there is no such file\.$"),
        lay_out_layer(read_user_service(service)),
    ):
        pass
    (shop / "base.txt").write_text("flask==3.1.3 \\\n    --hash=sha256:abc\n")
    with lay_out_layer(read_user_service(service)) as layer:
        assert (layer.folder / "requirements.txt").read_text() == "flask==3.1.3\nhumanize\ngunicorn==27.0.1\n"


def test_requests_have_headers_and_bodies_and_their_secrets_stay_names(service: Path) -> None:
    body = '{"it\'s": "50 % \\\\ é ${TOKEN}"}'
    asked = {"path": "/?t=${TOKEN}", "users": 1, "headers": {"X-Own": 'a "b"'}, "body": body}

    found = rewritten(service, further=f"  buy: {json.dumps(asked)}\n", env="TOKEN=s3cr'et\n")

    said = as_json(found.requests)
    assert not set("'\\") & set(said)
    assert "s3cr" not in said
    told = OWN_CLASSES.validate_json(said)["buy"]
    assert unquote(told.body or "") == body
    assert unquote(told.headers["X-Own"]) == 'a "b"'
    [load] = experiment_of(service, found, candidates(found, LAYER, TOLD)).all_loads.values()
    assert load.environment()["CLASSES"] == said


def test_a_login_is_a_setting_of_the_load_and_its_secrets_stay_names(service: Path) -> None:
    """Each user of the load logs in, but at most a hundred."""
    login = {"path": "/login", "form": {"user's name": "ada", "password": "${PASSWORD} & 100 %"}}
    cookie = ("path: /,", "path: '/?t=${cookie.csrftoken}',")

    found = rewritten(service, cookie, further=f"login: {json.dumps(login)}\n", env="PASSWORD=hush-hush\n")
    ways = candidates(found, LAYER, TOLD)
    [load] = experiment_of(service, found, ways).all_loads.values()
    replay = Replay({"home": OwnRequestClass(path="/", per_second=2)}, [(0.0, "home", "GET", "/")], 300)
    [replayed] = experiment_of(service, found, ways, replay).all_loads.values()

    said = load.environment()["LOGIN"]
    assert not set("'\\") & set(said)
    told = Login.model_validate_json(said).form
    assert {unquote(name): unquote(value) for name, value in told.items()} == login["form"]
    assert load.derived_environment("20s")["SESSIONS"] == "27"  # 4 and 3 users, and 10 s of 2 requests a second
    assert replayed.environment()["LOGIN"] == said
    assert replayed.derived_environment("20s")["SESSIONS"] == "100"


ASGI_APPLICATION = """\
import asyncio
import time

after = []


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    assert [name for name, _ in scope["headers"]] == [b"host"]
    if scope["path"] == "/crash":
        raise RuntimeError("crashed")
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": b"ab", "more_body": True})
    await send({"type": "http.response.body", "body": b"cd"})
    await asyncio.sleep(0.05)
    after.append(time.time())
"""


def ask_asgi(app: Any, path: str, ident: str = "", kind: str = "http") -> list[dict[str, Any]]:
    """Ask an ASGI application, and return what it said to the server."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    headers = [(b"host", b"x"), *([(b"lab-id", ident.encode())] if ident else [])]
    asyncio.run(app({"type": kind, "path": path, "headers": headers}, receive, send))
    return said


def test_the_wrapper_leaves_an_asgi_application_as_it_is(wrapped: Any, tmp_path: Path) -> None:
    own = wrapped(ASGI_APPLICATION, "asgi")
    ask_asgi(own.asgi, "", kind="lifespan")

    assert ask_asgi(own.asgi, "/", "3-14") == ask_asgi(own.application, "/")
    began, ended = notes(tmp_path)
    assert (began[0], began[1], ended[0], ended[1]) == ("began", "3-14", "ended", "3-14")
    assert float(began[5]) <= float(ended[5]) < import_module("wrapped_shop").after[0]  # work goes on meanwhile
    with pytest.raises(RuntimeError, match="crashed"):
        ask_asgi(own.asgi, "/crash", "1-1")
    assert [line[:2] for line in notes(tmp_path)][2:] == [["began", "1-1"], ["ended", "1-1"]]
    assert ask_asgi(own.asgi, "/", "a,b")[1]["body"] == b"ab"
    assert ask_asgi(own.asgi, "/-/ready")[1]["body"] == b"ready\n"
    assert len(notes(tmp_path)) == 6
    [counted] = (tmp_path / "workers").iterdir()
    assert counted.read_text() == f"served {3:020}\n"


COMPOSE = """\
services:
  db:
    image: postgres:17
    environment: {POSTGRES_PASSWORD: "a $$ word", POSTGRES_DB: shop}
    command: [postgres, --password, "${FROM_DOTENV}"]
    depends_on: [my-cache, web]
    healthcheck: {test: [CMD-SHELL, "ready $$USER"], interval: 2s}
    volumes: ["./init.sql:/docker-entrypoint-initdb.d/a.sql", "./data:/var/lib/postgresql", "/etc:/mnt"]
    secrets: [token]
    deploy: {resources: {limits: {memory: 2g}}}
    cap_add: [SYS_NICE]
    ports: ["5432:5432"]
  my-cache:
    build: cache
    healthcheck: {disable: true}
  web:
    image: shop
secrets:
  token: {file: token.txt}
"""


@pytest.mark.parametrize(
    ("compose", "services", "says"),
    [
        (COMPOSE, "[wob]", r"^beside.services: compose.yml has no service wob; it has db, my-cache, web\.$"),
        ("services: [", "[db]", r"^beside.compose: compose.yml cannot be read: .*"),
        (COMPOSE, "[app]", r"beside.services: the lab has a service app of its own; name services that the "),
        ("", "[db]", r"my-service.yaml:6: beside.compose: there is no file .*/shop/compose.yml"),
    ],
)
def test_services_beside_that_are_wrong_are_named(service: Path, compose: str, services: str, says: str) -> None:
    if compose:
        (service.parent / "shop" / "compose.yml").write_text(compose)
    beside = f"beside: {{compose: shop/compose.yml, services: {services}}}\n"

    with (
        pytest.raises(WrongUse, match=says),
        lay_out_layer(rewritten(service, ("served:", f"{beside}served:"))),
    ):
        pass


def test_values_of_services_beside_are_in_no_record(service: Path) -> None:
    shop = service.parent / "shop"
    (shop / "compose.yml").write_text(COMPOSE)
    (shop / ".env").write_text("FROM_DOTENV=hunter2\n")
    beside = "beside: {compose: nowhere/../shop/compose.yml, services: [db, my-cache]}\n"
    (service.parent / "nowhere").mkdir()

    with lay_out_layer(rewritten(service, ("served:", f"{beside}served:"))) as layer:
        database, cache = layer.beside.services["beside-db"], layer.beside.services["beside-my-cache"]

        def filled(value: object) -> Any:
            """Return a value as Compose reads it with the variables."""
            text = json.dumps(value)
            for name, secret in layer.beside.values.items():
                text = text.replace(f"${{{name}:-}}", secret)
            return json.loads(text)

        for secret in ("hunter2", "a $ word", "shop", "$USER", str(shop)):
            assert secret in "".join(layer.beside.values.values())
            assert secret not in json.dumps([database, cache])
        assert filled(database["environment"]) == {"POSTGRES_DB": "shop", "POSTGRES_PASSWORD": "a $ word"}
        assert filled(database["command"]) == ["postgres", "--password", "hunter2"]
        assert filled(database["healthcheck"])["test"] == ["CMD-SHELL", "ready $USER"]
        assert database["healthcheck"]["interval"] == "2s"
        assert [(mount["source"], mount["target"]) for mount in filled(database["volumes"])] == [
            (f"{shop}/init.sql", "/docker-entrypoint-initdb.d/a.sql"), (f"{shop}/token.txt", "/run/secrets/token"),
        ]  # fmt: skip
        assert list(database["depends_on"]) == ["beside-my-cache"]
        assert "healthcheck" not in cache
        assert layer.memory_mib == {"beside-db": 2048, "beside-my-cache": 512}
        assert layer.beside.builds == {"my-cache": "stampede-beside-my-cache"}
        assert layer.beside.left_out == ["db: cap_add"]
        assert layer.masked(b"password a $ word of shop") == b"password $POSTGRES_PASSWORD of shop"


def log_of(*lines: str) -> str:
    """Return a log in the combined format, with times in whole seconds and durations."""
    return "".join(
        f'1.2.3.4 - - [24/Nov/2026:10:00:{at:0>2} +0000] "{asked} HTTP/1.1" 200 5 "-" "-" {took}\n'
        for at, asked, took in (line.split("|") for line in lines)
    )


def test_a_replay_has_the_times_and_the_routes_of_a_log(tmp_path: Path) -> None:
    """Two answers in one second are apart by half a second; a request came earlier by its duration."""
    log = log_of("5|GET /items/7?token=x|0.100", "5|GET /items/8|0.100", "3|GET /|2.000", "9|POST /buy|0.100")
    (tmp_path / "access.log").write_text(log)

    found = read_replay(tmp_path / "access.log", ["GET"])

    assert found.requests == [
        (0.0, "get", "GET", "/"), (3650.0, "get-items-id", "GET", "/items/7?token=x"),
        (4150.0, "get-items-id", "GET", "/items/8"),
    ]  # fmt: skip
    assert {name: (one.path, round(one.per_second or 0, 3)) for name, one in found.classes.items()} == {
        "get": ("/", 0.241), "get-items-id": ("/items/{id}", 0.482)
    }  # fmt: skip
    assert (found.lasts_s, found.users_max) == (5, 3)
    with pytest.raises(WrongUse, match=r"^access.log has 1 requests with POST, but a replay has 2 to 200,000\.$"):
        read_replay(tmp_path / "access.log", ["POST"])


def test_times_of_a_log_that_are_no_whole_seconds_are_kept(tmp_path: Path) -> None:
    lines = [{"msec": 1795500000.125 + n / 8, "request": "GET / HTTP/1.1", "status": 200} for n in range(60)]
    (tmp_path / "access.log").write_text("".join(f"{json.dumps(one)}\n" for one in lines))

    found = read_replay(tmp_path / "access.log", ["GET"])

    assert [at for at, *_ in found.requests] == [125.0 * n for n in range(60)]
    assert (found.lasts_s, found.users_max) == (8, 60)


def test_a_replay_takes_the_place_of_requests(service: Path, tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text(log_of("0|GET /report?token=s3cret|0.100", "9|GET /|0.100"))
    asked = FILE.partition("requests:\n")[0]
    service.write_text(f"{asked}replay: {{log: access.log}}\n")
    found = read_user_service(service)
    assert found.replay
    replay = read_replay(found.replay.log, found.replay.methods)

    experiment = experiment_of(service, found, candidates(found, LAYER, TOLD), replay)

    [load] = experiment.all_loads.values()
    assert (load.script, load.loop, load.duration.short, load.duration.full) == ("replay.js", "open", "10s", "10s")
    assert "s3cret" not in load.model_dump_json()
    service.write_text(f"{asked}replay: {{log: access.log}}\nrequests: {{home: {{path: /, users: 1}}}}\n")
    with pytest.raises(WrongUse, match="give either requests or replay: what people ask for"):
        read_user_service(service)
    service.write_text(f"{asked}replay: {{log: nowhere.log}}\n")
    with pytest.raises(WrongUse, match=r"my-service.yaml:7: replay.log: there is no file .*/nowhere.log"):
        read_user_service(service)


def test_requests_that_k6_cannot_be_told_are_refused(service: Path) -> None:
    long = "".join(f"  {name}: {{path: /, users: 1, body: {'x' * 60_000}}}\n" for name in "ab")
    with pytest.raises(WrongUse, match=r"requests have 120,\d+ characters in all, but k6 can be told only 100,000"):
        rewritten(service, further=long)


def test_packages_of_debian_are_part_of_a_layer(service: Path) -> None:
    """The images of Python have the headers of Python, for which nobody names a package."""
    digests = set()
    for packages, installed in (("", ""), ("libpq5", "libpq5\n"), ("gcc, libpq-dev", "gcc\nlibpq-dev\npython3-dev\n")):
        named = ("  environment:", f"  system_packages: [{packages}]\n  environment:")
        with lay_out_layer(rewritten(service, named)) as layer:
            assert (layer.folder / "system-packages").read_text() == installed
            digests.add(layer.tag)
    assert len(digests) == 3


def test_a_build_that_fails_names_the_package_that_debian_lacks_or_what_compiling_needs() -> None:
    of_apt = "E: Unable to locate package libfoo7\nE: Package 'netcat' has no installation candidate\n"
    lacking = not_built("It failed.", f"docker ended with 1:\n{of_apt}{of_apt}")
    of_pip = "Collecting flask\nCollecting psycopg2==2.9.1 (from -r requirements.txt (line 2))\n"
    of_pip += "error: subprocess-exited-with-error\nError: pg_config executable not found.\n"
    compiling = not_built("It failed.", f"docker ended with 1:\n{of_pip}" + "#\n" * 20)
    other = not_built("It failed.", "docker ended with 1:\nno space left on device")

    assert isinstance(lacking, WrongUse)
    for named in ("application.system_packages", "libfoo7", "netcat"):
        assert lacking.message.count(named) == 1
    assert (compiling.message, other.message) == ("It failed.", "It failed.")
    assert compiling.hint.startswith("pip could not prepare psycopg2==2.9.1.\nA package has to be compiled. ")
    assert "system_packages, such as [gcc, libpq-dev]" in compiling.hint
    assert compiling.hint.count("#") == 12
    assert other.hint == "docker ended with 1:\nno space left on device"


@pytest.mark.parametrize(
    ("server", "lacks"),
    [("uvicorn: 0.38.0", "granian"), ("gunicorn: 20.1.0", "uwsgi and granian"), ("uwsgi: 2.0.21", "")],
)
def test_an_image_gets_the_programs_of_the_lab_and_no_other_server(tmp_path: Path, server: str, lacks: str) -> None:
    (tmp_path / "my.yaml").write_text(
        "application: {image: 'shop:1', command: run}\n"
        f"served: {{{server}}}\nrequests: {{home: {{path: /, users: 1}}}}\n"
    )
    name, _, release = server.partition(": ")
    found = read_user_service(tmp_path / "my.yaml")
    with lay_out_layer(found) as layer:
        assert (layer.image, layer.server) == ("shop:1", (name, release))
        there = {path.name for path in (layer.folder / "programs").iterdir()}
        assert there == {"wait-until-ready", "observe", "observe-own", "workers-ready"}
        assert {"start.py", "start.json", "hooks.py", "stampede_probe"} <= {
            path.name for path in (layer.folder / "srv").iterdir()
        }
        several = found.model_copy(update={"served": found.served.model_copy(update={"workers": 2})})
        ways = {way.name.partition("-")[0] for way in candidates(several, layer, TOLD)}
    assert ("map" in ways) == (name == "uwsgi")
    assert not ways & {*lacks.split(" and ")}
    said = [reason for reason in untried_reasons(several) if "the image has only" in reason]
    assert said == ([f"{lacks}, because the image has only {name}."] if lacks else [])


CHECK = SERVERS / "user-service" / "image" / "check.py"


@pytest.mark.parametrize(
    ("version", "missing", "says"),
    [
        ("26.0.0", "", None),
        ("21.2.0", "", "It has gunicorn 21.2.0, but the file says 26.0.0. Write served.gunicorn: 21.2.0"),
        (None, "", "Its Python has no gunicorn."),
        ("26.0.0", "awk grep", "It lacks awk, grep, which the lab's observations need."),
    ],
)
def test_an_image_that_cannot_be_measured_says_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, version: str | None, missing: str, says: str | None
) -> None:
    check = module_at(CHECK)

    def found(name: str) -> str:
        if version is None:
            raise PackageNotFoundError(name)
        return version

    monkeypatch.setattr(check, "version", found)
    monkeypatch.setattr("shutil.which", lambda name: None if name in missing.split() else name)

    assert check.problem("gunicorn", "26.0.0") == says
    monkeypatch.setattr("sys.version_info", (3, 8))
    assert check.problem("gunicorn", "26.0.0").endswith("; the lab needs 3.9 or later.")


@pytest.mark.parametrize(
    ("version", "plugin", "says"),
    [
        ("2.0.21-debian", "python3", None),
        ("2.0.21", "", None),
        ("2.0.28", "python3", "It has uwsgi 2.0.28, but the file says 2.0.21. Write served.uwsgi: 2.0.28"),
        ("2.0.21", "lua", "Its uwsgi has no plugin for Python, such as Debian's uwsgi-plugin-python3."),
        ("", "", "It has no uwsgi."),
    ],
)
def test_an_image_with_uwsgi_needs_its_plugin_for_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, plugin: str, says: str | None
) -> None:
    """The plugin is inside uWSGI, as pip builds it, or beside uWSGI, as in Debian and Alpine."""
    if version:
        asked = f"--plugin {plugin} --help" if plugin else "--help"
        answers = f'case "$*" in --version) echo {version} ;; "{asked}") echo --wsgi-file ;; esac'
        (tmp_path / "uwsgi").write_text(f"#!/bin/sh\n{answers}\n")
        (tmp_path / "uwsgi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    assert module_at(CHECK).problem("uwsgi", "2.0.21") == says
