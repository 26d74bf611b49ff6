"""How the lab serves, on real containers: each server, a database, a rate that follows."""

import json
import subprocess

import pytest
import yaml

from stampede.records.folder import trial_folder
from tests.conftest import Lab
from tests.engine.test_served import EVERY_SERVER, SOME, serve_bursts
from tests.measuring import add_experiment, measure


def test_python_with_and_without_its_lock_computes_and_counts(copied_lab: Lab) -> None:
    """The interpreter of each image is what its name says, also when everything that serves has been imported."""
    variants = {
        f"{server}-{lock}": {"server": f"python314-{server}", "gil": lock == "gil", "workers": 1, "threads": 4,
                             "app": app}
        for server, app in (("gunicorn", "wsgi"), ("granian", "flask"), ("uwsgi", "flask"))
        for lock in ("gil", "free")
    }  # fmt: skip
    load = {
        "duration": {"short": "3s", "full": "3s"},
        "classes": {"fibonacci": {"users": 2, "asks": "/fibonacci?n=20"}},
    }
    add_experiment(copied_lab, "interpreters", load, variants)

    result = measure(copied_lab, "interpreters", ",".join(variants), "3s")

    images = {one["name"]: one["programs"] for one in json.loads((result.folder / "run.json").read_text())["images"]}
    for lock in ("gil", "free"):
        image = f"stampede/python314:{lock}"
        assert images[image]["python3"].startswith("3.14.")
        assert images[image]["python3"].endswith("t") == (lock == "free")
        asks = "import sys, flask_app, {}; print('lock:', sys._is_gil_enabled(), flush=True); sys.exit()"
        within = ["python", "-c", asks.format("granian.server, gunicorn.workers.gthread")]
        of_uwsgi = ["uwsgi", "--socket", "/tmp/socket", "--need-app", "--eval", asks.format("uwsgi")]
        for program in (within, of_uwsgi):
            command = ["docker", "run", "--rm", "--network", "none", image, *program]
            told = subprocess.run(command, capture_output=True, text=True, check=False)
            assert f"lock: {lock == 'gil'}" in (told.stdout + told.stderr).splitlines(), told
    for name in variants:
        [(sent, failed, workers)] = result.requests(
            name, "classes", "SELECT count(*), count(error), count(DISTINCT worker) FROM requests"
        )
        counted = sum(one["counts"]["served"] for one in result.summary["counters"] if one["variant"] == name)
        assert (failed, workers, counted) == (0, 1, sent), name


GUEST_BOOKS: dict[str, dict[str, object]] = {
    "uwsgi": {"threads": 2, "protocol": "fastcgi"},
    "flup-prefork": {"workers": 8, "threads": 1},
}
"""Of django-fastcgi, fastcgi-mechanisms and test_database the other ones."""
SAYS = {"flup-prefork": "flup6"}


@pytest.mark.parametrize(
    "books",
    [
        pytest.param(GUEST_BOOKS),
        pytest.param({"gunicorn-gevent": {}, "uvicorn": {}, "granian": {}, "hypercorn": {}}),
    ],
    ids=["several", "further"],
)
def test_every_server_of_django_has_a_guest_book_and_a_row_of_each_visit(
    copied_lab: Lab, books: dict[str, dict[str, object]]
) -> None:
    """Two generators share the visits. Nothing is lost or written twice, and the generators' shares add up.

    Were a count or a socket another than is asked for, a trial would be invalid.
    """
    experiment = {
        "title": "Every guest book",
        "question": "Do they write the same?",
        "load": {
            "script": "visits.js", "generators": 2, "database": {},
            "duration": {"short": "3s", "full": "3s"},
            "settings": {"first_per_s": 2, "last_per_s": 4, "step_s": 1, "timeout_steps": 10, "users_max": 40},
        },
        "parallel": True,
        "variants": {name: {"server": name, "app": "django", "workers": 2, **own} for name, own in books.items()},
    }  # fmt: skip
    (copied_lab.root / "experiments" / "guest-books.yaml").write_text(yaml.safe_dump(experiment, sort_keys=False))

    result = measure(copied_lab, "guest-books", ",".join(books), "3s", "--jobs", str(len(books)))

    assert result.summary["errors"] == []
    for name in books:
        made = "SELECT count(DISTINCT visit), count(*) = 3 * count(DISTINCT visit) FROM requests"
        [(visits, whole)] = result.requests(name, "visits", made)
        assert whole, name
        assert visits in range(7, 11), name
        assert result.each("visits_failed", "count")[name] == 0, name
        servers = "SELECT DISTINCT split_part(server, '/', 1) FROM requests"
        assert result.requests(name, "visits", servers) == [(SAYS.get(name, name.split("-")[0]),)]
        folder = trial_folder(result.folder, name, "visits", 1)
        assert {path.name for path in folder.glob("points*")} == {"points.json.gz", "points-2.json.gz"}, name
        assert len(list(folder.glob("k6-processor*.txt"))) == 2, name
        assert "Traceback" not in "".join(path.read_text() for path in folder.glob("*-1.log")), name


def test_every_other_server_and_release_serves_bursts_and_counts_them(copied_lab: Lab) -> None:
    serve_bursts(copied_lab, EVERY_SERVER.keys() - SOME)


def test_django_fastcgi_asks_for_a_multiple_of_what_gunicorn_could_do(copied_lab: Lab) -> None:
    result = measure(copied_lab, "django-fastcgi", "gunicorn-5", "3s")

    capacity_per_s = result.each("capacity", "per_second")["gunicorn-5"]
    record = json.loads((trial_folder(result.folder, "gunicorn-5", "overload", 1) / "trial.json").read_text())
    assert capacity_per_s in (8, 32)
    assert record["visits_per_s"] == 2 * capacity_per_s
    [(visits, generators)] = result.requests(
        "gunicorn-5", "overload", "SELECT count(DISTINCT visit), count(DISTINCT generator) FROM requests"
    )
    assert visits == pytest.approx(6 * capacity_per_s, rel=0.05)
    assert generators == 4
    assert "seconds since the first visit came" in result.report
