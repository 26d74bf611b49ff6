"""Today is the user's own command: what it says is in force when it serves, but for its address.

The real servers of this environment serve in a root and a network of their own, as in a container of a trial.
"""

import json
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from urllib.parse import quote

import pytest

from stampede.paths import SERVERS as SERVERS_OF_THE_LAB
from stampede.service.description import Application
from stampede.service.layer import start_of
from tests.conftest import wait_until
from tests.sealed import served
from tests.whole.test_discovery import needs_a_root, written

pytestmark = needs_a_root
CLIENT = """
import fcntl, http.client, json, socket, struct, sys, time
lo = socket.socket()
fcntl.ioctl(lo, 0x8914, struct.pack("16sH14s", b"lo", 0x41, b""))  # the loopback interface is up
def ask(path="/", connection=None):
    kept = connection or http.client.HTTPConnection("127.0.0.1", 8000, timeout=9)
    kept.request("GET", path, headers={"Lab-Id": "1-1"})
    return kept.getresponse().read().decode()
def overflows():
    names, values = [line.split() for line in open("/proc/net/netstat") if line.startswith("TcpExt")]
    return int(values[names.index("ListenOverflows")])
for _ in range(100):
    try:
        ask("/-/ready")
        break
    except OSError:
        time.sleep(0.1)
"""
APP = """\
import os, time
LOADED = os.getpid()
hooked = []
def app(environ, start_response):
    if environ["PATH_INFO"] == "/slow":
        time.sleep(3)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "20")])
    return [f"{os.getpid()} {LOADED} {len(hooked)}".ljust(20).encode()]
"""
CONF = """\
bind = "unix:/run/shop.sock"
user = "nobody-here"
worker_class = "gthread"
workers = 1
threads = 2
backlog = 1
keepalive = 30
preload_app = True
max_requests = 12

def post_worker_init(worker):
    import app
    app.hooked.append(worker.pid)
"""
ASGI = """\
async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""
SERVERS = {
    "uvicorn": ({"app.py": ASGI}, "uvicorn app:app --workers 2 --uds /run/shop.sock", 2),
    "a program": ({"app.py": ASGI, "main.py": "import app, uvicorn\nuvicorn.run(app.app)\n"}, "python main.py", 1),
    "granian": ({"app.py": APP}, "granian --interface wsgi --workers 2 --port 9 app:app", 2),
    "hypercorn": ({"app.py": APP}, "hypercorn -w 2 --bind unix:/run/shop.sock wsgi:app:app", 2),
    "daphne": ({"app.py": ASGI}, "daphne -b 127.0.0.1 app:app", 1),
    "supervisord": ({"app.py": APP, "s.conf": "[program:celery]\ncommand=celery worker\n[program:web]\n"
                     "command=gunicorn -w 2 app:app\n"}, "supervisord -c s.conf", 2),
    "two programs": ({"app.py": APP, "run.sh": "#!/bin/bash\ncelery worker &\ngunicorn -w 2 app:app &\nwait -n\n"},
                     "bash run.sh", 2),
    "gevent": ({"app.py": APP}, "gunicorn -k gevent -w 2 app:app", 2),
    "gunicorn's ASGI": ({"app.py": ASGI}, "gunicorn -k asgi -w 2 app:app", 2),
    "gunicorn's ASGI without a lifespan": ({"app.py": ASGI}, "gunicorn -k asgi -w 2 --asgi-lifespan off app:app", 2),
    "tornado": ({"app.py": APP}, "gunicorn -k tornado -w 2 app:app", 2),
    "uvicorn without a lifespan": ({"app.py": ASGI}, "uvicorn app:app --workers 2 --lifespan off", 2),
    "granian's ASGI": ({"app.py": ASGI}, "granian --interface asgi --workers 2 app:app", 2),
    "uWSGI": ({"app.py": APP, "u.ini": "[uwsgi]\nmodule = app:app\nmaster = 1\nprocesses = 2\nsocket = /x\nuid = me\n"},
              "uwsgi u.ini", 2),
}  # fmt: skip


def said_by(process: int, program: str) -> str:
    """Run a program beside the server, in its network, and return what it prints."""
    inside = ["nsenter", "--target", str(process), "--user", "--preserve-credentials", "--net"]
    words = [*inside, sys.executable, "-c", CLIENT + program]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(folder: Path, command: str) -> dict[str, object]:
    return start_of(Application(folder=folder, command=command), {})


def counted(out: Path) -> int:
    """Return how many requests the workers have counted. A worker that begins has made its file before it writes."""
    return sum(int((path.read_text().split() or ["", "0"])[1]) for path in (out / "workers").glob("*"))


def noted(out: Path) -> list[str]:
    """Return what the workers have noted: that they have loaded the application, and of each request that it began."""
    return [line.partition(",")[0] for path in (out / "served").glob("*") for line in path.read_text().splitlines()]


def test_what_the_settings_of_gunicorn_say_is_in_force(tmp_path: Path) -> None:
    """Each setting shows.

    The application is loaded once, a hook is called in each worker, a connection carries several requests, a worker is
    replaced, and the queue of the socket overflows.
    """
    folder = written(tmp_path / "shop", {"app.py": APP, "conf/g.py": CONF})
    program = """
kept = http.client.HTTPConnection("127.0.0.1", 8000)
first = [ask("/", kept) for _ in range(5)]
port = kept.sock.getsockname()[1]
ask("/", kept)
again = [ask() for _ in range(20)]
busy = [http.client.HTTPConnection("127.0.0.1", 8000) for _ in range(2)]
for each in busy:
    each.request("GET", "/slow")
time.sleep(0.5)
waiting = []
for _ in range(1100):
    waiting.append(socket.socket())
    waiting[-1].setblocking(False)
    waiting[-1].connect_ex(("127.0.0.1", 8000))
for _ in range(100):
    if overflows():
        break
    time.sleep(0.1)
print(json.dumps([first + again, kept.sock is not None and kept.sock.getsockname()[1] == port, overflows()]))
"""
    with served(folder, start(folder, "gunicorn -c conf/g.py app:app"), tmp_path) as (out, process):
        answers, is_kept, overflows = json.loads(said_by(process, program))
        settings = json.loads((out / "settings").read_text())
        said = (out / "said").read_text()

    workers, loaded, hooked = ({answer.split()[place] for answer in answers} for place in range(3))
    assert len(workers) > 1
    assert "Autorestarting worker" in said
    assert len(loaded) == 1
    assert not workers & loaded
    assert hooked == {"1"}
    assert is_kept
    assert overflows > 0
    names = ("workers", "threads", "backlog", "keepalive", "preload_app", "max_requests")
    assert [settings[name] for name in names] == [1, 2, 1, 30, True, 12]
    assert sorted(settings["aside"]) == ["bind", "user"]


@pytest.mark.parametrize("name", SERVERS)
def test_each_server_serves_its_own_command_on_the_port_of_the_balancer(tmp_path: Path, name: str) -> None:
    files, command, workers = SERVERS[name]
    folder = written(tmp_path / "shop", files)

    with served(folder, start(folder, command), tmp_path) as (out, process):
        said_by(process, "for _ in range(6): ask()")
        wait_until(lambda: noted(out).count("loaded") == workers)
        wait_until(lambda: counted(out) == 6)
        assert noted(out).count("began") == 6


@pytest.mark.parametrize(
    ("command", "name", "value", "in_force"),
    [
        ("gunicorn -w 1 app:app", "worker_connections", 7, 7),
        ("granian --interface wsgi app:app", "backpressure", 7, 7),
        ("uwsgi --module app:app --http-socket :9", "threads", 3, 3),
        ("uwsgi --module app:app --http-socket :9", "map-socket", True, "0:1"),
    ],
)
def test_a_way_adds_its_options_to_the_command(
    tmp_path: Path, command: str, name: str, value: int, in_force: int | str
) -> None:
    folder = written(tmp_path / "shop", {"app.py": APP})
    way = quote(json.dumps({"options": {"server": command.split(maxsplit=1)[0], "settings": {name: value}}}))

    with served(folder, start(folder, command), tmp_path, way) as (out, process):
        said_by(process, "ask()")

        assert json.loads((out / "settings").read_text())[name] == in_force


def test_another_server_gets_what_the_command_gives_to_its_own(tmp_path: Path) -> None:
    """The variables of a script, the working folder, and the folders of imports."""
    source = APP.replace("LOADED =", "import more\nLOADED =").replace('f"{os', "f\"{os.environ['SHOP']} {os")
    script = "#!/bin/sh\nexport SHOP=tea\nexec gunicorn --chdir src --pythonpath lib app:app\n"
    files = {"src/app.py": source, "src/lib/more.py": "", "run.sh": script}
    folder = written(tmp_path / "shop", files)
    way = {"words": ["granian", "--interface", "wsgi", "app:app"], "environment": {}}

    with served(folder, start(folder, "sh run.sh"), tmp_path, quote(json.dumps(way))) as (out, process):
        answer = said_by(process, "print(ask())")

        assert json.loads((out / "settings").read_text())["server"] == "granian"
    assert answer.startswith("tea ")


def test_an_application_may_be_anywhere_in_its_image(tmp_path: Path) -> None:
    """Its modules have names that programs of the lab have, too."""
    source = APP.replace("import os", "import counters, hooks, os")
    program = (
        "import runpy, sys\nsys.argv = ['gunicorn', '--chdir', '/srv/shop', 'app:app']\n"
        "runpy.run_module('gunicorn', run_name='__main__')\n"
    )
    files = {"shop/app.py": source, "shop/counters.py": "", "shop/hooks.py": "", "start.py": program}
    folder = written(tmp_path / "shop", files)
    application = Application(folder=folder, command="python /srv/start.py", paths={"/srv": "."})

    with served(folder, start_of(application, {}), tmp_path) as (out, process):
        said_by(process, "ask()")

        wait_until(lambda: counted(out) == 1)


def test_a_program_is_never_taken_for_its_own_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that in /usr/local/bin, which is there for scripts that set PATH anew."""
    program = run_path(str(SERVERS_OF_THE_LAB / "user-service" / "start.py"), run_name="start")
    for folder, text in (("ours", f"#!/bin/sh\nexec {program['STAND_INS']}/bin/uwsgi\n"), ("theirs", "#!/bin/sh\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "uwsgi").write_text(text)
        (tmp_path / folder / "uwsgi").chmod(0o755)
    monkeypatch.setenv("STAMPEDE_PATH", f"{tmp_path}/ours:{tmp_path}/theirs")

    assert program["real"]("uwsgi") == f"{tmp_path}/theirs/uwsgi"
    assert program["real"]("nothing") == ""
