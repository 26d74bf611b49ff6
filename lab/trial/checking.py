"""Say what is wrong with somebody's own application before any load: a class fails, or its server does not start."""

from collections.abc import Callable, Mapping

from analysis.records.classes import Login, OwnRequestClass
from lab.engine.causes import cause, failure, way_to_host, way_to_library, way_to_write
from lab.errors import LabError
from lab.servers.workload import BESIDE
from lab.trial.alone import Answer
from lab.trial.login import Refusal

LINES = 12
"""How many lines of a log are shown."""
MOST_BODY = 300
BEFORE = f"{BESIDE}before"
"""The service that runs application.before."""
_LOGIN = ("login", "signin", "sign-in", "sso", "auth", "account")
WAY_TO_LOG_IN = (
    'If it needs a login, give one: login: {path: /login, form: {username: ada, password: "${PASSWORD}"}}, or a header.'
)
Masked = Callable[[bytes], bytes]


def not_meant(name: str, described: OwnRequestClass, answer: Answer, said: str, masked: Masked) -> LabError:
    """Return the error for a class that is not answered as it should be, given what the application wrote for it."""
    asked = f"{described.method} {described.path}, the class {name}"
    if answer.status == 0:
        problem = masked(answer.problem.encode()).decode(errors="replace")
        reason = problem.splitlines()[-1] if problem else "nobody gave a reason"
        message = f"{asked}, is not answered when it is asked alone: {reason}."
    elif described.expected_status:
        message = (
            f"{asked}, is answered with status {answer.status}, but expected_status is {described.expected_status}."
        )
    else:
        message = f"{asked}, is answered with status {answer.status} when it is asked alone, before any load."
    parts = [
        *_hints(answer.body, said, masked),
        WAY_TO_LOG_IN if answer.status in (401, 403) else "",
        f"Correct requests.{name} (path, method, headers, body), or what the application needs (environment, env_file, "
        "hosts, beside)." + (f" If this is meant, write expected_status: {answer.status}." if answer.status else ""),
    ]
    return LabError(message, hint="\n".join(filter(None, parts)))


def not_logged_in(login: Login, refusal: Refusal, said: str, masked: Masked) -> LabError:
    """Return the error for users who cannot log in, given what the application wrote meanwhile."""
    problem = masked(refusal.problem.encode()).decode()
    asked = f"GET {login.path}, " if problem.startswith(_PAGE) else f"{login.method} {login.path}, the login, "
    parts = [
        *_hints(refusal.said, said, masked),
        "A page whose form has hidden fields, such as a CSRF token, needs login.form in the place of login.body."
        if login.body and "status 403" in problem else "",
        "Correct login (path, form or body, headers, token), or what the application needs (environment, env_file, "
        "hosts, beside).",
    ]  # fmt: skip
    return LabError(f"{asked}{problem}.", hint="\n".join(filter(None, parts)))


_PAGE = "the page with the form"
"""How a problem begins that is about the page, as k6/lib/login.js says it."""


def _hints(body: str, said: str, masked: Masked) -> list[str]:
    """Return what an application answered and wrote, and what follows from it."""
    return [
        _body(body, masked),
        f"For this request, the application wrote:\n{_last(said)}" if said.strip() else "It wrote nothing to its log.",
        way_to_host(said),
        way_to_write(said),
        way_to_library(said),
    ]


def not_healthy(said: str, probed: str, beside: str = "") -> LabError:
    """Return the error for a container that does not become healthy, given what it wrote and its health check said.

    ``beside`` is its service; empty: it has the application.
    """
    reason = (failure(said) if probed else cause(said)) or f"the health check says {probed.splitlines()[0]}"
    parts = [
        way_to_host(said),
        way_to_write(said),
        way_to_library(said),
        f"Its last lines:\n{_last(said)}" if said else "It wrote nothing to its log.",
        f"Its health check said:\n{_last(probed)}" if probed else "",
        "The health check asks for the path application.ready, if the file has it." if probed and not beside else "",
    ]
    what = "The command of application.before" if beside == BEFORE else beside or "Your application"
    fails = "fails" if beside == BEFORE else "does not start as it is served today"
    return LabError(f"{what} {fails}: {reason}", hint="\n".join(filter(None, parts)))


def answered(name: str, described: OwnRequestClass, answer: Answer) -> str:
    """Return how a single request of a class was answered before any load."""
    how = f"with status {answer.status} in {answer.took_ms:.0f} ms"
    return f"{name}: {described.method} {described.path}, sent alone, is answered {how}."


def redirected(name: str, described: OwnRequestClass, answer: Answer, masked: Masked) -> str:
    """Return what to know of a class that is answered with a redirect, which k6 does not follow."""
    where = masked(answer.location.encode()).decode().removeprefix(answer.origin) or "another place"
    login = f" {WAY_TO_LOG_IN}" if any(word in where.lower() for word in _LOGIN) else ""
    asked = f"{described.method} {described.path}, the class {name}"
    return (f"{asked}, is answered with status {answer.status}, a redirect to {where}. "
            f"The load measures the redirect itself.{login}")  # fmt: skip


def written_since(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return what containers have written since an earlier moment, given all that each of them wrote."""
    return "".join(said[len(before.get(container, "")) :] for container, said in now.items())


def _body(body: str, masked: Masked) -> str:
    """Return the beginning of a body that is short text; empty: it is not."""
    text = " ".join(masked(body.encode()).decode(errors="replace").split())
    if not text or "\0" in text or "�" in text:
        return ""
    shown = text if len(text) <= MOST_BODY else f"{text[:MOST_BODY]} …"
    return f"The answer says: {shown}"


def _last(said: str) -> str:
    return "\n".join(f"  {line}" for line in said.strip().splitlines()[-LINES:])
