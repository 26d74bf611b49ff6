"""Find in what a program wrote why it failed: the exception, and the host that it could not reach."""

import re
from pathlib import Path

from stampede.docker.missing_modules import way_to_module

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\s*$")
_CONSEQUENCE = re.compile(r"HaltServer|^SystemExit|^KeyboardInterrupt|^asyncio\.\S*CancelledError|^StopIteration")
"""Exceptions that only follow from the one that matters."""
_ERROR = re.compile(
    r"\b(error|exception|fatal|critical|cannot|can't|could not|failed|denied|no such)\b|^Timeout \(", re.IGNORECASE
)
_UNREACHED = re.compile(
    r"name or service not known|name resolution|getaddrinfo|nodename nor servname|failed to resolve|"
    r"could not translate host name|no address associated|no address of the host|connection refused|"
    r"connect call failed|connection timed out|"
    r"connect(ion)? ?timeout|timed out|no route to host|network is unreachable|cannot connect to host|"
    r"all connection attempts failed",
    re.IGNORECASE,
)
_LIBRARY = re.compile(
    r"cannot open shared object file|library not found|Error loading psycopg|cannot load library|no library called",
    re.IGNORECASE,
)
_SHARED_OBJECT = re.compile(r"\b(lib[\w.+-]+?)\.so\.(\d+)")
_COMPILING = re.compile(
    r"pg_config|mysql_config|pkg-config|Python\.h|fatal error: \S+\.h:|compiler|"
    r"\b(gcc|g\+\+|cc|clang)\b.*(failed|No such file)|(failed|No such file).*\b(gcc|g\+\+|cc|clang)\b",
    re.IGNORECASE,
)
_WRONG_NAME = re.compile(r"DisallowedHost|Invalid HTTP_HOST header|Invalid host header", re.IGNORECASE)
"""What Django and Starlette's TrustedHostMiddleware say to a request for a host that they do not know."""
_NAME = r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
NO_ADDRESS = "the lab found no address of the host"
"""What the lab's check of an application writes before the name of a host that has no address in the lab."""
_HOSTS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"host ?name \"{_NAME}\"", rf"host='{_NAME}'", rf"resolve '{_NAME}'", rf"server at \"{_NAME}\"",
        rf"server on '{_NAME}'", rf"connect to host {_NAME}", rf"connecting to {_NAME}[:.]", rf"://(?:[^@/\s]*@)?{_NAME}",
        rf"\b{_NAME}:[0-9]{{2,5}}: \[Errno", rf"getaddrinfo\S* \S+ {_NAME}", rf"{NO_ADDRESS} {_NAME}",
    )
]  # fmt: skip
_LONGEST = 300


def cause(said: str) -> str:
    """Return the line that says why a program failed, or else its last line. Empty: the program wrote nothing."""
    return failure(said) or next((line.strip()[:_LONGEST] for line in reversed(said.splitlines()) if line.strip()), "")


def failure(said: str) -> str:
    """Return the exception of a program's last traceback, or its first error. Empty: the program wrote neither.

    Exceptions that only follow from another one do not count.
    """
    lines = said.splitlines()
    thrown = []
    for start, line in enumerate(lines):
        if _TRACEBACK.search(line):  # a traceback without an end has no exception
            thrown += [line for line in lines[start + 1 :] if line and not line[0].isspace()][:1]
    told = [line for line in thrown if not _CONSEQUENCE.search(line)] or thrown[-1:]
    errors = [line for line in lines if _ERROR.search(line)]
    found = told[-1:] or errors[:1]
    return found[0].strip()[:_LONGEST] if found else ""


def unreached(said: str) -> str | None:
    """Return the host that a program could not reach; empty if its messages do not name it; None if it reached all.

    Indented lines do not count: in a traceback, they are source, which may have any words.
    """
    lines = [line for line in said.splitlines() if line and not line[0].isspace() and _UNREACHED.search(line)]
    named = (found[1] for line in reversed(lines) for pattern in _HOSTS if (found := pattern.search(line)))
    return next(named, "") if lines else None


def ways_out(said: str, folder: Path | None = None) -> list[str]:
    """Return how an application gets the hosts, the folders, the libraries and the modules that it lacks.

    ``folder`` has the application; None: an image has it.
    """
    ways = (way_to_host(said), way_to_write(said), way_to_library(said), way_to_module(said, folder),
            way_to_name(said))  # fmt: skip
    return [way for way in ways if way]


def way_to_host(said: str) -> str:
    """Return how an application gets to the host that it could not reach; empty if it reached all hosts."""
    host = unreached(said)
    if host is None:
        return ""
    if host in ("localhost", "127.0.0.1"):
        return ("In the lab, localhost is the application's own container. Name in beside the service that the "
                "application needs, and let the application reach it by its name.")  # fmt: skip
    what = f"The application could not reach the host {host}." if host else (
        "The application could not reach a host, which its message does not name."
    )  # fmt: skip
    example = host if "." in host else "api.example.com"
    return (f"{what} In the lab, it reaches only the hosts of application.hosts, such as hosts: [{example}], and the "
            "services of beside.")  # fmt: skip


def way_to_write(said: str) -> str:
    """Return where an application may write that tried to write elsewhere; empty if it did not."""
    if "Read-only file system" not in said:
        return ""
    return ("In the lab, an application may write only in application.folder and below /tmp. If an environment "
            "variable says where the application writes, set the variable in application.environment.")  # fmt: skip


def way_to_library(said: str) -> str:
    """Return how an application gets a library of the system that it did not find; empty if it found all."""
    if not _LIBRARY.search(said):
        return ""
    found = _SHARED_OBJECT.search(said)
    name = _debian_name(*found.groups()) if found else "libpq5"
    return ("The application needs a library of the system, which the lab's image lacks. Name Debian's package, such "
            f"as application.system_packages: [{name}], or give your own image in application.image.")  # fmt: skip


def way_to_compile(said: str) -> str:
    """Return what a package needs that could not be compiled; empty: it is not the compiler or a header."""
    if not _COMPILING.search(said):
        return ""
    return ("A package has to be compiled. Name a compiler and the headers in application.system_packages, such as "
            "[gcc, libpq-dev] for psycopg2, or [gcc, pkg-config, default-libmysqlclient-dev] for mysqlclient; or "
            "require a package that is compiled already, such as psycopg[binary].")  # fmt: skip


def _debian_name(library: str, version: str) -> str:
    """Return the usual name of the package of libpq.so.5, which is libpq5 (Debian Policy 8.1)."""
    name = re.sub(r"-(?=\d)", "", library.lower()).replace("_", "-")
    return f"{name}-{version}" if name[-1].isdecimal() else f"{name}{version}"


def way_to_name(said: str) -> str:
    """Return how requests name a host that the application answers to; empty if it refuses none because of its host."""
    if not _WRONG_NAME.search(said):
        return ""
    return ("The application answers only to the names of its own hosts. Write a header for the class, such as "
            "headers: {Host: shop.example.com}, or set in application.environment the variable that allows all "
            "hosts.")  # fmt: skip
