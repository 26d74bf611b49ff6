"""Find in what an application wrote why it failed, and the way out: a host, a folder, a library, a module, a name."""

import os
import re
from itertools import islice
from pathlib import Path

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
_WRONG_NAME = re.compile(
    r"DisallowedHost|Invalid HTTP_HOST header|Invalid host header|Bad Request \(400\)", re.IGNORECASE
)
"""What Django and Starlette's TrustedHostMiddleware say to a request for a host that they do not know.

With DEBUG=False, Django says nothing but the page of its status.
"""
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
    ways, host = [], unreached(said)
    if host in ("localhost", "127.0.0.1"):
        ways.append("In the lab, localhost is the application's own container. Name in beside the service that the "
                    "application needs, and let the application reach it by its name.")  # fmt: skip
    elif host is not None:
        what = f"the host {host}." if host else "a host, which its message does not name."
        ways.append(f"The application could not reach {what} In the lab, it reaches only the services of beside, each "
                    "by its name: name there a service of your Compose file that answers in the place of the host and "
                    "has its name, or let a variable in application.environment name the service.")  # fmt: skip
    if "Read-only file system" in said:
        ways.append("In the lab, an application may write only in application.folder and below /tmp. If a variable "
                    "says where the application writes, set the variable in application.environment.")  # fmt: skip
    if _LIBRARY.search(said):
        package = "libpq5"
        if found := _SHARED_OBJECT.search(said):  # the package of libpq.so.5 is libpq5 (Debian Policy 8.1)
            name = re.sub(r"-(?=\d)", "", found[1].lower()).replace("_", "-")
            package = f"{name}-{found[2]}" if name[-1].isdecimal() else f"{name}{found[2]}"
        ways.append("The application needs a library of the system, which the lab's image lacks. Name Debian's "
                    f"package, such as application.system_packages: [{package}], or give your own image in "
                    "application.image.")  # fmt: skip
    if module := way_to_module(said, folder):
        ways.append(module)
    if _WRONG_NAME.search(said):
        ways.append("The application answers only to the names of its own hosts, in Django those of ALLOWED_HOSTS. "
                    "Write a header for the class, such as headers: {Host: shop.example.com}, or set in "
                    "application.environment the variable that allows all hosts.")  # fmt: skip
    return ways


def way_to_compile(said: str) -> str:
    """Return what a package needs that could not be compiled; empty: it is not the compiler or a header."""
    if not _COMPILING.search(said):
        return ""
    return ("A package has to be compiled. Name a compiler and the headers in application.system_packages, such as "
            "[gcc, libpq-dev] for psycopg2, or [gcc, pkg-config, default-libmysqlclient-dev] for mysqlclient; or "
            "require a package that is compiled already, such as psycopg[binary].")  # fmt: skip


_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)")
_FRAME = re.compile(r'^[ \t]*File "(?P<path>[^"<\n][^"\n]*)", line \d+, in .*\n[ \t]*(?P<code>.*)', re.MULTILINE)
_WRAPPER = "/opt/stampede/stampede_own.py"
"""The lab's program that imports the module of the application."""
_PASSED_OVER = {"__pycache__", "docs", "examples", "node_modules", "site-packages", "test", "tests", "venv"}
_MOST_FOLDERS = 5000
_PACKAGES = (
    "Name its package in application.packages, or in application.extras the extra of the project that brings it."
)


def way_to_module(said: str, folder: Path | None = None) -> str:
    """Return how a program gets a module that it did not find; empty if it found all.

    ``said`` is what the program wrote, with its traceback. ``folder`` has the application; None: an image has it.
    """
    if not (found := _MISSING.search(said)):
        return ""
    name = found[1]
    module = name.partition(".")[0]
    frames = [each for each in _FRAME.finditer(said, 0, found.start()) if "/importlib/" not in each["path"]]
    path, code = (frames[-1]["path"], frames[-1]["code"]) if frames else ("", "")
    package = path.partition("/site-packages/")[2]
    if package and re.match(r"(import|from)\s", code):
        who = package.removesuffix(".py").partition("/")[0]
        return (f"The package {who} needs {module}, which application.requirements does not bring. Add its package to "
                f"your requirements, or only for the lab under application: packages: [{module}], if the package has "
                "the name of the module.")  # fmt: skip
    by_callable = path.endswith(_WRAPPER)
    who = f"The start names {name}" if by_callable else f"The application imports {name}"
    places = []
    for found_in, folders, files in islice(os.walk(folder), _MOST_FOLDERS) if folder else ():
        folders[:] = sorted(name for name in folders if name not in _PASSED_OVER and not name.startswith("."))
        if f"{module}.py" in files or (module in folders and any(Path(found_in, module).glob("*.py"))):
            places.append(Path(found_in).relative_to(folder or ""))
    places.sort(key=lambda place: (len(place.parts), place))
    if places and places[0].parts:
        place = places[0].as_posix()
        return (f"{who}, which is in {place} of application.folder, but Python looks only in that folder itself. Write "
                f"under application: environment: {{PYTHONPATH: {place}}}. Or, if the service starts in {place}, "
                f"working_folder: {place}.")  # fmt: skip
    if places and "." in name:
        return f"{who}, but {module} in application.folder has no such module. Is the file elsewhere, or generated?"
    if by_callable:
        where = "application.folder" if folder else "the image"
        return f"{who}, which {where} does not have. Name a module that is there."
    return f"{who.removesuffix(name)}{module}, which application.requirements does not bring. {_PACKAGES}"
