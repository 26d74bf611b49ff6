"""Log users in to somebody's own application, ask it for each class before any load, and say what is wrong with it."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from stampede.causes import cause, failure, ways_out
from stampede.docker.client import DockerError
from stampede.docker.commands import Say
from stampede.errors import LabError
from stampede.records.classes import Login, OwnRequestClass
from stampede.records.run import USER_SERVICE
from stampede.report.wording import shortened
from stampede.run.trial.alone import Answer, Refusal, Session, ask, wait_for_sessions
from stampede.run.trial.trial import Trial
from stampede.servers.base import BEFORE

LINES = 12
"""How many lines of a log are shown."""
MOST_BODY = 300
LOGGED_WITHIN_S = 1
"""How long the lab waits for what an application writes because of a request."""
_LOGIN = ("login", "signin", "sign-in", "sso", "auth", "account")
WAY_TO_LOG_IN = (
    'If it needs a login, give one: login: {path: /login, form: {username: ada, password: "${PASSWORD}"}}, or a header.'
)
_WAY_OUT = (
    "Correct requests.{name} (path, method, headers, body), or what the application needs (environment, env_file, "
    "beside, before)."
)
_WAYS_OUT = {
    401: "{login} Or leave requests.{name} out.",
    403: "{login} Or leave requests.{name} out.",
    404: "Write a path that exists to requests.{name}. If the page shows data that is not there, let "
    "application.before write the data; or leave the class out.",
    405: "The application answers this path, but not this method: write the right method to requests.{name}, such as "
    "method: POST, or leave the class out.",
}
"""What to do about a class that is answered with a status."""
_KILLED = re.compile(r"WORKER TIMEOUT|HARAKIRI ON WORKER")
"""What gunicorn and uWSGI write of a worker that they kill because a request takes too long."""
MOST_NAME, MOST_REQUEST = 24, 36
WAY_TO_HTTPS = "If a proxy in front of it takes HTTPS, write what the proxy says: headers: {X-Forwarded-Proto: https}."


async def log_in(trial: Trial) -> LabError | None:
    """Let the load generators of a trial log their users in. If that fails, fail, and return the error."""
    login, before = trial.login, await _logged(trial)
    assert login
    try:
        for generator in trial.generators:  # each of them then waits until the lab says when the load begins
            await generator.machine.call("container", "start", generator.id)
        told = [session for generator in trial.generators for session in await wait_for_sessions(generator)]
    except DockerError as error:
        said = "".join([await trial.said_by(generator) for generator in trial.generators]).strip().splitlines()
        trial.fail(f"users could not log in: {said[-1] if said else error}")
        return LabError(f"Users could not log in: {trial.reason}")
    trial.sessions = [session for session in told if isinstance(session, Session)]
    if refused := next((refusal for refusal in told if isinstance(refusal, Refusal)), None):
        problem, answered = (trial.masked(text.encode()).decode() for text in (refused.problem, refused.said))
        said_since = await _logged_since(trial, before)
        return trial.fail_with(not_logged_in(login, problem, answered, said_since, _folder_of(trial)))
    return None


async def ask_for_each_class(trial: Trial, say: Say) -> None:
    """Send a request of each class to somebody's own application, and say how each was answered.

    Raise LabError if it is not healthy, if users cannot log in, or if a class is not answered as it should be, with
    what it wrote.
    """
    if trial.outcome == "failed":
        raise _why_not_healthy(trial)
    if trial.login and (error := await log_in(trial)):
        raise error
    if trial.planned.load.script != USER_SERVICE:
        return
    workload, asked = trial.planned.variant.workload, trial.asked_classes
    answers, errors, remarks = dict[str, Answer](), list[LabError](), list[str]()
    for name, described in asked.items():
        before = await _logged(trial)
        secrets = {**(workload.secrets if workload else {}), **trial.user.by_word}
        answer = await ask(trial.front, described, secrets, of_user=trial.user.headers)
        answer = answers[name] = answer.without_secrets(trial.masked)
        if trial.reason:  # e.g. it needed more memory than its limit
            raise _why_not_healthy(trial)
        if not answer.is_meant(described):
            said = await _logged_since(trial, before)
            errors.append(not_meant(name, described, answer, said, trial.login, _folder_of(trial)))
        elif 300 <= answer.status < 400 and not described.expected_status:
            remarks.append(redirected(name, described, answer, trial.login))
        if not answer.status:
            break
    say("\n".join(["Each class, sent alone, with its status:", table_of(asked, answers), *remarks]))
    if errors:
        raise trial.fail_with(joined(errors, len(asked)))


async def _logged(trial: Trial) -> dict[str, str]:
    return {container.id: await trial.said_by(container) for container in trial.servers}


async def _logged_since(trial: Trial, before: Mapping[str, str]) -> str:
    """Return what the application has written since an earlier moment, and wait a little for it."""
    deadline = time.monotonic() + LOGGED_WITHIN_S
    while not (said := written_since(before, await _logged(trial))) and time.monotonic() < deadline:
        await asyncio.sleep(LOGGED_WITHIN_S / 10)
    return said


def written_since(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return what containers have written since an earlier moment, given all that each of them wrote."""
    return "".join(said[len(before.get(container, "")) :] for container, said in now.items())


def _why_not_healthy(trial: Trial) -> LabError:
    """Return the error that says why the application is not healthy as it is served today."""
    if trial.unhealthy:
        container, said = trial.unhealthy
        beside = container.service if container.service != trial.planned.variant.service else ""
        return not_healthy(said, container.probed, beside, _folder_of(trial))
    return LabError(f"Your application does not start as it is served today: {trial.reason or 'it failed'}")


def _folder_of(trial: Trial) -> Path | None:
    """Return the folder with somebody's own application; None: an image has it."""
    workload = trial.planned.variant.workload
    return workload.application if workload else None


def not_meant(
    name: str, described: OwnRequestClass, answer: Answer, said: str, login: Login | None = None,
    folder: Path | None = None,
) -> LabError:  # fmt: skip
    """Return the error for a class that is not answered as it should be, given what the application wrote for it.

    ``folder`` has the application; None: an image has it.
    """
    asked = f"{described.method} {described.path}, the class {name}"
    if answer.status == 0:
        reason = answer.problem.splitlines()[-1] if answer.problem else "nobody gave a reason"
        message = f"{asked}, is not answered when it is asked alone: {reason}."
    elif described.expected_status:
        expected = described.expected_status
        message = f"{asked}, is answered with status {answer.status}, but expected_status is {expected}."
    else:
        message = f"{asked}, is answered with status {answer.status} when it is asked alone, before any load."
    way_out = _WAYS_OUT.get(answer.status, _WAY_OUT)
    if _KILLED.search(said):
        message = (
            f"{asked}, takes longer than the server's timeout even when it is asked alone, so its worker was killed."
        )
        way_out = "Raise the server's timeout, ask for less, or leave requests.{name} out."
    parts = [
        *_hints(answer.body, said, folder),
        way_out.format(name=name, login=_way_in(login))
        + (f" If this is meant, write expected_status: {answer.status}." if answer.status else ""),
    ]
    return LabError(message, hint="\n".join(filter(None, parts)))


def _way_in(login: Login | None) -> str:
    """Return what to do about a request whose answer asks for a login, given the login of the file."""
    return f"{login.method} {login.path}, the login, was accepted, but does not count here." if login else WAY_TO_LOG_IN


def not_logged_in(login: Login, problem: str, answered: str, said: str, folder: Path | None = None) -> LabError:
    """Return the error for users who cannot log in: ``problem`` ends its sentence, ``said`` was written meanwhile."""
    asked = f"GET {login.path}, " if problem.startswith(_PAGE) else f"{login.method} {login.path}, the login, "
    parts = [
        *_hints(answered, said, folder),
        "A page whose form has hidden fields, such as a CSRF token, needs login.form in the place of login.body."
        if login.body and "status 403" in problem else "",
        "Correct login (path, form or body, headers, token), or what the application needs (environment, env_file, "
        "beside).",
    ]  # fmt: skip
    return LabError(f"{asked}{problem}.", hint="\n".join(filter(None, parts)))


_PAGE = "the page with the form"
"""How a problem begins that is about the page, as k6/lib/login.js says it."""


def _hints(body: str, said: str, folder: Path | None) -> list[str]:
    """Return what an application answered, if that is short text, what it wrote, and what follows from it."""
    text = " ".join(body.split())
    shown = text if len(text) <= MOST_BODY else f"{text[:MOST_BODY]} …"
    return [
        "" if not text or "\0" in text or "�" in text else f"The answer says: {shown}",
        f"For this request, the application wrote:\n{_last(said)}" if said.strip() else "It wrote nothing to its log.",
        *ways_out(f"{said}\n{body}", folder),
    ]


def not_healthy(said: str, probed: str, beside: str = "", folder: Path | None = None) -> LabError:
    """Return the error for a container that does not become healthy, given what it wrote and its health check said.

    ``beside`` is its service; empty: it has the application. ``folder`` is that of the application, unless it is in an
    image.
    """
    reason = (failure(said) if probed else cause(said)) or f"the health check says {probed.splitlines()[0]}"
    parts = [
        *ways_out(said, folder if beside in ("", BEFORE) else None),
        f"Its last lines:\n{_last(said)}" if said else "It wrote nothing to its log.",
        f"Its health check said:\n{_last(probed)}" if probed else "",
        "The health check asks for the path application.ready, if the file has it." if probed and not beside else "",
    ]
    what = "The command of application.before" if beside == BEFORE else beside or "Your application"
    fails = "fails" if beside == BEFORE else "does not start as it is served today"
    return LabError(f"{what} {fails}: {reason}", hint="\n".join(filter(None, parts)))


def table_of(asked: Mapping[str, OwnRequestClass], answers: Mapping[str, Answer]) -> str:
    """Return how a single request of each class was answered before any load, in lines of at most 80 columns."""
    rows = [(shortened(name, MOST_NAME), shortened(f"{asked[name].method} {asked[name].path}", MOST_REQUEST), answer)
            for name, answer in answers.items()]  # fmt: skip
    of_name, of_request = (max(map(len, column)) for column in ([row[0] for row in rows], [row[1] for row in rows]))
    return "\n".join(
        f"  {name:{of_name}}  {request:{of_request}}  {answer.status or 'none':>4}{answer.took_ms:7.0f} ms"
        for name, request, answer in rows
    )


def joined(errors: Sequence[LabError], of: int) -> LabError:
    """Return the error for all classes that are not answered as they should be, of so many classes."""
    if len(errors) == 1:
        return errors[0]
    message = f"{len(errors)} of {of} classes are not answered as they should be."
    return LabError(message, hint="\n\n".join(f"{error.message}\n{error.hint}" for error in errors))


def redirected(name: str, described: OwnRequestClass, answer: Answer, login: Login | None = None) -> str:
    """Return what to know of a class that is answered with a redirect, which k6 does not follow."""
    where = answer.location.removeprefix(answer.origin) or "another place"
    way_in = f" {_way_in(login)}" if any(word in where.lower() for word in _LOGIN) else ""
    if where.removeprefix("https") == answer.origin.removeprefix("http") + described.path:
        way_in = f" {WAY_TO_HTTPS}"
    asked = f"{described.method} {described.path}, the class {name}"
    return (f"{asked}, is answered with status {answer.status}, a redirect to {where}. "
            f"The load measures the redirect itself.{way_in}")  # fmt: skip


def _last(said: str) -> str:
    return "\n".join(f"  {line}" for line in said.strip().splitlines()[-LINES:])
