"""Say why an image that exists cannot be measured, or print nothing. Usage: python3 check.py SERVER RELEASE."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Optional

OLDEST = (3, 9)
PROGRAMS = ("sh", "awk", "cat", "grep", "ls", "seq", "sleep", "tr")


def problem(server: str, release: str) -> Optional[str]:  # noqa: UP045  # runs on Python 3.9
    """Return what the image lacks."""
    if sys.version_info < OLDEST:
        return f"It has Python {sys.version.split()[0]}; the lab needs 3.9 or later."
    found = release_of(server)
    if not found:
        return f"It has no {server}." if server == "uwsgi" else f"Its Python has no {server}."
    if found != release:
        return f"It has {server} {found}, but the file says {release}. Write served.{server}: {found}"
    if server == "uwsgi" and not any(serves_python(*plugin) for plugin in ((), ("python3",), ("python",))):
        return "Its uwsgi has no plugin for Python, such as Debian's uwsgi-plugin-python3."
    lacks = [name for name in PROGRAMS if not shutil.which(name)]
    return f"It lacks {', '.join(lacks)}, which the lab's observations need." if lacks else None


def release_of(server: str) -> str:
    """Return the release of a server; empty: there is none. uWSGI may be no package of Python."""
    if server == "uwsgi":
        return "".join(re.findall(r"^[0-9]+(?:\.[0-9]+)*", said_by_uwsgi("--version")))
    try:
        return version(server)
    except PackageNotFoundError:
        return ""


def serves_python(*plugin: str) -> bool:
    """Return whether uWSGI, perhaps with a plugin, knows the options of WSGI applications."""
    return "--wsgi-file" in said_by_uwsgi(*(word for name in plugin for word in ("--plugin", name)), "--help")


def said_by_uwsgi(*options: str) -> str:
    """Return what uWSGI prints; empty: there is no uWSGI."""
    if not shutil.which("uwsgi"):
        return ""
    return subprocess.run(["uwsgi", *options], capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    sys.exit(problem(*sys.argv[1:]))
