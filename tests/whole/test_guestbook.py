"""servers/app/guestbook: the page, its form and its database, here with SQLite; what only MariaDB does is not shown."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.paths import K6
from tests.django_site import APP, Answer, Site, surroundings

PAGE = "/entries"
TOKEN = re.compile(re.findall(r"^const TOKEN = /(.*)/;$", (K6 / "visits.js").read_text(), re.MULTILINE)[0])
"""As k6/visits.js finds it."""


def on_sqlite(folder: Path) -> dict[str, str]:
    """Return the environment in which the guest book lies in a file of a folder."""
    book = {"GUESTBOOK": str(folder / "book"), "LAB_DATABASE": "in-a-file"}
    return {"DJANGO_SETTINGS_MODULE": "tests.guestbook_on_sqlite"} | book


def migrate(folder: Path, app: Path = APP, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run migrate.py, in a copy of the application if there is one."""
    surrounding = surroundings(**on_sqlite(folder), **environment)
    surrounding["PYTHONPATH"] = surrounding["PYTHONPATH"].replace(str(APP), str(app))
    return subprocess.run(
        [sys.executable, "migrate.py"], cwd=app, env=surrounding, capture_output=True, text=True, check=False
    )


def rows(folder: Path) -> list[str]:
    """Return which visits have a row, in the order of writing, as mariadb/observe-own asks for them."""
    with sqlite3.connect(folder / "book") as database:
        return [visit for (visit,) in database.execute("SELECT visit FROM guestbook_entry ORDER BY id")]


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an empty guest book."""
    folder = tmp_path_factory.mktemp("migrated")
    done = migrate(folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.fixture(scope="module", params=["wsgi", "asgi"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Path]]:
    """A process that serves the guest book, and the folder of the book."""
    folder = tmp_path_factory.mktemp("served")
    with Site(request.param, folder / "workers", **on_sqlite(folder)) as one:
        yield one, folder


@pytest.fixture
def site(served: tuple[Site, Path], tmp_path: Path, migrated: Path) -> Site:
    """A guest book without entries, and a visitor."""
    one, folder = served
    shutil.copy(migrated / "book", folder / "book")
    (tmp_path / "book").symlink_to(folder / "book")
    one.forget()
    return one


def token(page: Answer) -> str:
    """Return what the form of a page hides."""
    found = TOKEN.search(page.body)
    assert found
    return found[1]


def sign(site: Site, visit: str) -> Answer:
    """Get the page and send its form."""
    return site.ask(PAGE, {"visit": visit, "csrfmiddlewaretoken": token(site.ask(PAGE))})


def test_a_visit_is_a_page_a_form_and_a_page_with_the_entry(site: Site, tmp_path: Path) -> None:
    """As k6/visits.js does it."""
    page = site.ask(PAGE)
    written = site.ask(PAGE, {"visit": "7", "csrfmiddlewaretoken": token(page)})
    newest = site.ask(written.headers["location"])

    assert (page.status, written.status, newest.status) == (200, 302, 200)
    assert "<li>" not in page.body
    assert 'name="visit"' in page.body
    assert written.headers["location"] == PAGE
    assert re.findall(r"<li>(Visit \w+), \d{4}-\d\d-\d\dT.*</li>", newest.body) == ["Visit 7"]
    assert rows(tmp_path) == ["7"]


def test_every_answer_says_who_served_it_and_when(site: Site) -> None:
    page = site.ask(PAGE)
    assert "lab-served" not in site.ask("/").headers  # its body says it
    for answer in (page, site.ask(PAGE, {"visit": "7", "csrfmiddlewaretoken": token(page)})):
        served = json.loads(answer.headers["lab-served"])
        assert set(served) == {"worker", "host", "thread", "connection", "began", "ended", "server"}
        assert served["worker"] == site.pid
        assert served["began"] <= served["ended"]
        assert served["server"].startswith("httpx/")
        assert "lab-error" not in answer.headers


def test_the_newest_twenty_entries_are_shown_and_nothing_of_them_becomes_markup(site: Site, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "book") as database:
        database.executemany(
            "INSERT INTO guestbook_entry (visit, written) VALUES (?, '2026-01-02 03:04:05')", [(n,) for n in range(30)]
        )
    sign(site, "<b>")

    shown = re.findall(r"<li>Visit (.*?), ", site.ask(PAGE).body)

    assert shown == ["&lt;b&gt;", *(str(n) for n in range(29, 10, -1))]


@pytest.mark.parametrize("visit", ["", "x" * 41])
def test_a_form_that_is_filled_in_wrongly_is_shown_again(site: Site, tmp_path: Path, visit: str) -> None:
    answer = sign(site, visit)

    assert (answer.status, "errorlist" in answer.body) == (200, True)
    assert rows(tmp_path) == []


def test_a_form_that_the_page_did_not_give_is_forbidden(site: Site, tmp_path: Path) -> None:
    assert site.ask(PAGE, {"visit": "7"}).status == 403
    good = token(site.ask(PAGE))
    assert site.ask(PAGE, {"visit": "7", "csrfmiddlewaretoken": good[::-1]}).status == 403
    assert rows(tmp_path) == []


def test_an_error_of_the_database_is_told_in_a_header_and_is_no_bug(site: Site, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "book") as database:
        database.execute("DROP TABLE guestbook_entry")

    answer = site.ask(PAGE)

    message = "database error no such table: guestbook_entry"
    assert (answer.status, answer.headers["lab-error"], answer.body) == (503, message, message)
    assert json.loads(answer.headers["lab-served"])["worker"] == site.pid
    assert site.ask("/").status == 200


def test_a_row_that_the_database_refuses_is_no_silent_failure(site: Site, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "book") as database:
        refuse = "BEFORE INSERT ON guestbook_entry BEGIN SELECT RAISE(ABORT, 'not\n this one'); END"
        database.execute(f"CREATE TRIGGER refuse {refuse}")

    answer = sign(site, "7")

    assert (answer.status, answer.headers["lab-error"]) == (503, "database error not this one")


@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
def test_a_worker_is_ready_when_its_database_has_the_tables_it_expects(tmp_path: Path, kind: str) -> None:
    with Site(kind, tmp_path / "workers", **on_sqlite(tmp_path)) as site:
        before = site.ask("/-/ready")
        assert migrate(tmp_path).returncode == 0
        after = site.ask("/-/ready")

    assert (before.status, json.loads(before.body)) == (
        503, {"error": "migrations are not applied: guestbook.0001_initial"},
    )  # fmt: skip
    assert (after.status, json.loads(after.body)) == (200, {"ready": True})


def test_a_worker_whose_database_cannot_be_asked_says_why_it_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    with Site("wsgi", tmp_path / "workers", **on_sqlite(tmp_path)) as site:
        answer = site.ask("/-/ready")

    assert (answer.status, answer.body) == (503, "database error unable to open database file")


@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
def test_without_a_database_there_is_no_guest_book_but_all_else(tmp_path: Path, kind: str) -> None:
    with Site(kind, tmp_path / "workers", LAB_DATABASE="") as site:
        assert [site.ask(path).status for path in ("/-/ready", "/", PAGE)] == [200, 200, 500]


def test_what_django_served_on_an_event_loop_is_counted_from_its_start_on(tmp_path: Path) -> None:
    """Its server may not do so; behind WSGI gunicorn's hook, uWSGI and flup do."""
    with Site("asgi", tmp_path / "workers", LAB_DATABASE="") as site:
        site.ask("/-/ready")
        count = tmp_path / "workers" / str(site.pid)
        assert count.read_text() == f"served {1:020}\n"
        for path in ("/", "/nope", PAGE):
            site.ask(path)
        assert count.read_text() == f"served {4:020}\n"


def test_a_server_does_not_start_without_a_migration_that_the_models_need(tmp_path: Path) -> None:
    shutil.copytree(APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    models = tmp_path / "app" / "guestbook" / "models.py"
    models.write_text(models.read_text().replace("max_length=40", "max_length=41"))

    done = migrate(tmp_path, tmp_path / "app")

    assert (done.returncode, done.stderr) == (
        1,
        "A migration is missing, the models have changed since the last one:\n"
        "Migrations for 'guestbook':\n"
        "  guestbook/migrations/0002_alter_entry_visit.py\n"
        "    ~ Alter field visit on entry\n\n",
    )


def test_a_server_does_not_start_while_another_one_never_ends_migrating(tmp_path: Path) -> None:
    done = migrate(tmp_path, LOCKED="0")

    assert (done.returncode, done.stderr) == (
        1, "Another server has not ended migrating the database in-a-file within 60 s.\n",
    )  # fmt: skip


def test_a_server_does_not_start_with_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    done = migrate(tmp_path / "nowhere")

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "The database in-a-file cannot be migrated: unable to open database file"


@pytest.mark.parametrize(
    ("database", "app"), [("", "django_app:app"), ("mariadb", "django_app:app"), ("mariadb", "fastapi_app:sync")]
)
def test_django_migrates_its_database_before_a_server_starts(tmp_path: Path, database: str, app: str) -> None:
    (tmp_path / "python").write_text('#!/bin/sh\necho python "$@"\n')
    (tmp_path / "python").chmod(0o755)

    def start(*command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["sh", str(APP.parent / "with-database"), *command], capture_output=True, text=True, check=False,
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "LAB_DATABASE": database, "LAB_APP": app},
        )  # fmt: skip

    migrates = database and app.startswith("django")
    first = "python migrate.py\n" if migrates else ""
    assert start("echo", "gunicorn").stdout == f"{first}gunicorn\n"
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    assert (start("echo", "gunicorn").returncode, start("echo", "gunicorn").stdout) == (
        (1, "") if migrates else (0, "gunicorn\n")
    )
