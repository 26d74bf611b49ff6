"""``lab init`` reads how a service starts: commands, scripts, variables and settings as people have them."""

from pathlib import Path

import pytest
import yaml

from lab.apps.service.description import UserService
from lab.apps.service.discovery import describe_folder
from lab.apps.service.discovery.settings import ini_settings, settings_of
from lab.apps.service.discovery.shell import Shell
from lab.apps.service.packages import pinned_release, required_lines

FASTAPI = "from fastapi import FastAPI\napp = FastAPI()\n\n@app.get('/healthz')\ndef health(): ...\n"
SHAPES = {
    "fastapi run in a second stage": (
        {
            "Dockerfile": "FROM uv AS builder\nWORKDIR /app\nCOPY . /app\n\nFROM python\n"
            "COPY --from=builder /app /app\nWORKDIR /app\n"
            'CMD ["fastapi", "run", "app/main.py", "--workers", "4"]\n',
            "app/__init__.py": "", "app/main.py": FASTAPI,
            "pyproject.toml": "[project]\nname = 'shop'\ndependencies = ['fastapi[standard]', 'uvicorn==0.37.0']\n",
        },
        {"callable": "app.main:app", "workers": 4, "uvicorn": "0.37.0", "requirements": "pyproject.toml"},
    ),
    "poetry, an entrypoint script and GUNICORN_CMD_ARGS": (
        {
            "Dockerfile": 'FROM python\nWORKDIR /srv\nCOPY . .\nENV GUNICORN_CMD_ARGS="--workers=3 --threads=4"\n'
            'ENTRYPOINT ["./entrypoint.sh"]\n',
            "entrypoint.sh": "#!/bin/sh\nset -e\nif [ \"$MIGRATE\" = 1 ]; then\n  flask db upgrade\nfi\n"
            'exec gunicorn --bind "0.0.0.0:${PORT:-8000}" $GUNICORN_CMD_ARGS "shop:create_app()"\n',
            "shop/__init__.py": "def create_app(config=None): ...\n",
            "pyproject.toml": "[tool.poetry.dependencies]\npython = '^3.12'\nflask = '^3.0'\n",
        },
        {"callable": "shop:create_app()", "workers": 3, "threads": 4, "worker_class": "gthread"},
    ),
    "a Django project in src, with settings that compute": (
        {
            "Dockerfile": "FROM python\nWORKDIR /app\nRUN pip install -r requirements/production.txt\n"
            "COPY src/ src/\nCOPY gunicorn.conf.py .\nWORKDIR /app/src\nENV DJANGO_SETTINGS_MODULE=shop.settings\n"
            'CMD ["gunicorn", "--config", "../gunicorn.conf.py", "shop.wsgi:application"]\n',
            "gunicorn.conf.py": "import multiprocessing\nworkers = multiprocessing.cpu_count() * 2 + 1\n"
            "worker_class = 'gthread'\nthreads = 4\n",
            "requirements/common.txt": "django\ngunicorn==26.2.0\n",
            "requirements/production.txt": "-r common.txt\n", "src/shop/__init__.py": "",
            "src/shop/wsgi.py": "application = get_wsgi_application()\n",
        },
        {"folder": "src", "callable": "shop.wsgi:application", "workers": 5, "threads": 4, "gunicorn": "26.2.0",
         "requirements": "../requirements/production.txt", "settings": "../gunicorn.conf.py",
         "environment": {"DJANGO_SETTINGS_MODULE": "shop.settings"}},
    ),
    "a variable with a value that is taken otherwise": (
        {"Procfile": "web: uvicorn --factory shop.main:create_app --port $PORT --workers ${WEB_CONCURRENCY:-2}\n"},
        {"callable": "shop.main:create_app()", "workers": 2},
    ),
    "a variable that only the service's machine has": (
        {"Procfile": "web: gunicorn --preload --workers $WEB_CONCURRENCY --threads 5 shop.wsgi\n"},
        {"callable": "shop.wsgi:application", "threads": 5, "worker_class": "gthread"},
    ),
    "a server that the lab does not serve": (
        {"compose.yaml": "services:\n  web:\n    build: .\n    command: granian --interface wsgi --workers 4 "
                         "--blocking-threads 3 app:app\n", "app.py": ""},
        {"callable": "app:app", "workers": 4, "threads": 3, "worker_class": "gthread"},
    ),
    "a command over several lines behind a wrapper": (
        {"Dockerfile": "FROM python\nCMD tini -- gunicorn shop:app \\\n    --workers 3 \\\n    -k gevent\n"},
        {"callable": "shop:app", "workers": 3, "worker_class": "gevent"},
    ),
    "a script that hands on its arguments": (
        {"Dockerfile": 'FROM python\nENTRYPOINT ["/docker/run.sh"]\nCMD ["gunicorn", "-w", "6", "shop:app"]\n',
         "docker/run.sh": '#!/bin/bash\npython migrate.py\nset -- "$@" --threads 2\nexec "$@"\n'},
        {"callable": "shop:app", "workers": 6, "threads": 2},
    ),
    "a factory with arguments": (
        {"Procfile": "web: gunicorn -w 4 'shop:create_app(\"prod\", debug=False)'\n"},
        {"callable": 'shop:create_app("prod", debug=False)', "workers": 4},
    ),
    "a Compose file with an environment, replicas and a database": (
        {"compose.yaml": "services:\n  web:\n    build: .\n    command: [uvicorn, 'shop:app']\n    environment:\n"
                         "      WEB_CONCURRENCY: '3'\n      SHOP: tea\n    deploy: {replicas: 2}\n"
                         "    depends_on: {db: {condition: service_healthy}}\n  db:\n    image: mariadb\n",
         "Dockerfile": "FROM python\nCMD python worker.py\n"},
        {"callable": "shop:app", "workers": 3, "replicas": 2, "environment": {"SHOP": "tea"},
         "beside": {"compose": "compose.yaml", "services": ["db"]}},
    ),
    "uWSGI with its ini file": (
        {"Dockerfile": 'FROM python\nCMD ["uwsgi", "--ini", "conf/uwsgi.ini"]\n',
         "conf/uwsgi.ini": "[uwsgi]\nbase = shop\nmodule = %(base).wsgi\ncallable = app\nprocesses = %k\nthreads=3\n"},
        {"callable": "shop.wsgi:app", "uwsgi": "2.0.31", "workers": 2, "threads": 3, "settings": "conf/uwsgi.ini"},
    ),
    "an application for development beside the real command": (
        {"Procfile": "web: gunicorn -w 2 shop:app\n",
         "compose.yaml": "services:\n  web:\n    build: .\n    command: flask --app shop run --debug\n"},
        {"callable": "shop:app", "workers": 2},
    ),
}  # fmt: skip


def written(folder: Path, files: dict[str, str]) -> Path:
    """Write the files of an application."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("shape", SHAPES)
def test_init_reads_how_a_service_starts(tmp_path: Path, shape: str) -> None:
    files, finds = SHAPES[shape]

    found = yaml.safe_load(describe_folder(written(tmp_path, files), cores=2))

    said = found["application"] | found["served"] | ({"beside": found["beside"]} if "beside" in found else {})
    expected = finds | ({"folder": str(tmp_path / str(finds["folder"]))} if "folder" in finds else {})
    assert {name: said.get(name) for name in expected} == expected
    UserService.model_validate(found)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"Procfile": "web: gunicorn --workers $WORKERS shop.wsgi\n"}, "Procfile:1: --workers $WORKERS"),
        ({"compose.yaml": "services:\n  web:\n    command: granian app:app\n"}, "compose.yaml:3: make try"),
        ({"Dockerfile": "FROM python\n\nCMD python x.py\n"}, "Dockerfile:3: command not understood: python x.py"),
        ({"Procfile": "web: python manage.py runserver\n"}, "Procfile:1: runserver is for development"),
        ({"Procfile": "web: gunicorn -k tornado a:b\n"}, "Procfile:1: the lab does not serve gunicorn's worker class"),
    ],
)  # fmt: skip
def test_what_init_cannot_read_is_said_at_its_place(tmp_path: Path, files: dict[str, str], says: str) -> None:
    """It stands at the top of the file, and no guess looks like a finding."""
    text = describe_folder(written(tmp_path, files))

    assert [line for line in text.splitlines() if line.startswith("# ") and says in line] != []


def test_a_shell_is_read_and_not_run() -> None:
    shell = Shell({"A": "1 2", "EMPTY": ""}, ["x", "y z"], cores=4)

    assert shell.words('run $A "$A" ${B:-b} ${EMPTY:-e} ${EMPTY-kept} "$@" $((2 * $(nproc) + 1)) $(date) $C') == [
        "run", "1", "2", "1 2", "b", "e", "x", "y z", "9", "$(date)", "$C",
    ]  # fmt: skip
    assert shell.words("export D=d; E=e exec run -$D 'q $A' a\\ b") == ["run", "-d", "q $A", "a b"]


def test_settings_are_computed_without_running_the_file() -> None:
    text = "import os\nn = os.cpu_count() or 1\nworkers = min(2 * n + 1, 12)\nx = os.environ.get('X', '7')\ny = z()\n"

    known = settings_of(text, {"X": "8"}, cores=4)

    assert known["workers"] == (9, True)
    assert known["x"] == ("8", False)
    assert known["y"] is None
    assert dict(ini_settings("[uwsgi]\na = 1\nb = %(a)2\nmaster\n", 3)) == {"a": "1", "b": "12", "master": "true"}


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        ({"pyproject.toml": "[project]\ndependencies = ['flask>=3', 'gunicorn']\n",
          "uv.lock": "[[package]]\nname = 'gunicorn'\nversion = '23.0.0'\n"}, ["flask>=3", "gunicorn==23.0.0"]),
        ({"pyproject.toml": "[tool.poetry.dependencies]\npython = '^3.11'\na = '^1.2'\nb = '~2.1'\nc = '*'\n"
                            "d = {version = '1.0', extras = ['x']}\ne = '^0.3.1'\n"},
         ["a>=1.2,<2", "b>=2.1,<2.2", "c", "d[x]==1.0", "e>=0.3.1,<0.4"]),
        ({"Pipfile": "[packages]\nflask = '*'\n", "Pipfile.lock": '{"default": {"flask": {"version": "==3.1.0"}}}'},
         ["flask==3.1.0"]),
        ({"setup.cfg": "[options]\ninstall_requires =\n    flask\n    gunicorn==22.0\n"}, ["flask", "gunicorn==22.0"]),
    ],
)  # fmt: skip
def test_requirements_come_from_whichever_file_says_them(
    tmp_path: Path, files: dict[str, str], lines: list[str]
) -> None:
    written(tmp_path, files)

    assert required_lines(tmp_path / next(iter(files))) == lines


def test_a_pinned_release_is_found_and_a_bound_is_none() -> None:
    assert pinned_release("gunicorn", ["flask==3.0", "Gunicorn[gevent]==22.0.0 ; python_version > '3'"]) == "22.0.0"
    assert pinned_release("gunicorn", ["gunicorn>=22"]) is None
