"""Django in a process of its own, so that no settings of it are left behind: Site asks it, and main is that process."""

import asyncio
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx

from stampede.paths import ROOT, SERVERS

APP = SERVERS / "app"


class Answer(NamedTuple):
    """What was answered; the names of headers are in small letters."""

    status: int
    headers: dict[str, str]
    body: str


class Site:
    """The application, served by ``wsgi`` or ``asgi`` to one browser. It counts in ``folder``."""

    def __init__(self, kind: str, folder: Path, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.django_site", kind, str(folder)], cwd=ROOT, text=True,
            env=surroundings(**environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def forget(self) -> None:
        """Let another browser ask from now on."""
        assert self._process.stdin
        self._process.stdin.write("\n")

    def ask(
        self, path: str, form: dict[str, str] | None = None, *, query: str = "", api: tuple[str, int] = ("api", 8000)
    ) -> Answer:
        """Get a path, or post a form to it; a request that calls calls ``api``."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"path": path, "query": query, "form": form, "api": api}) + "\n")
        self._process.stdin.flush()
        return Answer(*json.loads(self._process.stdout.readline()))


def surroundings(**environment: str) -> dict[str, str]:
    """Return the environment of a process that loads the application, whose server is called httpx."""
    path = os.pathsep.join((str(APP), str(ROOT)))
    return os.environ | {"PYTHONPATH": path, "LAB_SERVER": "httpx", "PYTHONDONTWRITEBYTECODE": "1"} | environment


def main(kind: str, folder: Path) -> None:
    """Answer the requests of the standard input, one a line; an empty line is another browser."""
    import counters  # noqa: PLC0415  # only the process that is Django's has it
    import django_app  # noqa: PLC0415

    counters.FOLDER = folder
    if kind == "asgi":
        asyncio.run(_serve_asgi(django_app.asgi))
    else:
        _serve_wsgi(django_app.app)


def _serve_wsgi(app: Any) -> None:
    server = {"SERVER_SOFTWARE": f"httpx/{version('httpx')}"}
    transport = httpx.WSGITransport(lambda environ, start: app(environ | server, start))
    with httpx.Client(transport=transport, base_url="http://app") as browser:
        for line in sys.stdin:
            if line == "\n":
                browser.cookies.clear()
            else:
                _tell(browser.send(_request(browser, line)))


async def _serve_asgi(app: Any) -> None:
    asked: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    told: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    living = asyncio.create_task(app({"type": "lifespan"}, asked.get, told.put))
    await asked.put({"type": "lifespan.startup"})
    assert await told.get() == {"type": "lifespan.startup.complete"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as browser:
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line == "\n":
                browser.cookies.clear()
            else:
                _tell(await browser.send(_request(browser, line)))
    await asked.put({"type": "lifespan.shutdown"})
    assert await told.get() == {"type": "lifespan.shutdown.complete"}
    await living


def _request(browser: httpx.Client | httpx.AsyncClient, line: str) -> httpx.Request:
    import workload  # noqa: PLC0415

    wanted = json.loads(line)
    workload.API = tuple(wanted["api"])
    url = f"{wanted['path']}?{wanted['query']}" if wanted["query"] else wanted["path"]
    return browser.build_request("GET" if wanted["form"] is None else "POST", url, data=wanted["form"])


def _tell(answer: httpx.Response) -> None:
    print(json.dumps([answer.status_code, dict(answer.headers), answer.text]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
