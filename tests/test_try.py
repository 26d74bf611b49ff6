"""An application that knows nothing of the lab, in real containers: who served each request, and what is said of it."""

from pathlib import Path

import duckdb
import pytest

from analysis.folder import trial_folder
from tests.conftest import Lab
from tests.measuring import rows_of
from tests.test_own import FILE, SHOP

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("own_images", "nothing_left")]


def written(tmp_path: Path, further: str = "") -> Path:
    """Write a small shop and the file that describes it, and return the file."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").write_text(SHOP + further)
    (tmp_path / "shop" / "requirements.txt").write_text("flask==3.1.3\n")
    (tmp_path / "names.env").write_text("GREETING=bonjour\n")
    file = FILE.replace("  environment: {GREETING: hello}", "  env_file: names.env")
    (tmp_path / "my-service.yaml").write_text(file + "  broken: {path: /items/1, per_second: 2}\n")
    return tmp_path / "my-service.yaml"


def test_an_application_is_tried_as_it_is(lab: Lab, tmp_path: Path) -> None:
    """A class whose requests all fail makes a trial invalid, and the requests of other classes are still told."""
    done = lab.run("try", str(written(tmp_path)), "--trials", "1", "--duration", "3s", "--ways", "today")

    assert done.returncode == 1, done.stdout + done.stderr
    assert "requests failed (status 500)" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    run = (lab.results / "my-service-tried" / "latest").resolve()
    requests = duckdb.read_parquet(f"{trial_folder(run, 'today', 'own', 1)}/requests.parquet")
    of_class = "SELECT request, count(*) = count(ended), count(error) > 0 FROM requests GROUP BY 1"
    by_class = {name: found for name, *found in rows_of(requests, of_class)}
    assert by_class == {name: [True, name == "broken"] for name in ("home", "report", "stream", "broken")}
    [(least, most)] = rows_of(requests, "SELECT min(asked_ms), max(asked_ms) FROM requests WHERE request = 'report'")
    assert 500 <= least < most < 900  # type: ignore[operator]
    assert rows_of(requests, "SELECT min(asked_ms) >= 60 FROM requests WHERE request = 'stream'") == [(True,)]
    recorded = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert str(tmp_path).encode() not in recorded
    assert b"they greet with $GREETING" in recorded
    assert b"bonjour" not in recorded
    assert lab.run("verify", str(run)).returncode == 0


def test_an_application_that_cannot_be_loaded_says_why(lab: Lab, tmp_path: Path) -> None:
    done = lab.run("try", str(written(tmp_path, "\nimport humanize\n")))

    assert done.returncode == 1
    assert "error: Your application cannot be loaded.\n" in done.stderr
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'humanize'\n")
    assert not (lab.results / "my-service-tried").exists()


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
OTHERS: dict[str, tuple[str, str, str, str, dict[str, str]]] = {
    "httpbin": ("httpbin:app", "httpbin==0.10.2", "27.0.1", "", {"get": "/get", "late": "/delay/1"}),
    "django": (
        "site_of_shop:application",
        "django==5.2.8",
        "27.0.1",
        DJANGO,
        {"login": "/admin/login/", "admin": "/admin/"},
    ),
    "gunicorn-21": ("site_of_shop:app", "", "21.2.0", THREADS_OF_ITS_OWN, {"home": "/"}),
    "slow-to-start": ("site_of_shop:app", "", "27.0.1", SLOW_TO_START, {"home": "/"}),
}


@pytest.mark.soak
@pytest.mark.parametrize("kind", OTHERS)
def test_applications_of_others_are_tried(lab: Lab, tmp_path: Path, kind: str) -> None:
    """Nobody wrote them for the lab. An answer of each request names its worker, and all counts agree."""
    of, requirements, release, source, paths = OTHERS[kind]
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "requirements.txt").write_text(f"{requirements}\n")
    (tmp_path / "shop" / "site_of_shop.py").write_text(source)
    asks = "\n".join(f"  {name}: {{path: {path}, users: 2, pause_s: 0.1}}" for name, path in paths.items())
    (tmp_path / "other.yaml").write_text(
        f"application: {{folder: shop, callable: '{of}', requirements: requirements.txt}}\n"
        f"served: {{gunicorn: {release}, workers: 2, threads: 2}}\nrequests:\n{asks}\n"
    )

    done = lab.run_for(300, "try", str(tmp_path / "other.yaml"), "--trials", "1", "--duration", "5s", "--ways", "today")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Diagnosis, as the service is served today" in done.stdout
    run = (lab.results / "other-tried" / "latest").resolve()
    requests = duckdb.read_parquet(f"{trial_folder(run, 'today', 'own', 1)}/requests.parquet")
    sql = "SELECT count(error), count(*) = count(worker), count(DISTINCT request) FROM requests"
    assert rows_of(requests, sql) == [(0, True, len(paths))]
