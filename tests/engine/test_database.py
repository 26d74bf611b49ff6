"""Visits to a guest book on real containers: what goes wrong with its database is said, and no row is miscounted."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from python_on_whales import Container
from python_on_whales.exceptions import DockerException

from stampede.records.folder import read_trial, trial_folder
from tests.conftest import PATIENCE_S, Lab, copy_lab, finish, lab_objects
from tests.engine.conftest import build_own_images
from tests.spoilt import container_after, tell_which, trials

EXPERIMENT = """\
title: Guest books that are all spoilt but one
question: What becomes of the visits?
load:
  script: visits.js
  database: {}
  duration: {short: 9s, full: 1m}
  settings: {first_per_s: 6, last_per_s: 6, step_s: 9, timeout_steps: 0.5, users_max: 300}
parallel: true
variants:
  wrong-rows:   {server: gunicorn-gthread, app: django, workers: 1, threads: 3}
  changed-page: {server: gunicorn-gthread, app: django, workers: 1, threads: 4, balancer: none}
  no-database:  {server: gunicorn-gthread, app: django, workers: 1, threads: 16, balancer: none}
  outgrown:     {server: gunicorn-gthread, app: django, workers: 1, threads: 16, balancer: none}
  killed:       {server: gunicorn-gthread, app: django, workers: 1, threads: 16, balancer: none}
  stopped:      {server: gunicorn-gthread, app: django, workers: 1, threads: 16, balancer: none}
  hung:         {server: gunicorn-gthread, app: django, workers: 1, threads: 16, balancer: none}
  not-migrated: {server: gunicorn-gthread, app: django, workers: 1, threads: 5, balancer: none}
  not-applied:  {server: gunicorn-gthread, app: django, workers: 1, threads: 6, balancer: none}
  crowd:        {server: gunicorn-gthread, app: django, workers: 1, threads: 17, balancer: none}
"""
TOLD = 'os.environ["LAB_THREADS"]'
SOME = "wrong-rows", "changed-page", "no-database", "killed", "stopped", "crowd"
"""make soak has the other ones."""
ROWS = (
    "mariadb --defaults-file=/srv/mariadb.cnf --skip-column-names --execute 'SELECT 1 FROM guestbook.guestbook_entry'"
)
UNTIL_WRITTEN = f'until [ "$({ROWS} 2> /dev/null | wc -l)" -ge 3 ]; do sleep 0.2; done'
COMMANDS = {
    "no-database": "exec mariadbd --no-defaults --datadir=/nowhere",
    "outgrown": "head -c 1G /dev/zero > /tmp/much; exec start",
    "hung": f"({UNTIL_WRITTEN}; kill -STOP $(cat /tmp/mariadb.pid)) & exec start",
    "crowd": "export LAB_DATABASE_CONNECTIONS=10; exec start",
}
"""What the database's container runs in some variants."""


def spoil(lab: Lab) -> None:
    (lab.root / "experiments" / "spoilt.yaml").write_text(EXPERIMENT)
    lab.start_loads_apart()
    lab.predict_roughly()
    lab.draw_nothing()
    tell_which(
        lab,
        LAB_MARIADB=f"{COMMANDS!r}.get(name, 'exec start')",
        LAB_RETRIES="'2' if name == 'not-applied' else '14'",
    )
    threads = "    pids_limit: 2048  # it has a thread for each connection\n"
    lab.edit("docker-compose.yml", threads, threads + '    command: [sh, -c, "${LAB_MARIADB:-exec start}"]\n')
    lab.edit("docker-compose.yml", "retries: 14", "retries: ${LAB_RETRIES:-14}")
    probe = "      test: [CMD, wait-until-ready, mariadb"
    lab.edit("docker-compose.yml", probe, f"      retries: 14\n{probe}")  # MariaDB may take its time on a busy machine
    views, models = "servers/app/guestbook/views.py", "servers/app/guestbook/models.py"
    lab.edit(views, "import workload\n", "import os\nimport time\n\nimport workload\n")
    lab.edit(
        views,
        "        form.save()\n",
        f'        wrong = {{"3": 0, "5": 2}} if {TOLD} == "3" else {{}}\n'
        '        for _ in range(wrong.get(request.POST["visit"], 1)):\n'
        '            Entry.objects.create(visit=request.POST["visit"])\n',
    )
    rendered = 'return render(request, "guestbook/entries.html", {"form": form, "newest": newest})\n'
    lab.edit(
        views,
        rendered,
        rendered.replace("return", "page =") + f'    if {TOLD} == "4":\n'
        '        page.content = page.content.replace(b"csrfmiddlewaretoken", b"mislaid")\n'
        f'    if {TOLD} == "17":\n        time.sleep(2)  # with its connection to the database\n    return page\n',
    )
    lab.edit(models, "from django.db", "import os\n\nfrom django.db")
    place = 'place = models.CharField(max_length=40, default="")'
    lab.edit(models, "    written =", f'    if {TOLD} == "5":\n        {place}\n    written =')
    lab.edit("servers/with-database", "python migrate.py", '[ "$LAB_THREADS" = 6 ] || python migrate.py')


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Some variants under their loads; of two the database is killed, or stands still, in the middle of the load."""
    assert lab_objects() == []
    lab = copy_lab(tmp_path_factory.mktemp("spoilt"))
    spoil(lab)
    with ThreadPoolExecutor(2) as pool:
        process = lab.start("run", "spoilt", "--variants", ",".join(SOME), "--jobs", "6")
        killed = pool.submit(lambda: with_rows("killed").kill())
        stopped = pool.submit(stop_database)
        try:
            code, _, said = finish(process, patience_s=2 * PATIENCE_S)
        finally:
            with suppress(DockerException):
                stopped.result().unpause()  # or nobody could remove it
    killed.result()
    assert code == 1, said
    yield lab
    assert lab_objects() == []
    build_own_images()


def stop_database() -> Container:
    database = with_rows("stopped")
    database.pause()
    return database


def with_rows(variant: str) -> Container:
    return container_after(variant, "mariadb", UNTIL_WRITTEN)


def reasons(lab: Lab, which: str) -> list[str]:
    return list(trials(lab)[which]["reasons"])


def why_failed(lab: Lab, variant: str) -> str:
    record = read_trial(trial_folder(lab.latest("spoilt"), variant, "visits", 1))
    assert record.outcome == "failed"
    return record.reason or ""


def test_a_row_that_is_lost_and_one_that_is_doubled_make_the_trial_invalid(spoilt: Lab) -> None:
    assert trials(spoilt)["wrong-rows"]["verdict"] == "invalid"
    assert "1 row is lost: visit 3" in reasons(spoilt, "wrong-rows")
    assert "1 row is doubled: visit 5" in reasons(spoilt, "wrong-rows")


def test_a_page_that_was_changed_is_no_visit_that_fails(spoilt: Lab) -> None:
    """An overload makes visits fail; what never works is a mistake of whoever changed it."""
    why = why_failed(spoilt, "changed-page")

    assert why == "the load script threw: Error: the page has no form: <!doctype html>"


def test_a_database_that_does_not_start_is_what_the_report_says(spoilt: Lab) -> None:
    why = why_failed(spoilt, "no-database")

    assert why.startswith("the servers did not become healthy: mariadb said:\n")
    assert "/nowhere" in why


def test_a_database_that_is_killed_ends_the_trial_by_name(spoilt: Lab) -> None:
    assert why_failed(spoilt, "killed") == "mariadb ended during the load with exit code 137"


def test_of_a_database_that_answers_no_more_nobody_knows_the_rows(spoilt: Lab) -> None:
    """It stands still in the middle of the load and stays so: visits time out, and afterwards it cannot be asked."""
    found = reasons(spoilt, "stopped")

    assert trials(spoilt)["stopped"]["verdict"] == "invalid"
    assert "the database was not observed after the load: nobody knows which rows were written" in found
    assert any("(request timeout)" in one for one in found)


def test_too_many_connections_are_told_from_a_slow_server(spoilt: Lab) -> None:
    """MariaDB counts no connection that takes the place kept for its administrator, and is then refused."""
    assert any("(database error 1040: Too many connections)" in one for one in reasons(spoilt, "crowd"))
