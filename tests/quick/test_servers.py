"""servers/: the small programs that start a server and ask it, run here with folders of their own."""

import os
import runpy
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from stampede.paths import SERVERS
from stampede.servers import KINDS

sys.path.insert(0, str(SERVERS / "app"))

import counters


def shell(script: Path, folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a script of the servers with another folder in place of /tmp, and every program it may start in there."""
    programs = {"PATH": f"{folder / 'programs'}:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-c", script.read_text().replace("/tmp/", f"{folder}/"), script.name, *arguments],
        env=programs | environment, cwd=script.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A folder with programs that say how they were called."""
    (tmp_path / "programs").mkdir()
    for name in ("curl", "daphne", *KINDS):
        program = tmp_path / "programs" / name
        program.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        program.chmod(0o755)
    return tmp_path


def test_a_server_is_ready_when_all_its_workers_are_there_and_one_answers(told: Path) -> None:
    """One that has workers to come would share the first requests among too few."""
    script = SERVERS / "workers-ready"
    url = "http://127.0.0.1:8000/-/ready"
    message = "{} of 2 workers have loaded the application\n"

    nobody = shell(script, told, url, LAB_WORKERS="2")
    assert (nobody.returncode, nobody.stdout, nobody.stderr) == (1, "", message.format(0))
    (told / "workers").mkdir()
    (told / "workers" / "17").touch()
    one = shell(script, told, url, LAB_WORKERS="2")
    assert (one.returncode, one.stdout, one.stderr) == (1, "", message.format(1))
    (told / "workers" / "18").touch()
    both = shell(script, told, url, LAB_WORKERS="2")
    assert (both.returncode, both.stderr) == (0, "")
    assert both.stdout == f"curl --fail-with-body --silent --show-error --max-time 2 {url}\n"


def test_a_server_in_an_image_without_curl_is_ready_at_the_same_time(told: Path) -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/-/ready" else 503)
            self.end_headers()
            self.wfile.write(b"no database")

        def log_message(self, *_: object) -> None:
            pass

    script = (SERVERS / "user-service" / "image" / "workers-ready").read_text().replace("/tmp/", f"{told}/")

    def run(path: str, workers: int = 1) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", script, f"http://127.0.0.1:{server.server_port}{path}"]
        environment = os.environ | {"LAB_WORKERS": str(workers)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    (told / "workers").mkdir()
    (told / "workers" / "17").touch()
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever).start()
        done, missing, broken = run("/-/ready"), run("/-/ready", 2), run("/-/health")
        server.shutdown()
    nobody = run("/-/ready")

    assert (done.returncode, done.stderr) == (0, "")
    assert (missing.returncode, missing.stderr) == (1, "1 of 2 workers have loaded the application\n")
    assert (broken.returncode, broken.stderr.partition("health ")[2]) == (
        1,
        "is answered with status 503\nno database\n",
    )
    assert (nobody.returncode, "refused" in nobody.stderr) == (1, True)


@pytest.mark.parametrize(("code", "probes"), [(7, 26), (28, 1)])
def test_a_health_check_is_over_soon_if_nobody_answers(told: Path, code: int, probes: int) -> None:
    """Each probe has waited for its answer, and the engine counts the calls of the check."""
    probe = f"echo probe >> {told}/probes; echo nobody; exit {code}"
    (told / "programs" / "sleep").symlink_to("/bin/true")

    done = shell(SERVERS / "wait-until-ready", told, "sh", "-c", probe, LAB_WORKERS="2")

    assert (done.returncode, done.stdout) == (1, "nobody\n")
    assert (told / "probes").read_text().split() == ["probe"] * probes


def test_what_workers_have_counted_is_told_with_the_settings(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "FOLDER", told / "workers")
    counting = counters.Counters("served", "accepted")
    counting.add("served")
    (told / "settings").write_text("everything\n")

    done = shell(SERVERS / "observe-counted", told)

    assert done.stdout == (
        f"==> worker {os.getpid()} <==\nserved {1:020}\naccepted {0:020}\n==> settings <==\neverything\n"
    )


def test_a_count_that_comes_after_the_answer_is_waited_for(told: Path) -> None:
    """The count grows while the program sleeps for the first two times."""
    (told / "workers").mkdir()
    (told / "workers" / "7").write_text("served 1\n")
    (told / "settings").write_text("")
    sleep = told / "programs" / "sleep"
    sleep.write_text(
        f"#!/bin/sh\necho >> {told}/slept\nif [ $(wc -l < {told}/slept) -le 2 ]; then "
        f"echo served $(($(wc -l < {told}/slept) + 1)) > {told}/workers/7; fi\n"
    )
    sleep.chmod(0o755)

    done = shell(SERVERS / "observe-counted", told)

    assert done.stdout == "==> worker 7 <==\nserved 3\n==> settings <==\n"


ASGI = "LAB_LOOP=uvloop LAB_WORKERS=3 LAB_APP=app:app LAB_THREADS=2 LAB_KEEPALIVE_S=65"
ADDRESS = "--host 0.0.0.0 --port 8000"
STARTS = {
    "uvicorn": f"{ADDRESS} --http httptools --loop uvloop --no-access-log --timeout-keep-alive 65",
    "granian": f"{ADDRESS} --interface asgi --loop uvloop",
    "hypercorn": "--bind 0.0.0.0:8000 --worker-class uvloop",
    "granian-wsgi": f"{ADDRESS} --interface wsgi --no-ws --blocking-threads 2",
}
"""The options of each server that servers/asgi/start knows, beside those of all."""


def asgi(told: Path, server: str, **further: str) -> "subprocess.CompletedProcess[str]":
    """Start a server of the image with some variables."""
    given = dict(each.split("=") for each in ASGI.split())
    return shell(SERVERS / "asgi" / "start", told, LAB_SERVER=server, **given, **further)


@pytest.mark.parametrize("server", [word for word, server in KINDS.items() if server.service == "asgi"])
def test_a_server_is_started_with_the_loop_and_the_workers_of_the_experiment(told: Path, server: str) -> None:
    done = asgi(told, server)

    expected = f"{server.partition('-')[0]} {STARTS[server]} --workers 3 --backlog 4096 app:app\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    assert (told / "settings").read_text() == expected


def test_uvicorn_is_told_when_it_refuses_requests_and_when_a_worker_ends(told: Path) -> None:
    done = asgi(told, "uvicorn", LAB_LIMIT_CONCURRENCY="8", LAB_MAX_REQUESTS="100", LAB_MAX_REQUESTS_JITTER="7")

    assert " --limit-concurrency 8 --workers 3 " in done.stdout
    assert done.stdout.endswith(" app:app --limit-max-requests 100 --limit-max-requests-jitter 7\n")


UWSGI = {"WORKERS": "2", "THREADS": "1", "SOMAXCONN": "100", "PROTOCOL": "http", "THUNDER_LOCK": "false",
         "MAP_SOCKET": "false"}  # fmt: skip


def uwsgi(told: Path, **changed: str) -> list[str]:
    """Return the options with which uWSGI is started beside those of every start."""
    environment = {f"LAB_{name}": value for name, value in (UWSGI | changed).items()}
    done = shell(SERVERS / "uwsgi" / "start", told, **environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"uwsgi --strict --ini {told}/uwsgi.ini\n", "")
    written = (told / "uwsgi.ini").read_text()
    return written.removeprefix((SERVERS / "uwsgi" / "uwsgi.ini").read_text()).replace(str(told), "/told").splitlines()


APPLICATION = "module = application:app"
SOCKET = ["socket = 0.0.0.0:8000"]
MAPPED = ["socket = 0.0.0.0:8000", "map-socket = 0:1", "socket = 0.0.0.0:8001", "map-socket = 1:2"]
TCP, UNIX = "127.0.0.1:7999", "/told/processes.sock"


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({"SOMAXCONN": "4096", "PROTOCOL": "fastcgi"}, ["listen = 2048", "protocol = fastcgi", APPLICATION, *SOCKET]),
        ({"MAP_SOCKET": "true", "PROTOCOL": "fastcgi"}, ["listen = 100", "protocol = fastcgi", APPLICATION, *MAPPED]),
        ({"ROUTER": "tcp"},
         ["listen = 100", APPLICATION, "http = 0.0.0.0:8000", f"http-to = {TCP}", f"socket = {TCP}"]),
        ({"ROUTER": "unix"},
         ["listen = 100", APPLICATION, "http = 0.0.0.0:8000", f"http-to = {UNIX}", f"socket = {UNIX}"]),
        ({"MAX_REQUESTS": "9"}, ["listen = 100", "protocol = http", APPLICATION, "max-requests = 9", *SOCKET]),
    ],
)  # fmt: skip
def test_uwsgi_is_started_with_a_queue_of_up_to_2048_and_the_sockets_of_the_experiment(
    told: Path, changed: dict[str, str], lines: list[str]
) -> None:
    assert uwsgi(told, **changed) == ["processes = 2", "threads = 1", *lines]


def test_uwsgi_tells_the_counts_of_processes_that_have_ended_if_the_application_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (SERVERS / "uwsgi" / "stats.py").read_text().replace("/tmp/", f"{tmp_path}/")
    stats: dict[str, Any] = {"__name__": "stats"}
    exec(compile(text, "stats.py", "exec"), stats)
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\n")
    there = {"workers": [{"pid": 9, "cores": [{"requests": 3}, {"requests": 4}]}]}
    new = {"pid": 10, "cores": [{"requests": 250}]}

    stats["observe"](there)
    (tmp_path / "workers").mkdir()
    for worker, count in ((8, 120), (9, 8)):
        (tmp_path / "workers" / str(worker)).write_text(f"served {count}\n")
    stats["observe"]({"workers": [*there["workers"], new]})

    assert capsys.readouterr().out == (
        "==> worker 9 <==\nserved 7\n==> settings <==\n[uwsgi]\n"
        "==> worker 8 <==\nserved 120\n==> worker 9 <==\nserved 8\n==> worker 10 <==\nserved 0\n"
        "==> settings <==\n[uwsgi]\n"
    )


def test_a_server_that_nobody_knows_is_not_started(told: Path) -> None:
    done = shell(SERVERS / "asgi" / "start", told, LAB_SERVER="nobody")

    assert (done.returncode, done.stderr) == (2, "LAB_SERVER=nobody is unknown to this image\n")
    assert not (told / "settings").exists()


def gunicorn(monkeypatch: pytest.MonkeyPatch, app: str, threads: str) -> dict[str, Any]:
    """Return gunicorn's settings for an application."""
    factors = {
        "APP": app, "WORKER_CLASS": "gthread", "WORKERS": "2", "THREADS": threads, "WORKER_CONNECTIONS": "5",
        "KEEPALIVE_S": "0", "REUSE_PORT": "false", "LOOP": "uvloop",
    }  # fmt: skip
    for name, value in factors.items():
        monkeypatch.setenv(f"LAB_{name}", value)
    return runpy.run_path(str(SERVERS / "gunicorn" / "gunicorn.conf.py"))


def test_gunicorn_has_the_settings_of_the_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = gunicorn(monkeypatch, "flask_app:app", "3")

    assert (settings["wsgi_app"], settings["threads"], settings["asgi_loop"]) == ("flask_app:app", 3, "uvloop")
    assert gunicorn(monkeypatch, "wsgi:app", "")["threads"] == 1


@pytest.mark.parametrize("app", ["wsgi:app", "flask_app:app"])
def test_gunicorns_workers_count_what_they_served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, app: str) -> None:
    monkeypatch.setattr(counters, "FOLDER", tmp_path)
    settings = gunicorn(monkeypatch, app, "2")
    worker = SimpleNamespace(counted=("accepted",))

    settings["post_worker_init"](worker)
    settings["post_request"](worker, None, None, None)

    assert (tmp_path / str(os.getpid())).read_text() == f"served {1:020}\naccepted {0:020}\n"


@pytest.mark.parametrize("app", ["fastapi_app:sync", "fastapi_app:typed", "fastapi_app:asynchronous"])
def test_where_the_application_counts_gunicorn_has_no_hook(monkeypatch: pytest.MonkeyPatch, app: str) -> None:
    """Its asgi worker would call one that has no counters after each request, and write a traceback."""
    assert not {"post_worker_init", "post_request"} & gunicorn(monkeypatch, app, "").keys()


def test_a_server_that_the_lab_ends_is_started_again_and_one_that_ends_by_itself_is_not(told: Path) -> None:
    """The lab removes the file with the server's process before it ends the server, and says when to start again."""
    server = f"echo started >> {told}/starts; [ $(wc -l < {told}/starts) = 2 ] || rm {told}/server; exit 3"
    (told / "again").touch()

    again = shell(SERVERS / "with-database", told, "sh", "-c", server, LAB_TERM_AFTER_S="3.0")
    assert (again.returncode, (told / "starts").read_text().split()) == (3, ["started"] * 2)
    assert not (told / "again").exists()

    alone = shell(SERVERS / "with-database", told, "sh", "-c", "echo served", LAB_TERM_AFTER_S="0")
    assert (alone.returncode, alone.stdout) == (0, "served\n")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [({}, 1), ({"HUP_AFTER_S": "5.0"}, 10), ({"TERM_AFTER_S": "5.0"}, 10), ({"MAX_REQUESTS": "9"}, 10)],
)
def test_gunicorns_workers_may_finish_their_requests_if_they_are_replaced(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], seconds: int
) -> None:
    for name, value in ({"MAX_REQUESTS_JITTER": "7"} | given).items():
        monkeypatch.setenv(f"LAB_{name}", value)
    settings = gunicorn(monkeypatch, "wsgi:app", "3")

    told = (settings["max_requests"], settings["max_requests_jitter"], settings["graceful_timeout"])
    assert told == (int(given.get("MAX_REQUESTS", 0)), 7, seconds)


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ({"server": "gunicorn-gthread", "workers": 4, "threads": 2, "worker_connections": 2},
         ["# gunicorn.conf.py", 'worker_class = "gthread"', "workers = 4", "threads = 2", "keepalive = 0",
          "# with gunicorn 24 or later:", "worker_connections = 2"]),
        ({"server": "gunicorn-uvicorn", "workers": 4, "app": "fastapi-sync", "threads": 40},
         ["# gunicorn.conf.py", 'worker_class = "uvicorn_worker.UvicornWorker"', "workers = 4", "keepalive = 0"]),
        ({"server": "granian", "workers": 4, "app": "fastapi-async"}, ["granian --interface asgi --workers 4"]),
        ({"server": "uvicorn", "workers": 4, "app": "fastapi-async", "max_requests": 9, "keepalive_s": 75},
         ["uvicorn --workers 4 --limit-max-requests 9 --timeout-keep-alive 75"]),
        ({"server": "uwsgi", "workers": 1, "threads": 2, "map_socket": True},
         ["# uwsgi.ini", "[uwsgi]", "master = true", "processes = 1", "threads = 2", "socket = 127.0.0.1:8001",
          "map-socket = 0:1", "", "# nginx.conf", "upstream app {", "    zone app 64k;", "    least_conn;",
          "    server 127.0.0.1:8001;", "}"]),
        ({"server": "python314-granian", "workers": 1, "threads": 8, "gil": False},
         ["granian --interface wsgi --workers 1 --blocking-threads 8"]),
        ({"server": "python314-uwsgi", "workers": 1, "threads": 8, "gil": False},
         ["# uwsgi.ini", "[uwsgi]", "processes = 1", "threads = 8", "master = true", "wsgi-env-behaviour = holy"]),
        ({"server": "flup-prefork", "workers": 10, "threads": 1}, []),
    ],
)  # fmt: skip
def test_what_to_paste_follows_from_the_options_that_differ_from_the_server_s_defaults(
    settings: dict[str, object], lines: list[str]
) -> None:
    """Threads of a pool in the application are no threads of the server."""
    assert KINDS[str(settings["server"])].model_validate(settings).configuration() == lines
