"""The scripts of k6/ and clients/ in the images that run them: what they make of settings, and what they refuse."""

import gzip
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import duckdb
import pytest

from stampede.docker.images import K6 as K6_IMAGE
from stampede.docker.images import inspected
from stampede.evaluate.read.rows import write_requests
from stampede.experiment.model import Database, Durations, Load
from stampede.paths import CLIENTS, K6, ROOT
from stampede.records.traffic import rates_per_s
from tests.boxes import PATIENCE_S, BoxOf, Done

FORM = '<input name="csrfmiddlewaretoken" value="abc">'
CLIENT = "stampede/client:trixie"
NOT_SET = "{} is not set; the .env file beside the script has an example"
Inspect = Callable[..., list[Done]]
"""Takes the name of a script and environments."""


@pytest.fixture(scope="module")
def own_images() -> None:
    """Wait for no test that measures meanwhile, unless an image is missing: these have no file that a test breaks."""
    if not all(inspected(image) for image in (K6_IMAGE, CLIENT)):
        subprocess.run([sys.executable, "-m", "stampede", "setup"], cwd=ROOT, check=True, capture_output=True)


@pytest.fixture
def inspect(box_of: BoxOf) -> Inspect:
    """Let k6 read a script once with each environment, without running it."""

    def each(script: str, *environments: Mapping[str, str]) -> list[Done]:
        command = f"exec k6 inspect --include-system-env-vars /k6/{script}"
        return box_of(K6_IMAGE).each(command, environments)

    return each


def by_hand(script: Path) -> dict[str, str]:
    """Return the settings of the .env file beside a script."""
    lines = script.with_suffix(".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.mark.parametrize("script", sorted(path.name for path in K6.glob("*.js")))
def test_every_script_is_accepted_by_k6_and_refuses_to_start_without_its_settings(
    inspect: Inspect, script: str
) -> None:
    complete = by_hand(K6 / script) | {"LAB_URL": "http://balancer:8080"}
    incomplete = {name: {key: value for key, value in complete.items() if key != name} for name in complete}

    accepted, *others = inspect(script, complete, *incomplete.values())

    assert accepted.returncode == 0, accepted.stderr
    for name, done in zip(incomplete, others, strict=True):
        assert done.returncode != 0, name
        assert NOT_SET.format(name) in done.stderr


@pytest.mark.parametrize(
    ("script", "setting", "value", "message"),
    [
        ("burst.js", "START_AT_MS", "soon", "START_AT_MS=soon is not a number"),
        ("burst.js", "ASKED_MS", " ", "ASKED_MS=  is not a number"),
        ("visits.js", "RATES_PER_S", "8,many", "RATES_PER_S=8,many is not a number"),
        ("visits.js", "RATES_PER_S", "8,", "RATES_PER_S=8, is not a number"),
        ("visits.js", "GRACE_S", "Infinity", "GRACE_S=Infinity is not a number"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    inspect: Inspect, script: str, setting: str, value: str, message: str
) -> None:
    [done] = inspect(script, by_hand(K6 / script) | {"LAB_URL": "http://balancer:8080", setting: value})

    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize(("duration", "every_s", "bursts"), [("20s", 10, 2), ("1m", 25, 2), ("5s", 10, 1)])
def test_a_burst_comes_as_often_as_it_fits_and_at_least_once(
    inspect: Inspect, duration: str, every_s: int, bursts: int
) -> None:
    changed = {"BURST": "40", "EVERY_S": str(every_s), "DURATION": duration}

    [done] = inspect("burst.js", by_hand(K6 / "burst.js") | changed | {"LAB_URL": "http://app:8000"})

    [scenario] = json.loads(done.stdout)["scenarios"].values()
    assert (scenario["vus"], scenario["iterations"], scenario["startTime"]) == (40, bursts, "0s")


@pytest.mark.parametrize("script", sorted(path.name for path in K6.glob("*.js")))
def test_a_load_begins_at_its_moment_or_at_once_when_that_has_passed(inspect: Inspect, script: str) -> None:
    """Several generators are told the same moment, and count from their own start."""
    moments = [
        by_hand(K6 / script) | {"LAB_URL": "http://app:8000", "START_AT_MS": f"{1000 * (time.time() + at_s):.0f}"}
        for at_s in (-5, 300)
    ]

    past, future = (
        [in_seconds(one["startTime"]) for one in json.loads(done.stdout)["scenarios"].values()]
        for done in inspect(script, *moments)
    )

    assert set(past) == {0}
    assert all(0 < one <= 300 for one in future)


def in_seconds(duration: str) -> float:
    """Return a duration as k6 writes it, e.g. 4m59.7s, in seconds."""
    units = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "µs": 1e-6}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|µs|h|m|s)", duration))


@pytest.mark.parametrize(
    ("given", "duration", "stages"),
    [
        ({"FIRST_PER_S": "8", "LAST_PER_S": "80", "STEP_S": "2"}, "6s",
         [("0s", 8), ("2s", 8), ("0s", 25), ("2s", 25), ("0s", 80), ("2s", 80)]),
        ({"FIRST_PER_S": "8", "LAST_PER_S": "80", "STEP_S": "2"}, "5s",
         [("0s", 8), ("2s", 8), ("0s", 80), ("2s", 80)]),
        ({"FIRST_PER_S": "76", "LAST_PER_S": "76", "STEP_S": "10"}, "5s", [("0s", 76), ("5s", 76)]),
    ],
)  # fmt: skip
def test_the_rate_of_visits_jumps_from_step_to_step(
    inspect: Inspect, given: dict[str, str], duration: str, stages: list[tuple[str, int]]
) -> None:
    """A step that the duration has no room for is left out, but for the first. The analysis knows the same rates."""
    settings = {name.lower(): int(value) for name, value in given.items()} | {"timeout_steps": 1, "users_max": 9}
    load = Load(script="visits.js", duration=Durations(short=duration, full=duration), settings=settings)
    surrounding = {"DURATION": duration, "START_AT_MS": "0", "LAB_URL": "http://balancer:8080"}

    [done] = inspect("visits.js", load.environment() | load.derived_environment(duration) | surrounding)

    [scenario] = json.loads(done.stdout)["scenarios"].values()
    assert (scenario["executor"], scenario["exec"]) == ("ramping-arrival-rate", "visitor")
    assert (scenario["startRate"], scenario["timeUnit"], scenario["preAllocatedVUs"]) == (stages[0][1], "1s", 9)
    assert [(stage["duration"], stage["target"]) for stage in scenario["stages"]] == stages
    assert [rate for _, rate in stages[::2]] == rates_per_s(given, duration)


@pytest.mark.parametrize(
    ("given", "duration", "users", "within", "within_s"),
    [
        ((8, 80, 1, 1, 400), "2s", 88, "8s", 8),
        ((8, 80, 1.5, 0.5, 99), "3s", 99, "7.25s", 7.25),
        ((64, 64, 10, 5, 1600), "10s", 640, "2m35s", 155),
        ((64, 64, 10, 5, 1600), "4s", 256, "1m5s", 65),
    ],
)
def test_there_are_no_more_visitors_than_visits_and_their_last_answer_is_waited_for(
    inspect: Inspect, given: tuple[float, ...], duration: str, users: int, within: str, within_s: float
) -> None:
    """The runner waits as long as k6 does."""
    load = Load(
        script="visits.js", database=Database(), duration=Durations(short=duration, full=duration),
        settings=dict(zip(("first_per_s", "last_per_s", "step_s", "timeout_steps", "users_max"), given, strict=True)),
    )  # fmt: skip
    surrounding = {"DURATION": duration, "START_AT_MS": "0", "LAB_URL": "http://balancer:8080"}

    [done] = inspect("visits.js", load.environment() | load.derived_environment(duration) | surrounding)

    [scenario] = json.loads(done.stdout)["scenarios"].values()
    assert (scenario["preAllocatedVUs"], scenario["gracefulStop"]) == (users, within)
    assert load.grace_s(duration) == within_s


CONFUSED: list[tuple[dict[str, tuple[int, str]], str | None]] = [
    ({"GET": (404, "nothing")}, "the page was refused with status 404: nothing"),
    ({"GET": (200, "nothing")}, "the page has no form: nothing"),
    ({"GET": (200, FORM), "POST": (403, "who are you?")}, "the post was refused with status 403: who are you?"),
    ({"GET": (200, FORM), "POST": (200, "try again")}, "the form was refused: try again"),
    ({"GET": (200, FORM), "POST": (503, "later")}, None),
    ({"GET": (502, "")}, None),
]
"""What a page answers to which method, with status and body, and what visits.js throws."""


@contextmanager
def serving(answers: Callable[[str, str, str], tuple[int, str, Mapping[str, str]] | None]) -> Iterator[str]:
    """Serve status, text and headers that answer a method, a path and a body (None: nothing), and yield the address."""

    class Page(BaseHTTPRequestHandler):
        def answer(self) -> None:
            said = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            if not (told := answers(self.command, self.path, said)):
                return
            status, text, headers = told
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = answer  # noqa: N815  # http.server's own names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def visited(box_of: BoxOf) -> list[tuple[Done, set[str]]]:
    """Visit every page of CONFUSED for a second, and return how k6 ended and by which methods the page was asked."""
    asked: list[set[str]] = [set() for _ in CONFUSED]

    def answer(method: str, path: str, _: str) -> tuple[int, str, Mapping[str, str]]:
        number = int(path.split("/")[1])
        asked[number].add(method)
        return *CONFUSED[number][0][method], {"Lab-Served": "{}"}

    given = {
        "RATES_PER_S": "2", "STEP_LASTS_S": "1", "TIMEOUT_S": "1", "USERS_MAX": "2", "GRACE_S": "8",
        "START_AT_MS": "0", "DURATION": "1s",
    }  # fmt: skip
    box = box_of(K6_IMAGE, "host")
    with serving(answer) as address, ThreadPoolExecutor(len(CONFUSED)) as pool:
        urls = [f"{address}/{number}" for number in range(len(CONFUSED))]
        command = "exec k6 run --quiet --address '' /k6/visits.js"
        done = list(pool.map(lambda url: box.run(command, given | {"LAB_URL": url}), urls))
    return list(zip(done, asked, strict=True))


@pytest.mark.parametrize("number", range(len(CONFUSED)), ids=[thrown or "no error" for _, thrown in CONFUSED])
def test_a_visit_that_the_page_does_not_understand_is_an_error_of_the_script(
    visited: list[tuple[Done, set[str]]], number: int
) -> None:
    """It is a failure of the visit where the server is at its end."""
    answers, thrown = CONFUSED[number]
    done, asked = visited[number]

    assert (done.returncode, asked) == (0, set(answers))
    errors = [line for line in done.stderr.splitlines() if "level=error" in line]
    assert bool(errors) == bool(thrown)
    for line in errors:
        assert f"Error: {thrown}" in line


LOGIN_FORM = """<form><input name="q"></form><form method="post">
<input type="hidden" name="csrf" value="abc"><input name="user"><input type="password" name="password"></form>"""
HELLO = (302, "", {"Set-Cookie": "session=s3ssion; Secure; Domain=shop.example", "Location": "/"})
SHOWN = (200, LOGIN_FORM, {"Set-Cookie": "csrf=c5rf", "Content-Type": "text/html"})
AS_FORM = {"form": {"user": "ada", "password": "${PASSWORD}"}}
LOGINS: list[tuple[Mapping[str, object], Mapping[str, tuple[int, str, dict[str, str]]], dict[str, object], str]] = [
    (AS_FORM, {"GET": SHOWN, "POST": HELLO}, {"session": "s3ssion", "csrf": "c5rf"},
     "csrf=abc&password=hush+hush%26&user=ada"),
    (AS_FORM, {"GET": (405, "", {}), "POST": HELLO}, {"session": "s3ssion"}, "password=hush+hush%26&user=ada"),
    ({"body": "user=a%2Bb"}, {"POST": HELLO}, {"session": "s3ssion"}, "user=a+b"),
    (AS_FORM | {"token": "token"}, {"GET": (405, "", {}), "POST": (200, '{"token": "t0ken"}', {})}, {"token": "t0ken"},
     "password=hush+hush%26&user=ada"),
    ({"body": "{}", "token": "token"}, {"POST": (200, '{"tokens": 1}', {})},
     {"problem": "is answered with status 200 and no token"}, "{}"),
    ({"body": "{}"}, {"POST": (200, "", {})}, {"problem": "is answered with status 200 and no cookie"}, "{}"),
    ({"body": "{}"}, {"POST": (403, "no ${PASSWORD}", {})}, {"problem": "is answered with status 403"}, "{}"),
    (AS_FORM, {"GET": SHOWN, "POST": SHOWN}, {"problem": "is answered with status 200 and the same form again"},
     "csrf=abc&password=hush+hush%26&user=ada"),
    ({"form": {"name": "ada"}}, {"GET": SHOWN}, {"problem": "the page with the form is answered with status 200 and no "
                                                            "form that has the field name"}, ""),
]  # fmt: skip
"""A login; what the application answers to which method; which cookies, token or problem follow; and what is sent."""


def test_users_log_in_as_browsers_do_or_say_why_they_cannot(box_of: BoxOf) -> None:
    """The hidden fields of the form are sent, also if another form comes first. Cookies for HTTPS count, too."""
    sent: list[str] = [""] * len(LOGINS)

    def answer(method: str, path: str, said: str) -> tuple[int, str, Mapping[str, str]]:
        number = int(path.split("/")[1])
        if said:
            sent[number] = "&".join(sorted(said.split("&")))
        return LOGINS[number][1][method]

    secrets = quote(json.dumps({"PASSWORD": "hush hush&"}))
    given = {"SESSIONS": "2", "DURATION": "1s", "GRACE_S": "1", "START_AT_MS": "0", "LAB_SECRETS": secrets}
    box = box_of(K6_IMAGE, "host")
    with serving(answer) as address:
        logins = [{"LOGIN": json.dumps({**login, "path": f"/{number}/"})} for number, (login, *_) in enumerate(LOGINS)]
        command = "k6 run --quiet --address '' /k6/lib/login.js; cat /tmp/sessions.json"
        done = list(box.each(command, [given | {"LAB_URL": address} | login for login in logins]))

    told = [json.loads(one.stdout) for one in done]
    assert [len(sessions) for sessions in told] == [2] * 4 + [1] * 5
    names = ("problem", "token")
    assert [
        {name: session[name] for name in names if session.get(name)} | session.get("cookies", {})
        for session, *_ in told
    ] == [follows for _, _, follows, _ in LOGINS]
    assert sent == [said for *_, said in LOGINS]
    assert told[6][0]["said"] == "no ${PASSWORD}"


SERVED = {"worker": 7, "host": "box", "thread": 9, "began": 1795169100.5, "ended": 1795169100.6, "server": "made up"}
WRITTEN_BY_RUN = """
sh /k6/run -2 --quiet --address '' /k6/classes.js > /dev/null &
sleep 1
for process in /proc/[0-9]*; do
  if [ "$(cat $process/comm)" = k6 ]; then tr '\\0' '\\n' < $process/environ | grep ^GO | sort; fi
done
wait
cat /results/k6-processor-2.txt /results/points-2.json
"""


def test_run_keeps_all_requests_and_what_was_dropped_and_writes_few_tags(box_of: BoxOf, tmp_path: Path) -> None:
    """Of four requests, one is answered, one fails, and two last until the end. They keep both users busy."""
    asked: list[str] = []
    over = threading.Event()

    def answer(_method: str, path: str, _: str) -> tuple[int, str, Mapping[str, str]] | None:
        asked.append(path)
        if len(asked) > 2:
            over.wait(PATIENCE_S)
            return None
        return {1: 200, 2: 503}[len(asked)], "", {"Lab-Served": json.dumps(SERVED)}

    load = Load(classes={"arrival": {"per_second": 10, "users_max": 2}}, duration=Durations(short="3s", full="3s"))
    given = load.environment() | load.derived_environment("3s") | {
        "GRACE_S": "0", "START_AT_MS": "0", "DURATION": "3s", "LAB_POINTS": "json", "LAB_K6_MEMORY": "130m",
    }  # fmt: skip
    box = box_of(K6_IMAGE, "host")
    with serving(answer) as address:
        done = box.run(WRITTEN_BY_RUN, given | {"LAB_URL": address})
        over.set()
    gogc, limit, *processor = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    points = [line for line in done.stdout.splitlines(keepends=True) if line.startswith("{")]
    (tmp_path / "points-2.json.gz").write_bytes(gzip.compress("".join(points).encode()))

    dropped = write_requests(tmp_path, "one", "mix", 1)[0]

    found = duckdb.read_parquet(str(tmp_path / "requests.parquet"))
    rows = found.order("sent").project("error, worker, service_time_ms").fetchall()
    cut_off = ("no answer before the end of the run", None, 0)
    assert rows == [(None, "box:7", 0), ("status 503", None, 0), cut_off, cut_off]
    assert dropped > 20
    assert (gogc, limit) == ("GOGC=400", "GOMEMLIMIT=104MiB")
    assert processor
    tags = {name for line in points for name in json.loads(line)["data"].get("tags") or ()}
    assert tags == {"request", "scenario"}


@pytest.mark.parametrize("script", sorted(path.name for path in CLIENTS.glob("*.py")))
def test_every_client_has_its_settings_by_hand_and_refuses_to_start_without_one(box_of: BoxOf, script: str) -> None:
    """In the container that it runs in, without a network; DURATION is short and nobody can be reached."""
    given = by_hand(CLIENTS / script)
    complete = given | {"LAB_SERVER": "127.0.0.1:8000", "DURATION": "1s"}
    incomplete = {name: {key: value for key, value in complete.items() if key != name} for name in given}

    accepted, *others = box_of(CLIENT).each(f"exec python /clients/{script}", [complete, *incomplete.values()])

    assert (accepted.returncode, accepted.stderr) == (0, "")
    for name, done in zip(incomplete, others, strict=True):
        assert (done.returncode, done.stderr) == (2, f"{NOT_SET.format(name)}\n")
