"""An application that knows nothing of the lab, in real containers: who served each request, and what is said of it."""

import json
import re
import subprocess
from pathlib import Path

import duckdb
import pytest

from stampede.diagnosis.model import read_diagnosis
from stampede.records.folder import read_trial, trial_folder
from tests.conftest import Lab
from tests.measuring import rows_of
from tests.quick.test_own import COMMAND, FILE, RELEASE, SHOP

pytestmark = pytest.mark.usefixtures("own_images", "nothing_left")


SETTINGS = """\
bind = "unix:/nowhere.sock"
workers = 3
threads = __import__('json').loads('2')
max_requests = 40
backlog = 64
keepalive = 30
preload_app = True
timeout = int(__import__('os').environ['TIMEOUT'])
user = "nobody"


def post_worker_init(worker):
    import app
    app.hooked.append(worker.pid)


def post_request(worker, request):
    app = __import__("app")
    app.hooked.append(request.path)
"""
DOCKERFILE = "FROM python\nENV TIMEOUT=77 GREETING=hello\nCMD gunicorn app:app\n"
CHATTER = """
print("the shop opens", flush=True)
for kind in ("tea", "coffee"):
    app.add_url_rule("/" + kind, kind, lambda: "kind")


loaded_by = os.getpid()


@app.before_request
def chatter():
    print("tick" * 3000, flush=True)
    print("loaded by", loaded_by, "in", os.getpid(), flush=True)


from pathlib import Path
Path(__file__).with_name("instance").mkdir(exist_ok=True)
"""
UNRULY = """

import multiprocessing, signal, subprocess, threading

os.chdir("/")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pool = multiprocessing.get_context("fork").Pool(1)
threading.Thread(target=threading.Event().wait).start()


@app.before_request
def start():
    if request.path == "/report":
        subprocess.run(["true"], check=True)
        subprocess.Popen(["sleep", "1000"])
"""
"""It has threads and processes of its own, which never end, and ignores the signal that asks to end."""
LOGGED_IN = """

from flask import abort, redirect, session

app.secret_key = "a long secret key"
FORM = "<form method=post><input type=hidden name=csrf value=c5rf><input name=user><input name=password></form>"


@app.before_request
def known():
    print("asked with", request.headers.get("Cookie"), flush=True)
    if request.endpoint != "login" and "user" not in session:
        abort(401)
    if request.path == "/buy" and request.headers["X-Is"] != request.cookies["session"]:
        abort(400)


@app.route("/login", methods=["GET", "POST"])
def login():
    meant = {"csrf": "c5rf", "user": "ada", "password": os.environ["TOKEN"]}
    if request.form.to_dict() != meant:
        return FORM
    session["user"] = "ada"
    return redirect("/")
"""
FINE = ("home", "report", "stream", "buy")
BUY = r"""  buy:
    path: /buy?token=${TOKEN}
    method: POST
    users: 1
    pause_s: 0.2
    headers: {Authorization: "Bearer ${TOKEN}", Content-Type: application/json}
    body: '{"it''s": "50 % \\ \"é\""}'
"""


def written(tmp_path: Path, further: str = "") -> Path:
    """Write a small shop and the file that describes it, and return the file."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").write_text(SHOP + further)
    (tmp_path / "shop" / "requirements.txt").write_text("flask==3.1.3\n")
    (tmp_path / "names.env").write_text("GREETING=bonjour\nTOKEN=s3cr'et\nTIMEOUT=77\n")
    file = FILE.replace("  environment: {GREETING: hello}", "  env_file: names.env")
    (tmp_path / "shop" / "gunicorn.conf.py").write_text(SETTINGS)
    file = file.replace(COMMAND, "command: gunicorn app:app").replace(RELEASE, f"{RELEASE}, upstream_keepalive: 8")
    (tmp_path / "my-service.yaml").write_text(f"{file}  broken: {{path: /items/1, per_second: 2}}\n{BUY}")
    return tmp_path / "my-service.yaml"


def assert_asked(told: "subprocess.CompletedProcess[str]", described: str) -> None:
    """Assert that stampede init has asked the shop, and written what only the shop and gunicorn know."""
    assert told.returncode == 0, told.stderr
    assert '  tea: {path: "/tea", users: 10, pause_s: 0.1}  # from the application: its URL map\n' in described
    for line in ('callable: "app:app"', "workers: 3", "threads: 2", "max_requests: 40", "timeout_s: 77"):
        assert re.search(rf"^  # {line}  # gunicorn says", described, re.MULTILINE), line
    assert "not kept: user nobody: the container runs as a user without rights" in described
    assert re.search(r"^  coffee  GET /coffee  +200 +\d+ ms$", told.stderr, re.MULTILINE)


def assert_in_force(folder: Path) -> None:
    """Assert that the settings of the shop's own command show in a trial: a hook is asserted by the shop itself."""
    settings = json.loads(read_trial(folder).settings["own-1"])
    names = ("workers", "threads", "max_requests", "timeout", "backlog", "keepalive", "preload_app")
    assert [settings[name] for name in names] == [3, 2, 40, 77, 64, 30, True]
    assert sorted(settings["aside"]) == ["bind", "user"]
    loaded = {*re.findall(r"loaded by (\d+) in (\d+)", (folder / "own-1.log").read_text())}
    assert len({by for by, _ in loaded}) == 1  # before the workers are forked
    assert all(by != worker for by, worker in loaded)
    assert (folder / "own-1.after.txt").read_text().count("==> worker ") > 3  # some were replaced
    requests = duckdb.read_parquet(f"{folder}/requests.parquet")
    kept = rows_of(requests, "SELECT count(DISTINCT connection) < count(*) / 2 FROM requests")
    assert kept == [(True,)]


def test_an_application_is_tried_as_it_is(copied_lab: Lab, tmp_path: Path) -> None:
    """With its settings, its secrets and its login. A class that fails stops the run, unless it should.

    Its max_requests, keep-alive, backlog, preloading and hooks are in force, because the command is its own. Much
    output is told. Threads and processes of the application's own are no workers. The probe knows the worker and the
    thread of each request on granian, too. Before, init follows the start command to what gunicorn says, and asks the
    application for its routes.
    """
    copied_lab.hurry()
    file = written(tmp_path, CHATTER)
    (tmp_path / "shop" / "Dockerfile").write_text(DOCKERFILE)
    told = copied_lab.run_for(300, "init", str(tmp_path / "shop"), "--to", str(tmp_path / "found.yaml"), "--check")
    (tmp_path / "shop" / "app.py").write_text(SHOP + CHATTER + LOGGED_IN + UNRULY)
    file.write_text(
        file.read_text().replace('{Authorization: "Bearer', '{X-Is: "${cookie.session}", Authorization: "Bearer')
    )
    file.write_text(file.read_text() + 'login: {path: /login, form: {user: ada, password: "${TOKEN}"}}\n')
    stopped = copied_lab.run("try", str(file), "--trials", "1", "--duration", "3s", "--ways", "today")
    file.write_text(file.read_text().replace("path: /items/1,", "path: /items/1, expected_status: 500,"))
    done = copied_lab.run_for(300, "try", str(file), "--trials", "1", "--duration", "3s", "--ways", "granian")

    assert_asked(told, (tmp_path / "found.yaml").read_text())
    assert stopped.returncode == 1
    assert "error: GET /items/1, the class broken, is answered with status 500" in stopped.stderr
    assert "expected_status: 500" in stopped.stderr
    assert "s3cr" not in stopped.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert max(len(line) for line in done.stdout.splitlines() if str(copied_lab.results) not in line) <= 80
    run = (copied_lab.results / "my-service-tried" / "latest").resolve()
    diagnosis = read_diagnosis(run)
    said = " ".join(diagnosis.sentences) if diagnosis else ""
    assert "max_requests replaces each worker after 40 requests: at the measured rate, all 3 workers about " in said
    on_granian = duckdb.read_parquet(f"{trial_folder(run, 'granian-3x2', 'own', 1)}/requests.parquet")
    workers = "SELECT count(DISTINCT worker), count(DISTINCT (worker, thread)) > 2, count(*) > 50 FROM requests"
    assert rows_of(on_granian, workers) == [(3, True, True)]
    folder = trial_folder(run, "today", "own", 1)
    requests = duckdb.read_parquet(f"{folder}/requests.parquet")
    of_class = "SELECT request_class, count(*) = count(ended), count(error) > 0 FROM requests GROUP BY 1"
    for measured in (requests, on_granian):
        by_class = {name: found for name, *found in rows_of(measured, of_class)}
        assert by_class == {name: [True, False] for name in (*FINE, "broken")}
    [(least, most)] = rows_of(
        requests, "SELECT min(service_time_ms), max(service_time_ms) FROM requests WHERE request_class = 'report'"
    )
    assert 500 <= least < most < 900  # type: ignore[operator]
    assert rows_of(requests, "SELECT min(service_time_ms) >= 60 FROM requests WHERE request_class = 'stream'") == [
        (True,)
    ]
    recorded = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert str(tmp_path).encode() not in recorded
    assert b"they greet with $GREETING" in recorded
    assert b"bonjour" not in recorded
    assert b"s3cr" not in recorded
    assert b"Bearer ${TOKEN}" in recorded
    assert b"asked with session=$session" in recorded
    assert b"session=ey" not in recorded
    assert_in_force(folder)
    log = read_trial(folder).logs["own-1"]
    assert log.before > 0
    assert log.cut or log.kept > log.before  # the engine keeps 4 MB, and each request writes 12 kB
    assert diagnosis
    assert "kB a request to their output" in " ".join([said, *diagnosis.minor])
    assert copied_lab.run("verify", str(run)).returncode == 0


def test_an_application_that_cannot_be_loaded_says_why(lab: Lab, tmp_path: Path) -> None:
    """To stampede init, too, whose file keeps what the server has said."""
    file = written(tmp_path, "\nimport humanize\n")
    (tmp_path / "shop" / "Procfile").write_text("web: env TIMEOUT=77 gunicorn app:app\n")
    asked = lab.run("init", str(tmp_path / "shop"), "--to", str(tmp_path / "found.yaml"), "--check")
    tried = lab.run("try", str(file))

    for done in (asked, tried):
        assert done.returncode == 1
        reason = "ModuleNotFoundError: No module named 'humanize'"
        assert f"error: Your application cannot be loaded: {reason}\n" in done.stderr
        assert done.stderr.endswith(f"{reason}\n")
    assert "  # workers: 3  # gunicorn says\n" in (tmp_path / "found.yaml").read_text()
    assert not (lab.results / "my-service-tried").exists()
