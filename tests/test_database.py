"""Visits to a guest book on real containers: what goes wrong with its database is said, and no row is miscounted."""

import json
import subprocess
import time
from typing import Any

import pytest
from python_on_whales import Container, DockerClient

from analysis.folder import read_trial, trial_folder
from lab.trial.containers import OWNER_LABEL
from tests.conftest import PATIENCE_S, Lab, finish, lab_objects, wait_for_line

pytestmark = [pytest.mark.containers, pytest.mark.usefixtures("nothing_left")]

EXPERIMENT = """\
title: A guest book
question: What becomes of the visits?
load:
  script: visits.js
  generators: {generators}
  database: {database}
  duration: {{short: 4s, full: 1m}}
  settings: {{first_per_s: {per_s}, last_per_s: {per_s}, step_s: 4, timeout_steps: 1, users_max: 300}}
variants:
  some: {{server: gunicorn-gthread, app: django, workers: 2, threads: 16}}
"""


@pytest.fixture
def guestbook(copied_lab: Lab) -> Lab:
    """A copy of the lab with an experiment of a few visits."""
    return write(copied_lab)


def write(lab: Lab, database: str = "{}", generators: int = 1, per_s: int = 6) -> Lab:
    """Write the experiment."""
    text = EXPERIMENT.format(database=database, generators=generators, per_s=per_s)
    (lab.root / "experiments" / "guestbook.yaml").write_text(text)
    return lab


def summary(lab: Lab) -> dict[str, Any]:
    """Return what came of the last run."""
    return dict(json.loads((lab.latest("guestbook") / "summary.json").read_text()))


def reasons(lab: Lab) -> list[str]:
    """Return why the only trial is doubted."""
    [trial] = summary(lab)["trials"]
    return list(trial["reasons"])


def why_failed(lab: Lab) -> str:
    """Return why the only trial failed."""
    record = read_trial(trial_folder(lab.latest("guestbook"), "some", "visits", 1))
    assert record.outcome == "failed"
    return record.reason or ""


def of_all(lab: Lab, metric: str, stat: str) -> float | None:
    """Return one number of all requests."""
    values = [row["measured"] for row in summary(lab)["rows"] if (row["metric"], row["stat"]) == (metric, stat)]
    return values[0] if values else None


def database_under_load(lab: Lab) -> "tuple[subprocess.Popen[str], Container]":
    """Start a run, and return its process and the database once rows are being written."""
    process = lab.start("run", "guestbook")
    wait_for_line(process, "load ")
    mine = DockerClient().container.list(filters=[("label", OWNER_LABEL)])
    [database] = [one for one in mine if (one.config.labels or {})["com.docker.compose.service"] == "mariadb"]
    count = ["mariadb", "--defaults-file=/srv/mariadb.cnf", "--skip-column-names", "--execute",
             "SELECT count(*) FROM guestbook.guestbook_entry"]  # fmt: skip
    deadline = time.monotonic() + PATIENCE_S
    while int(str(DockerClient().container.execute(database, count))) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process, database


def test_every_visit_writes_one_row_whoever_of_three_generators_made_it(guestbook: Lab) -> None:
    """Nothing is lost or written twice, the shares of the generators add up, and they begin at the same moment."""
    write(guestbook, generators=3)

    assert guestbook.run("run", "guestbook").returncode == 0

    assert 22 <= (of_all(guestbook, "rows_written", "count") or 0) <= 25
    assert of_all(guestbook, "visits_failed", "count") == 0
    assert of_all(guestbook, "rows_unreported", "count") == 0
    folder = trial_folder(guestbook.latest("guestbook"), "some", "visits", 1)
    assert {path.name for path in folder.glob("points*")} == {
        "points.json.gz", "points-2.json.gz", "points-3.json.gz",
    }  # fmt: skip
    assert len(list(folder.glob("k6-processor*.txt"))) == 3
    assert lab_objects() == []


def test_a_row_that_is_lost_and_one_that_is_doubled_make_the_trial_invalid(guestbook: Lab) -> None:
    guestbook.edit(
        "servers/app/guestbook/views.py",
        "        form.save()\n",
        '        for _ in range({"3": 0, "5": 2}.get(request.POST["visit"], 1)):\n'
        '            Entry.objects.create(visit=request.POST["visit"])\n',
    )

    assert guestbook.run("run", "guestbook").returncode == 1

    assert "1 row is lost: visit 3" in reasons(guestbook)
    assert "1 row is doubled: visit 5" in reasons(guestbook)


def test_a_page_that_was_changed_is_no_visit_that_fails(guestbook: Lab) -> None:
    """An overload makes visits fail; what never works is a mistake of whoever changed it."""
    guestbook.edit("servers/app/guestbook/templates/guestbook/entries.html", "{% csrf_token %}", "")

    assert guestbook.run("run", "guestbook").returncode == 1

    assert why_failed(guestbook) == "the load script threw: Error: the page has no form: <!doctype html>"


def test_a_database_that_does_not_start_is_what_the_report_says(guestbook: Lab) -> None:
    guestbook.edit(
        "docker-compose.yml",
        "    pids_limit: 2048  # it has a thread for each connection\n",
        "    pids_limit: 2048\n    command: [mariadbd, --no-defaults, --datadir=/nowhere]\n",
    )

    assert guestbook.run("run", "guestbook").returncode == 1

    assert why_failed(guestbook).startswith("the servers did not become healthy: mariadb said:\n")
    assert "/nowhere" in why_failed(guestbook)


def test_a_database_that_is_killed_ends_the_trial_by_name(guestbook: Lab) -> None:
    process, database = database_under_load(guestbook)

    database.kill()

    assert finish(process)[0] == 1
    assert why_failed(guestbook) == "mariadb ended during the load with exit code 137"


def test_of_a_database_that_answers_no_more_nobody_knows_the_rows(guestbook: Lab) -> None:
    """It stands still in the middle of the load and stays so: visits time out, and afterwards it cannot be asked."""
    process, database = database_under_load(guestbook)

    database.pause()

    try:
        assert finish(process)[0] == 1
    finally:
        thaw(database)
    assert "the database was not observed after the load: nobody knows which rows were written" in reasons(guestbook)
    assert any("(request timeout)" in one for one in reasons(guestbook))


def thaw(container: Container) -> None:
    """Let a container go on, if it is still there."""
    if DockerClient().container.exists(container.id):
        container.unpause()


def test_too_many_connections_are_told_from_a_slow_server(guestbook: Lab) -> None:
    write(guestbook, database="{max_connections: 10}", per_s=80)

    guestbook.run("run", "guestbook")

    assert "database error 1040: Too many connections" in {row["error"] for row in summary(guestbook)["errors"]}
    assert any(one.startswith("the database refused ") for one in reasons(guestbook))


def test_a_model_without_its_migration_does_not_start(guestbook: Lab) -> None:
    path = "servers/app/guestbook/models.py"
    guestbook.edit(path, "    written =", '    place = models.CharField(max_length=40, default="")\n    written =')

    assert guestbook.run("run", "guestbook").returncode == 1

    assert why_failed(guestbook).startswith("the servers did not become healthy: gunicorn said:\n")
    assert "A migration is missing, the models have changed since the last one:" in why_failed(guestbook)
    assert "Add field place to entry" in why_failed(guestbook)


def test_a_migration_that_was_not_applied_is_what_the_health_check_says(guestbook: Lab) -> None:
    guestbook.edit("servers/with-database", "python migrate.py", "true")
    guestbook.edit("docker-compose.yml", "retries: 300", "retries: 30")

    assert guestbook.run("run", "guestbook").returncode == 1

    assert "migrations are not applied: guestbook.0001_initial" in why_failed(guestbook)
