"""stampede.causes: a log tells why a program failed, and which host it could not reach."""

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from stampede.causes import cause, unreached, way_to_compile, ways_out

BOOT = """\
[2026-11-25 10:00:00 +0000] [7] [ERROR] Exception in worker process
Traceback (most recent call last):
  File "/opt/venv/lib/python3.13/site-packages/gunicorn/arbiter.py", line 1, in spawn_worker
    worker.init_process()
KeyError: 'SHOP_KEY'
[2026-11-25 10:00:00 +0000] [7] [INFO] Worker exiting (pid: 7)
Traceback (most recent call last):
  File "/opt/venv/bin/gunicorn", line 6, in <module>
gunicorn.errors.HaltServer: <HaltServer 'Worker failed to boot.' 3>
"""
CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
OSError: the first

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 2, in <module>
shop.Unready: the second
INFO:     Application startup failed. Exiting.
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (BOOT, "KeyError: 'SHOP_KEY'"),
        (CHAINED, "shop.Unready: the second"),
        ("starting\nfatal: no such table\nerror: giving up\nbye", "fatal: no such table"),
        ("starting\nbye\n\n", "bye"),
        ("Traceback (most recent call last):\n  File \"a.py\"\n", 'File "a.py"'),
        ("", ""),
    ],
)  # fmt: skip
def test_the_cause_is_the_exception_that_matters_or_the_first_error(said: str, told: str) -> None:
    assert cause(said) == told


@pytest.mark.parametrize(
    ("said", "host"),
    [
        ("HTTPConnectionPool(host='flags.example.com', port=80): Failed to resolve 'flags.example.com'",
         "flags.example.com"),
        ('psycopg.OperationalError: could not translate host name "db" to address: Name or service not known', "db"),
        ('connection to server at "db.example.com" (10.0.0.1), port 5432 failed: Connection refused',
         "db.example.com"),
        ("Can't connect to MySQL server on 'shop-db' ([Errno -2] Name or service not known)", "shop-db"),
        ("redis.exceptions.ConnectionError: Error -2 connecting to cache:6379. Name or service not known.", "cache"),
        ("Cannot connect to host rates.example.com:443 ssl:default [Temporary failure in name resolution]",
         "rates.example.com"),
        ("mongo:27017: [Errno -3] Temporary failure in name resolution", "mongo"),
        ("Error 111 connecting to localhost:6379. Connection refused.", "localhost"),
        ("httpx.ConnectError: [Errno -2] Name or service not known", ""),
        ("  for res in getaddrinfo(host, port, family, kind):\nsocket.gaierror: [Errno -3] Temporary failure in name "
         "resolution", ""),
        ("the lab found no address of the host db.example.com\nsocket.gaierror: [Errno -3] Temporary failure in name "
         "resolution", "db.example.com"),
        ("ValueError: a time-out of 3 s", None),
        ("the worker listens on http://0.0.0.0:8000", None),
    ],
)  # fmt: skip
def test_the_host_that_was_not_reached_is_found_in_the_messages_of_libraries(said: str, host: str | None) -> None:
    assert unreached(f"starting\n{said}\nbye") == host


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("ready\n", ()),
        ("Failed to resolve 'flags.example.com'", ("flags.example.com", "beside", "Compose file")),
        ("httpx.ConnectError: [Errno -2] Name or service not known", ("does not name", "beside")),
        ("Error 111 connecting to localhost:6379. Connection refused.", ("localhost", "own container", "beside")),
        ("OSError: [Errno 30] Read-only file system: '/opt/application/instance'", ("/tmp",)),
        ("couldn't import psycopg 'python' implementation: libpq library not found",
         ("application.system_packages: [libpq5]", "application.image")),
        ("ImportError: libmagic.so.1: cannot open shared object file: No such file", ("[libmagic1]",)),
        ("OSError: libGL.so.1: cannot open shared object file", ("[libgl1]",)),
        ("OSError: libglib-2.0.so.0: cannot open shared object file", ("[libglib2.0-0]",)),
        ("Invalid HTTP_HOST header: 'gunicorn:8000'. You may need to add 'gunicorn' to ALLOWED_HOSTS.",
         ("headers: {Host: shop.example.com}",)),
        ("Invalid host header", ("headers: {Host: shop.example.com}",)),
        ("Traceback (most recent call last):\nModuleNotFoundError: No module named 'flask.views'\n",
         ("imports flask,", "application.packages", "application.extras")),
    ],
)  # fmt: skip
def test_the_way_out_names_the_key_of_the_file(said: str, named: tuple[str, ...]) -> None:
    ways = ways_out(said)

    assert len(ways) == bool(named)
    assert [word for word in named if word not in ways[0]] == []


@pytest.mark.parametrize(
    ("said", "compiles"),
    [
        ("Error: pg_config executable not found.", True),
        ("error: command 'x86_64-linux-gnu-gcc' failed: No such file or directory", True),
        ("src/main.c:1:10: fatal error: Python.h: No such file or directory", True),
        ("/bin/sh: 1: pkg-config: not found", True),
        ("No matching distribution found for flask==99", False),
    ],
)
def test_who_must_compile_a_package_is_told_what_that_needs(said: str, compiles: bool) -> None:
    assert ("application.system_packages, such as [gcc, libpq-dev]" in way_to_compile(said)) == compiles


def missing(module: str, *frames: tuple[str, str]) -> str:
    """Return a traceback as Python 3.13 writes it, of a module that was not found; frames are paths and code."""
    importing = [("<frozen importlib._bootstrap>", "")] * 2
    lines = [f'  File "{path}", line 1, in <module>\n    {code}\n    ~~~^^^\n' for path, code in [*frames, *importing]]
    return f"Traceback (most recent call last):\n{''.join(lines)}ModuleNotFoundError: No module named '{module}'\n"


SITE = "/opt/venv/lib/python3.13/site-packages"
DYNAMIC = ("/usr/lib/python3.13/importlib/__init__.py", "return _bootstrap._gcd_import(name[level:], package, level)")
BY_CALLABLE = (("/opt/stampede/stampede_own.py", "found: Any = import_module(module)"), DYNAMIC)
BY_SETTINGS = ((f"{SITE}/django/conf/__init__.py", "mod = importlib.import_module(self.SETTINGS_MODULE)"), DYNAMIC)


@pytest.mark.parametrize(
    ("said", "way"),
    [
        (missing("packaging", (f"{SITE}/gunicorn/util.py", "__import__('gunicorn.workers.ggevent')"),
                 (f"{SITE}/gunicorn/workers/ggevent.py", "from packaging.version import parse as parse_version")),
         snapshot("The package gunicorn needs packaging, which application.requirements does not bring. Add its "
                  "package to your requirements, or only for the lab under application: packages: [packaging], if the "
                  "package has the name of the module.")),
        (missing("six", ("/opt/application/app.py", "import old"), (f"{SITE}/old.py", "import six")),
         snapshot("The package old needs six, which application.requirements does not bring. Add its package to your "
                  "requirements, or only for the lab under application: packages: [six], if the package has the name "
                  "of the module.")),
        (missing("six", (f"{SITE}/flask/app.py", "self.load()"), ("/opt/application/app.py", "import six")),
         snapshot("The application imports six, which application.requirements does not bring. Name its package in "
                  "application.packages, or in application.extras the extra of the project that brings it.")),
    ],
)  # fmt: skip
def test_the_way_to_a_module_names_who_imports_it(said: str, way: str) -> None:
    """The last frame outside Python's own machinery imports it, whoever began."""
    assert ways_out(said, None) == [way]


def test_a_module_in_another_folder_of_the_application_is_found_there(tmp_path: Path) -> None:
    """Whether settings, the callable or an import name it; what is no code of the application does not count."""
    for file in ("src/config/settings.py", "tests/config.py", ".venv/lib/config.py", "src/shop.py", "here.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    for said in (missing("config", *BY_SETTINGS), missing("config.urls", *BY_SETTINGS), missing("shop", *BY_CALLABLE),
                 missing("shop", ("/opt/application/here.py", "import shop"))):  # fmt: skip
        [way] = ways_out(said, tmp_path)
        assert "which is in src of application.folder" in way, said
        assert "environment: {PYTHONPATH: src}" in way
        assert "requirements does not bring" not in way
    [elsewhere] = ways_out(missing("here.local", *BY_SETTINGS), tmp_path)
    assert "here in application.folder has no such module" in elsewhere
    [nowhere] = ways_out(missing("redis", *BY_SETTINGS), tmp_path)
    assert "application.packages" in nowhere


def test_a_callable_whose_module_is_nowhere_is_named(tmp_path: Path) -> None:
    [way] = ways_out(missing("app", *BY_CALLABLE), tmp_path)
    assert way == snapshot("The start names app, which application.folder does not have. Name a module that is there.")
    [of_image] = ways_out(missing("app", *BY_CALLABLE))
    assert of_image == snapshot("The start names app, which the image does not have. Name a module that is there.")
