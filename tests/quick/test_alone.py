"""Single requests before the load: how they are asked, what stops a run, and what is kept of them."""

import asyncio
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from inline_snapshot import snapshot

from stampede.docker.client import HERE, DockerError
from stampede.docker.cluster.engines import Engines
from stampede.docker.containers import ContainerInfo
from stampede.errors import LabError
from stampede.plan import PlannedTrial
from stampede.records.classes import Login, OwnRequestClass
from stampede.run.trial import alone, checking
from stampede.run.trial.alone import Answer, Front, Session, without_sessions
from stampede.run.trial.trial import Trial
from stampede.servers.base import BEFORE
from stampede.service.layer import Layer
from tests.told import Told

DOCKER = """\
#!/bin/sh
n=$(ls {folder} | grep -c asked-)
cat > {folder}/asked-$n
echo "$*" >> {folder}/commands
. {folder}/answer-$n
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a client of an engine that keeps what curl is told and answers as ``answers`` says."""
    (tmp_path / "docker").write_text(DOCKER.format(folder=tmp_path))
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def ask(described: OwnRequestClass, secrets: Mapping[str, str] | None = None) -> Answer:
    return asyncio.run(alone.ask(FRONT, described, secrets))


def alone_ms(asked: Mapping[str, OwnRequestClass], of_user: Mapping[str, str] | None = None) -> dict[str, list[float]]:
    return asyncio.run(alone.alone_ms(FRONT, asked, of_user))


def answers(engine: Path, *given: tuple[int, float] | int) -> None:
    """Let the engine answer with a status in so many seconds, or fail with an exit code."""
    for number, one in enumerate(given):
        told = f"exit {one}" if isinstance(one, int) else f"printf 'no\\nlab-told {one[0]} {one[1]} ' >&2; printf body"
        (engine / f"answer-{number}").write_text(told)


FRONT = Front(ContainerInfo("abc", "nginx", "nginx-1", HERE), "balancer", 8080)


def config_of(engine: Path, number: int = 0) -> list[str]:
    return (engine / f"asked-{number}").read_text().splitlines()


def test_the_first_request_is_not_counted_and_harmful_classes_are_not_timed(engine: Path) -> None:
    answers(engine, (200, 0.5), (200, 0.02), (302, 0.03), *[(200, 0.1)] * 3)
    classes = {
        "home": OwnRequestClass(path="/", users=1, headers={"X-Own": "a %22b%22"}),
        "search": OwnRequestClass(path="/search", users=1, body="x"),
        "head": OwnRequestClass(path="/head", method="HEAD", users=1),
        "buy": OwnRequestClass(path="/buy", method="POST", users=1),
        "secret": OwnRequestClass(path="/?t=${TOKEN}", users=1),
    }

    assert alone_ms(classes) == {"home": [20.0, 30.0], "head": [100.0, 100.0]}
    assert 'header = "X-Own: a \\"b\\""' in config_of(engine)
    assert "head" in config_of(engine, 3)


@pytest.mark.parametrize(
    ("status", "expected", "found"), [(404, None, {}), (0, None, {}), (404, 404, {"home": [100.0] * 2}), (200, 404, {})]
)
def test_a_class_that_is_not_answered_as_it_should_be_has_no_time(
    engine: Path, status: int, expected: int | None, found: Mapping[str, list[float]]
) -> None:
    answers(engine, *[(status, 0.1)] * 3)
    assert alone_ms({"home": OwnRequestClass(path="/", users=1, expected_status=expected)}) == found


@pytest.mark.parametrize(("code", "status"), [(28, 0), (18, 0), (23, 200)])
def test_an_answer_whose_body_does_not_end_is_no_answer(engine: Path, code: int, status: int) -> None:
    """k6 would count it as a failure. With 23, curl has stopped because enough of a long body was kept."""
    (engine / "answer-0").write_text(f"printf 'curl: ({code}) a reason\nlab-told 200 0.1 ' >&2; printf body")

    answer = ask(OwnRequestClass(path="/", users=1))

    assert answer.status == status
    assert answer.problem == f"curl: ({code}) a reason"


def test_an_engine_that_fails_is_no_answer(engine: Path) -> None:
    answers(engine, 126)
    with pytest.raises(DockerError):
        ask(OwnRequestClass(path="/", users=1))


def test_no_further_class_is_asked_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "MOST_S", -1)
    assert alone_ms({"home": OwnRequestClass(path="/", users=1)}) == {}


BUY = OwnRequestClass(
    path="/buy?t=${TOKEN}",
    method="POST",
    users=1,
    body="50 %25 %5C %22${TOKEN}%22",
    headers={"authorization": "B ${TOKEN}"},
)


def test_a_request_has_its_secrets_and_no_command_shows_them(engine: Path) -> None:
    """All users of a machine can read the words of a command. k6 names the balancer in the header Host."""
    answers(engine, (200, 0.1))

    ask(BUY, {"TOKEN": "hush-hush"})

    lines = config_of(engine)
    assert 'url = "http://127.0.0.1:8080/buy?t=hush-hush"' in lines
    assert 'header = "Authorization: B hush-hush"' in lines
    assert 'header = "Host: balancer:8080"' in lines
    assert 'data-raw = "50 % \\\\ \\"hush-hush\\""' in lines
    assert 'request = "POST"' in lines
    assert "hush" not in (engine / "commands").read_text()


def test_a_single_request_comes_from_a_user_who_has_logged_in(engine: Path) -> None:
    """Headers of the class come first, and no command shows a session."""
    answers(engine, *[(200, 0.1)] * 3)
    of_user = Session(cookies={"a": "hush-hush", "b": "c"}, token="t0ken").headers

    alone_ms({"home": OwnRequestClass(path="/", users=1, headers={"authorization": "x"})}, of_user)

    assert 'header = "Cookie: a=hush-hush; b=c"' in config_of(engine)
    assert 'header = "Authorization: x"' in config_of(engine)
    assert Session(cookies={"a": "b"}).by_word == {"cookie.a": "b"}
    assert of_user["Authorization"] == "Bearer t0ken"
    assert "hush" not in (engine / "commands").read_text()


@pytest.mark.skipif(not shutil.which("curl"), reason="curl itself must understand what it is told")
def test_curl_understands_what_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at the port, so the answer has status 0 and curl's reason."""
    (tmp_path / "docker").write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    answer = asyncio.run(alone.ask(replace(FRONT, port=1), BUY, {"TOKEN": "hush"}))

    assert answer.status == 0
    assert "onnect" in answer.problem


def answer(status: int, body: str = "", location: str = "", problem: str = "") -> Answer:
    return Answer(status, 10.0, location, body, problem, "http://127.0.0.1:8080")


def test_no_text_of_an_answer_keeps_a_secret() -> None:
    told = answer(500, "no hush-hush", "/?t=hush-hush", "curl: hush-hush")

    masked = told.without_secrets(lambda said: said.replace(b"hush-hush", b"$TOKEN"))

    assert (masked.body, masked.location, masked.problem) == ("no $TOKEN", "/?t=$TOKEN", "curl: $TOKEN")


def request(name: str, method: str = "GET", **given: Any) -> OwnRequestClass:
    return OwnRequestClass(path=f"/{name}", method=method, users=1, **given)


LOGIN = Login(path="/login")
TRACEBACK = 'Traceback (most recent call last):\n  File "app.py", line 3\nTypeError: no total'
NOT_MEANT: dict[str, tuple[Answer, str, OwnRequestClass, Login | None, list[str], list[str]]] = {
    "what belongs to its request is told": (
        answer(500, "no total"), TRACEBACK, request("me"), None,
        ["GET /me, the class me, is answered with status 500", "The answer says: no total", "TypeError: no total",
         "requests.me", "expected_status: 500"], ["services of beside", "hosts"],
    ),
    "a host that is missing is named": (
        answer(500), 'psycopg.OperationalError: could not translate host name "db" to address', request("me"), None,
        ["could not reach the host db", "services of beside", "has its name", "application.environment"], [],
    ),
    "a worker that its server killed": (
        answer(500), "[CRITICAL] WORKER TIMEOUT (pid:27)\nTraceback (most recent call last):\nSystemExit: 1",
        request("me"), None, ["longer than the server's timeout"], ["environment"],
    ),
    "no answer": (
        answer(0, problem="a\ncurl: (28) timed out"), "", request("me", expected_status=404), None,
        ["is not answered when it is asked alone: curl: (28) timed out"], ["expected_status:"],
    ),
    "another status than expected, with a body that is no text": (
        answer(200, "\0\1"), "", request("me", expected_status=404), None,
        ["status 200, but expected_status is 404", "wrote nothing"], ["The answer says"],
    ),
    "Django at a host that it does not know, with DEBUG=False": (
        answer(400, "<!doctype html><title>Bad Request (400)</title><h1>Bad Request (400)</h1><p></p>"), "",
        request("me"), None, ["ALLOWED_HOSTS", "headers: {Host: shop.example.com}"], [],
    ),
    "a login is needed": (answer(401), "", request("me"), None, [checking.WAY_TO_LOG_IN, "expected_status: 401"], []),
    "a login is needed, and does not count": (
        answer(403), "", request("me"), LOGIN, ["POST /login, the login, was accepted, but does not count here."],
        [checking.WAY_TO_LOG_IN],
    ),
    "no such path, whoever asks": (
        answer(404), "", request("me"), LOGIN, ["a path that exists", "requests.me", "expected_status: 404"],
        [checking.WAY_TO_LOG_IN, "the login"],
    ),
    "another method": (answer(405), "", request("me"), None, ["method: POST", "expected_status: 405"], []),
}  # fmt: skip


@pytest.mark.parametrize(("told", "said", "described", "login", "says", "never"), NOT_MEANT.values(), ids=NOT_MEANT)
def test_a_class_that_is_not_answered_as_it_should_be_has_its_way_out(
    told: Answer, said: str, described: OwnRequestClass, login: Login | None, says: list[str], never: list[str]
) -> None:
    error = checking.not_meant("me", described, told, said, login)

    text = f"{error.message}\n{error.hint}"
    assert [words for words in says if words not in text] == []
    assert [words for words in never if words in text] == []


def test_users_who_cannot_log_in_are_told_with_the_answer() -> None:
    problem = "is answered with status 403, a redirect to /"
    error = checking.not_logged_in(Login(path="/login", body="user=ada"), problem, "no  CSRF token", "KeyError: 'user'")
    page = "the page with the form is answered with status 404"
    missing = checking.not_logged_in(Login(path="/login", form={"user": "ada"}), page, "", "")

    assert error.message == f"POST /login, the login, {problem}."
    for word in ("no CSRF token", "KeyError: 'user'", "login.form", "Correct login"):
        assert word in error.hint
    assert missing.message == f"GET /login, {page}."
    assert "login.form" not in missing.hint


def test_no_text_has_cookies_or_tokens() -> None:
    """Nor later values of the same cookies, if they stand as in a header."""
    sessions = [Session(cookies={"sid": "hush-hush"}), Session(cookies={"sid": "s3cret"}, token="t0ken-1")]
    said = b"user hush-hush s3cret Bearer t0ken-1 {'Cookie': 'sid=another; lang=en'} insid=x"

    assert without_sessions(said, sessions) == b"user $sid $sid Bearer $token {'Cookie': 'sid=$sid; lang=en'} insid=x"


def test_all_classes_stand_in_a_table_and_all_that_fail_are_told() -> None:
    long = "a-class-with-a-name-of-many-words"
    asked = {"home": OwnRequestClass(path="/", users=1), long: request(f"{long}/{long}", "DELETE")}
    answers = {"home": answer(200), long: Answer(0, 60000.4, "", "", "too late")}

    table = checking.table_of(asked, answers)
    errors = [checking.not_meant(name, asked[name], answers[name], "") for name in asked]
    error = checking.joined(errors, 3)

    assert table == snapshot("""\
  home                      GET /                                  200     10 ms
  a-class-with-a-name-of-…  DELETE /a-class-with-a-name-of-many…  none  60000 ms\
""")
    assert max(map(len, table.splitlines())) <= 80
    assert error.message == "2 of 3 classes are not answered as they should be."
    assert all(each.message in error.hint and each.hint in error.hint for each in errors)
    assert checking.joined(errors[:1], 3) is errors[0]


@pytest.mark.parametrize(
    ("where", "shown", "way"),
    [
        ("http://127.0.0.1:8080/accounts/login?next=/", "/accounts/login?next=/", checking.WAY_TO_LOG_IN),
        ("http://127.0.0.1:8080/shop/", "/shop/", ""),
        ("https://127.0.0.1:8080/old", "https://127.0.0.1:8080/old", checking.WAY_TO_HTTPS),
        ("https://127.0.0.1:8080/new", "https://127.0.0.1:8080/new", ""),
    ],
)
def test_a_redirect_is_worth_a_word_and_more_if_it_leads_to_a_login_or_to_https(
    where: str, shown: str, way: str
) -> None:
    assert checking.redirected("old", request("old"), answer(302, location=where)) == (
        f"GET /old, the class old, is answered with status 302, a redirect to {shown}. "
        f"The load measures the redirect itself.{way and f' {way}'}"
    )


def test_what_was_written_before_a_request_does_not_belong_to_it() -> None:
    now = {"a": "booted\nTypeError\n", "b": "hello\n"}
    assert checking.written_since({"a": "booted\n"}, now) == "TypeError\nhello\n"


DOES_NOT_START = "Your application does not start as it is served today: "
HEALTH = {
    "its cause": (
        ("Traceback (most recent call last):\n  x\nKeyError: 'SHOP_KEY'\nbye", "0 of 2 workers have loaded it", ""),
        f"{DOES_NOT_START}KeyError: 'SHOP_KEY'", ["\n  bye\n"], [],
    ),
    "its last line": (("booting\nbye", "", ""), f"{DOES_NOT_START}bye", [], []),
    "the command before it": (("bye", "", BEFORE), "The command of application.before fails: bye", [], []),
    "its health check, if it runs and is never ready": (
        ("[INFO] Booting worker", "curl: (22) The requested URL returned error: 404\nNot Found", ""),
        f"{DOES_NOT_START}the health check says curl: (22) The requested URL returned error: 404",
        ["Booting worker", "Not Found", "application.ready"], [],
    ),
    "a service beside it": (
        ("", "no such database", "beside-db"),
        "beside-db does not start as it is served today: the health check says no such database", [],
        ["application.ready"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("told", "message", "says", "never"), HEALTH.values(), ids=HEALTH)
def test_a_server_that_does_not_become_healthy_is_told_by(
    told: tuple[str, str, str], message: str, says: list[str], never: list[str]
) -> None:
    error = checking.not_healthy(*told)

    assert error.message == message
    assert [words for words in says if words not in error.hint] == []
    assert [words for words in never if words in error.hint] == []


def test_the_words_of_a_health_check_have_no_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are in the error, and in the record of the trial."""
    machine = Told(answers=lambda words: b"I have hush-hush" if "logs" in words else None)
    container = ContainerInfo("abc", "gunicorn", "gunicorn-1", machine, probed="curl: (22) error: 404\nno hush-hush")
    variant = SimpleNamespace(
        service="gunicorn", front="nginx", workload=Layer(tmp_path, "abc", {"TOKEN": "hush-hush"})
    )
    trial = SimpleNamespace(
        variant=variant, variant_name="today", load_name="own", number=1, follows=None, load=SimpleNamespace(api=None)
    )
    stack = Trial(cast("PlannedTrial", trial), tmp_path / "mine" / "run", 1, Engines((machine,)))

    async def there(*_: object) -> list[ContainerInfo]:
        return [container]

    def refuse(*_: object) -> None:
        raise DockerError("dependency failed to start")

    monkeypatch.setattr("stampede.run.trial.trial.compose", refuse)
    monkeypatch.setattr("stampede.run.trial.trial.containers_of", there)

    asyncio.run(stack.attempt(Trial.start))
    assert stack.reason is not None
    assert stack.reason.startswith("the servers did not become healthy: ")
    with pytest.raises(LabError) as caught:
        asyncio.run(checking.ask_for_each_class(stack, lambda _: None))

    for said in (stack.reason, caught.value.hint):
        assert "no $TOKEN" in said
        assert "I have $TOKEN" in said
