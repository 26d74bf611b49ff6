"""Say why a trial failed, from what its containers wrote and from the limits that they reached."""

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from stampede.docker.commands import meaning_of
from stampede.docker.containers import ContainerInfo
from stampede.plan import PlannedTrial
from stampede.records.run import REPLAY, USER_SERVICE
from stampede.servers.base import BESIDE


class TrialFailed(Exception):
    """A step of a trial failed; the message says why."""


def last_lines(container: ContainerInfo, said: str) -> str:
    """Return the last lines of what a container that is not healthy has written, and of its health check."""
    lines = said.splitlines()
    if container.probed:
        lines.append(f"the health check last said: {container.probed}")
    where = f" on {container.machine.name}" if container.machine.name else ""
    return f"{container.service}{where} said:\n" + "\n".join(lines[-8:])


def end_reason(service: str, exit_code: int) -> str:
    """Return that a service ended during the load, and what its exit code means if a lack of the processor ended it."""
    meaning = f": {meaning_of(exit_code)}" if exit_code == 128 + signal.SIGILL else ""
    return f"{service} ended during the load with exit code {exit_code}{meaning}"


_OF_GUNICORN = {3: "a worker could not start", 4: "a worker could not load the application"}
"""What gunicorn's own exit codes mean."""


def own_end_reason(service: str, server: str, exit_code: int, after_s: float, said: str) -> str:
    """Return when the whole server of somebody's own service ended, with which exit code, and what it wrote at last.

    ``service`` is its name in docker-compose.yml, and ``server`` is its program. The last lines are indented.
    """
    meaning = meaning_of(exit_code) or (_OF_GUNICORN.get(exit_code, "") if server == "gunicorn" else "")
    lines = "".join(f"\n  {line}" for line in said.strip().splitlines()[-8:])
    return (
        f"the whole server ({server}, in the container {service}) ended {after_s:.1f} s after the load began, with "
        f"exit code {exit_code}{f' ({meaning})' if meaning else ''}.\n"
        + (f"Its last lines:{lines}" if lines else "It wrote nothing to its log.")
    )


def unhealthy_containers(containers: Sequence[ContainerInfo], front: str) -> list[ContainerInfo]:
    """Return the containers that have started and are not healthy.

    The front comes last, because a balancer only waits for the servers.
    """
    found = [each for each in containers if each.status != "created" and each.health != "healthy"]
    return sorted(found, key=lambda container: container.service == front)


def memory_limit_reason(trial: PlannedTrial, service: str, limit_mib: int) -> str:
    """Return which container reached its memory limit, and what sets this limit."""
    if service == trial.variant.service:
        own = trial.load.script in (USER_SERVICE, REPLAY)
        setting = "which served.memory_mib sets" if own else "which the variant's memory_mib sets"
    elif service.startswith(BESIDE):
        setting = "which mem_limit of this service in your Compose file sets"
    elif service.partition("-")[0] == "k6":
        names = "users" if trial.load.classes else ", ".join(dict.fromkeys(trial.load.declared.users))
        setting = f"which stampede/experiment/loads/script.py computes from {names}, the rate and the duration"
    else:
        setting = f"which mem_limit of {service} in docker-compose.yml sets"
    return f"{service} needed more memory than its limit of {limit_mib} MiB, {setting}"


def last_error(part: Path, service: str) -> str:
    """Return the last error in the logs of a service in a trial's folder, or else its last line."""
    lines = _said(part, service)
    errors = [line for line in lines if "level=error" in line]
    return _message((errors or lines or ["it wrote nothing"])[-1])


def script_exception(part: Path) -> str | None:
    """Return the first exception of a load script; None: no script threw."""
    found = [line for line in _said(part, "k6") if "level=error" in line and "source=stacktrace" in line]
    return _message(found[0]) if found else None


def _said(part: Path, service: str) -> list[str]:
    logs = sorted(part.glob(f"{service}-*.log"))
    return [line for log in logs for line in log.read_text(errors="replace").strip().splitlines()]


def _message(line: str) -> str:
    """Return the message in one line of k6's log, without its stack trace."""
    found = re.search(r'msg="(.*?)(?:\\n|"(?: |$))', line)
    return (found[1] if found else line)[:300]
