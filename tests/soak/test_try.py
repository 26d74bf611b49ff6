"""An application that knows nothing of the lab, in real containers: who served each request, and what is said of it."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import yaml

from stampede.diagnosis.model import read_diagnosis
from stampede.records.folder import read_summary, read_trial, trial_folder
from tests.conftest import Lab
from tests.measuring import rows_of
from tests.quick.test_own import SHOP

pytestmark = pytest.mark.usefixtures("own_images", "nothing_left")


DJANGO = """\
import os

from django.conf import settings

settings.configure(
    SECRET_KEY="a secret", ALLOWED_HOSTS=["*"], ROOT_URLCONF="site_of_shop",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"/tmp/shop-{os.getpid()}.sqlite3"}},
    INSTALLED_APPS=["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
                    "django.contrib.messages", "django.contrib.sessions"],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware",
                "django.contrib.auth.middleware.AuthenticationMiddleware",
                "django.contrib.messages.middleware.MessageMiddleware"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
                "OPTIONS": {"context_processors": ["django.template.context_processors.request",
                                                   "django.contrib.auth.context_processors.auth",
                                                   "django.contrib.messages.context_processors.messages"]}}],
)

from django.contrib import admin
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.urls import path

application = get_wsgi_application()
call_command("migrate", verbosity=0)
urlpatterns = [path("admin/", admin.site.urls)]
"""
SLOW_TO_START = """\
import time

time.sleep(20)


def app(environ, start_response):
    start_response("200 OK", [])
    return [b"started"]
"""
THREADS_OF_ITS_OWN = """\
import threading, time

done = []


def app(environ, start_response):
    thread = threading.Thread(target=lambda: (time.sleep(0.2), done.append(1)))
    thread.start()
    thread.join()
    start_response("200 OK", [])
    return [b"joined"]
"""
FASTAPI = """\
import asyncio
from fastapi import BackgroundTasks, FastAPI
from fastapi.responses import StreamingResponse

app = FastAPI()


@app.get("/")
async def home(later: BackgroundTasks):
    later.add_task(asyncio.sleep, 0.1)
    await asyncio.sleep(0.02)
    return {"it": "works"}


@app.get("/parts")
async def parts():
    async def said():
        for number in range(3):
            await asyncio.sleep(0.02)
            yield str(number)
    return StreamingResponse(said())
"""
UWSGI_INI = """\
[uwsgi]
http-socket = /nowhere
module = httpbin:app
processes = 2
threads = 2
harakiri = 77
max-requests = 1000
[other]
nowhere = 1
"""
THREADS = "gunicorn -w 2 --threads 2 site_of_shop:app"
OTHERS: dict[str, tuple[str, str, str, str, dict[str, str]]] = {
    "granian-wsgi": (
        "granian --interface wsgi --workers 2 --blocking-threads 2 httpbin:app", "httpbin==0.10.2", "granian: 2.7.9",
        "", {"get": "/get", "late": "/delay/1"},
    ),
    "granian": (
        "granian --interface asgi --workers 2 --backpressure 16 site_of_shop:app", "fastapi", "granian: 2.8.7",
        FASTAPI, {"home": "/", "parts": "/parts"},
    ),
    "daphne": (
        "daphne site_of_shop:app", "fastapi", "daphne: 4.2.3", FASTAPI, {"home": "/", "parts": "/parts"}
    ),
    "django": (
        "gunicorn -w 2 --threads 2 site_of_shop:application", "django==5.2.8", "gunicorn: 27.0.1", DJANGO,
        {"login": "/admin/login/", "admin": "/admin/"}
    ),
    "gunicorn-21": (THREADS, "", "gunicorn: 21.2.0", THREADS_OF_ITS_OWN, {"home": "/"}),
    "slow-to-start": (THREADS, "", "gunicorn: 27.0.1", SLOW_TO_START, {"home": "/"}),
    "gevent": (
        "gunicorn -k gevent -w 2 site_of_shop:app", "gevent\npackaging", "gunicorn: 27.0.1",
        f"from gevent import monkey; monkey.patch_all()\n{THREADS_OF_ITS_OWN}",
        {"home": "/"},
    ),
    "uwsgi": (
        "uwsgi --ini uwsgi.ini", "httpbin==0.10.2", "uwsgi: 2.0.31", "",
        {"get": "/get"},
    ),
    "uvicorn": (
        "uvicorn --workers 2 site_of_shop:app", "fastapi\nuvicorn[standard]", "uvicorn: 0.38.0", FASTAPI,
        {"home": "/", "parts": "/parts"},
    ),
    "gunicorn-asgi": (
        "gunicorn -k asgi -w 2 site_of_shop:app", "fastapi", "gunicorn: 27.0.1", FASTAPI,
        {"home": "/", "parts": "/parts"},
    ),
    "gunicorn-uvicorn": (
        "gunicorn -k uvicorn_worker.UvicornWorker -w 2 site_of_shop:app", "fastapi\nuvicorn-worker", "gunicorn: 23.0.0",
        FASTAPI, {"home": "/"},
    ),
    "datasette": (
        "hypercorn -w 2 site_of_shop:app", "datasette", "hypercorn: 0.18.0",
        "from datasette.app import Datasette\n\napp = Datasette(memory=True).app()\n",
        {"home": "/", "query": "/_memory.json?sql=select+1"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_applications_of_others_are_tried(lab: Lab, tmp_path: Path, kind: str) -> None:
    """Nobody wrote them for the lab. An answer of each request names its worker, and all counts agree."""
    command, requirements, served, source, paths = OTHERS[kind]
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "requirements.txt").write_text(f"{requirements}\n")
    (tmp_path / "shop" / "site_of_shop.py").write_text(source)
    (tmp_path / "shop" / "uwsgi.ini").write_text(UWSGI_INI)
    asks = "\n".join(f"  {name}: {{path: '{path}', users: 2, pause_s: 0.1}}" for name, path in paths.items())
    (tmp_path / "other.yaml").write_text(
        f"application: {{folder: shop, command: '{command}', requirements: requirements.txt}}\n"
        f"served: {{{served}}}\nrequests:\n{asks}\n"
    )

    done = lab.run_for(300, "try", str(tmp_path / "other.yaml"), "--trials", "1", "--duration", "5s", "--ways", "today")

    assert done.returncode == 0, done.stdout + done.stderr
    run = (lab.results / "other-tried" / "latest").resolve()
    diagnosis = read_diagnosis(run)
    assert diagnosis
    assert diagnosis.sentences
    requests = duckdb.read_parquet(f"{trial_folder(run, 'today', 'own', 1)}/requests.parquet")
    sql = "SELECT count(error), count(*) = count(worker), count(DISTINCT request_class) FROM requests"
    assert rows_of(requests, sql) == [(0, True, len(paths))]
    if kind == "uwsgi":
        settings = json.loads(read_trial(trial_folder(run, "today", "own", 1)).settings["own-1"])
        assert [settings[name] for name in ("harakiri", "max-requests", "processes")] == ["77", "1000", "2"]
        assert rows_of(requests, "SELECT count(connection) > 0 FROM requests") == [(True,)]


DATABASE = """\
services:
  db:
    image: stampede/mariadb:trixie
    environment: {LAB_DATABASE_CONNECTIONS: "20", DB_PASSWORD: "l'ab $$x"}
    healthcheck:
      test: [CMD, wait-until-ready, mariadb, --defaults-file=/srv/mariadb.cnf, --execute, USE guestbook]
      interval: 1s
    ports: ["3306:3306"]
    volumes: ["data:/var/lib/mysql", "./init.sql:/srv/more.sql"]
    mem_limit: 700m
    user: lab
    tmpfs: [/tmp]
  web:
    image: not-there
volumes:
  data:
"""
WITH_DATABASE = """\
import ctypes
import os
import sys

import pymysql

ctypes.CDLL("libmagic.so.1")


def connect():
    return pymysql.connect(host="db", user="lab", password=os.environ["PASSWORD"], database="guestbook")


def app(environ, start_response):
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT name FROM guests")
        [(name,)] = cursor.fetchall()
    start_response("200 OK", [])
    return [name.encode()]


if __name__ == "__main__":
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE guests (name VARCHAR(10))")
        cursor.execute("INSERT INTO guests VALUES (%s)", sys.argv[1])
        connection.commit()
"""


def test_an_application_has_its_database(lab: Lab, tmp_path: Path) -> None:
    """The image of MariaDB stands for an image that exists. A command writes a row before the application is served.

    The application has a library of Debian, too.
    """
    assert lab.run_for(300, "run", "django-fastcgi", "--trials", "1", "--duration", "1s", "--variants", "gunicorn")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "shop.py").write_text(WITH_DATABASE)
    (tmp_path / "shop" / "requirements.txt").write_text("pymysql\n")
    (tmp_path / "shop" / "init.sql").write_text("SELECT 1;\n")
    (tmp_path / "shop" / "compose.yml").write_text(DATABASE)
    (tmp_path / "names.env").write_text("PASSWORD=lab\n")
    file = tmp_path / "my-service.yaml"
    file.write_text(
        "application:\n  folder: shop\n  command: gunicorn -w 2 --threads 2 shop:app\n"
        "  requirements: requirements.txt\n  system_packages: [libmagic1]\n"
        "  env_file: names.env\n  before: python shop.py $USER_OF_SHOP\n  environment: {USER_OF_SHOP: Ada}\n"
        "served: {gunicorn: 27.0.1}\nbeside: {compose: shop/compose.yml, services: [db]}\n"
        "requests:\n  guests: {path: /, users: 3}\n"
    )

    done = lab.run_for(300, "try", str(file), "--trials", "1", "--duration", "5s", "--ways", "least-conn")

    assert done.returncode == 0, done.stdout + done.stderr
    run = (lab.results / "my-service-tried" / "latest").resolve()
    for variant in ("today", "least-conn-2x2"):
        requests = duckdb.read_parquet(f"{trial_folder(run, variant, 'own', 1)}/requests.parquet")
        assert rows_of(requests, "SELECT count(error), count(*) > 10 FROM requests") == [(0, True)]
    composed = yaml.safe_load((trial_folder(run, "today", "own", 1) / "compose.yml").read_text())["services"]
    assert composed["beside-db"]["mem_limit"] == str(700 * 2**20)
    assert "ports" not in composed["beside-db"]
    assert [mount["target"] for mount in composed["beside-db"]["volumes"]] == ["/srv/more.sql"]
    recorded = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert b"l'ab" not in recorded
    assert str(tmp_path).encode() not in recorded

    file.write_text(file.read_text().replace("python shop.py", "python nothing.py"))
    done = lab.run_for(300, "try", str(file), "--trials", "1", "--duration", "5s", "--ways", "today")
    assert done.returncode == 1
    assert "can't open file '/opt/application/nothing.py'" in " ".join(done.stderr.split())


IMAGE = """\
FROM debian:trixie-slim
RUN echo "deb http://deb.debian.org/debian bookworm main" > /etc/apt/sources.list.d/older.list \\
 && printf 'Package: python3* libpython3* gunicorn uwsgi*\\nPin: release n=bookworm\\nPin-Priority: 1001\\n' \\
  > /etc/apt/preferences.d/older && apt-get update && apt-get install --yes --no-install-recommends \\
  python3-flask gunicorn uwsgi-plugin-python3 busybox-static
RUN cp /usr/bin/python3.11 /usr/bin/uwsgi-core /usr/bin/busybox / && rm -r /usr/bin/* /usr/sbin/* \\
 && /busybox mv /python3.11 /usr/bin/python3 && /busybox mv /uwsgi-core /usr/bin/uwsgi && /busybox --install /usr/bin
WORKDIR /home/shop
COPY app.py ./
ENV GREETING=hello
"""


@pytest.fixture
def image_that_exists(tmp_path: Path) -> Iterator[str]:
    """An image as somebody has it: with an older Python, gunicorn and uWSGI, and run by root.

    As on Alpine, BusyBox has all of its programs.
    """
    (tmp_path / "Dockerfile").write_text(IMAGE)
    (tmp_path / "app.py").write_text(f"{SHOP}\n\nimport sys\nassert sys.version_info[:2] == (3, 11)\n")
    name = f"stampede-test-shop:{tmp_path.name.replace('_', '-')}"
    command = ["docker", "buildx", "build", "--load", "--tag", name, "."]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    yield name
    subprocess.run(["docker", "image", "rm", "--force", name], check=True, capture_output=True)


def test_an_image_that_exists_is_tried(lab: Lab, tmp_path: Path, image_that_exists: str) -> None:
    """With each of its servers."""
    file = tmp_path / "my-service.yaml"
    file.write_text(
        f"application: {{image: {image_that_exists}, command: 'COMMAND', environment: {{GREETING: bonjour}}}}\n"
        "served: {gunicorn: 27.0.1}\nrequests:\n  home: {path: /, users: 3}\n"
    )
    described = file.read_text()
    of_gunicorn, of_uwsgi = "gunicorn -w 2 --threads 2 app:app", "uwsgi --module app:app --processes 2 --threads 2"
    file.write_text(described.replace("COMMAND", of_gunicorn))
    try_it = ["try", str(file), "--trials", "1", "--duration", "5s", "--ways"]

    done = lab.run_for(300, *try_it, "today")
    assert done.returncode == 1
    assert f"error: The image {image_that_exists} cannot be measured.\n" in done.stderr
    assert "It has gunicorn 20.1.0, but the file says 27.0.1. Write served.gunicorn: 20.1.0" in done.stderr

    ways = ((of_gunicorn, "gunicorn: 20.1.0", "today"), (of_uwsgi, "uwsgi: 2.0.21", "map-socket-2x2"))
    for command, server, way in ways:
        file.write_text(described.replace("COMMAND", command).replace("gunicorn: 27.0.1", server))
        done = lab.run_for(300, *try_it, way.removesuffix("-2x2"))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "runs as root; the lab runs it as the user 10001, who has no rights." in done.stderr
        run = (lab.results / "my-service-tried" / "latest").resolve()
        requests = duckdb.read_parquet(f"{trial_folder(run, way, 'own', 1)}/requests.parquet")
        who = "SELECT count(error), count(*) > 10, count(DISTINCT worker) FROM requests"
        assert rows_of(requests, who) == [(0, True, 2)]
        assert read_summary(run).validity.verdict != "invalid"


ASKED_OF_GUNICORN = """\
import time

from flask import Flask

app = Flask(__name__)


@app.route("/slow")
def slow():
    time.sleep(4)
    return ""


@app.route("/fast")
def fast():
    return ""
"""
SLOW = "  slow: {path: /slow, users: 2}"
FAST = "  fast: {path: /fast, users: 2, pause_s: 0.05}"
DIAGNOSED = {
    "2191": ("-k gthread -w 4", f"{SLOW}\n{FAST}", True),
    "3433": ("-k gthread -w 2", SLOW, True),
    "healthy": ("-w 4 --threads 2", FAST, False),
}  # fmt: skip


@pytest.mark.parametrize("round_", range(1, 11))
@pytest.mark.parametrize("kind", DIAGNOSED)
def test_what_was_asked_of_gunicorn_is_diagnosed_every_time(lab: Lab, tmp_path: Path, kind: str, round_: int) -> None:
    """The applications of gunicorn's issues 2191 and 3433, with 4 s instead of 100 s and 10 s, and one that is well."""
    options, asks, alarm = DIAGNOSED[kind]
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").write_text(ASKED_OF_GUNICORN)
    (tmp_path / "shop" / "requirements.txt").write_text("flask==3.1.3\n")
    (tmp_path / "asked.yaml").write_text(
        f"application: {{folder: shop, command: gunicorn {options} app:app, requirements: requirements.txt}}\n"
        f"served: {{gunicorn: 27.0.1}}\nrequests:\n{asks}\n"
    )

    done = lab.run_for(
        300, "try", str(tmp_path / "asked.yaml"), "--trials", "1", "--duration", "20s", "--ways", "today",
        "--seed", str(round_),
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    diagnosis = json.loads((lab.results / "asked-tried" / "latest" / "diagnosis.json").read_text())
    assert diagnosis["alarm"] == alarm, diagnosis
    said = " ".join(diagnosis["sentences"])
    assert ("while another worker had a free thread" in said) == alarm


def test_a_log_is_sent_again_at_its_times(lab: Lab, tmp_path: Path) -> None:
    """All requests, in their order, and no query string in a record."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").write_text(f"{SHOP}\n\n@app.route('/fine')\ndef fine():\n    return 'fine'\n")
    (tmp_path / "shop" / "requirements.txt").write_text("flask==3.1.3\n")
    came_s = [round(0.02 * number + 0.013 * (number % 7), 3) for number in range(400)]
    lines = [
        {
            "msec": 1795500000 + at,
            "request": f"GET {'/stream' if at > 4 else '/fine'}?token=s3cret HTTP/1.1",
            "status": 200,
        }
        for at in came_s
    ]
    (tmp_path / "access.log").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    (tmp_path / "mine.yaml").write_text(
        "application: {folder: shop, command: gunicorn -w 4 --threads 4 app:app, requirements: requirements.txt}\n"
        "served: {gunicorn: 27.0.1}\nreplay: {log: access.log}\n"
    )

    done = lab.run_for(300, "try", str(tmp_path / "mine.yaml"), "--trials", "1", "--ways", "today")

    assert done.returncode == 0, done.stdout + done.stderr
    run = (lab.results / "mine-tried" / "latest").resolve()
    requests = duckdb.read_parquet(f"{trial_folder(run, 'today', 'replay', 1)}/requests.parquet")
    sent_s = [float(str(at)) for (at,) in rows_of(requests, "SELECT epoch(sent) FROM requests ORDER BY sent")]
    assert len(sent_s) == len(came_s)
    late_ms = sorted(1000 * ((at - sent_s[0]) - came) for at, came in zip(sent_s, sorted(came_s), strict=True))
    print(f"late by {late_ms[len(late_ms) // 2]:.1f} ms, p99 {late_ms[-5]:.1f} ms, first {late_ms[0]:.1f} ms")
    assert rows_of(requests, "SELECT request_class, count(*), count(error) FROM requests GROUP BY 1 ORDER BY 1") == [
        ("get-fine", sum(at <= 4 for at in came_s), 0), ("get-stream", sum(at > 4 for at in came_s), 0)
    ]  # fmt: skip
    assert b"s3cret" not in b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
