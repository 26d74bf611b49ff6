"""Ask the containers of a trial for their settings, their counters and their logs, and keep the answers."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stampede.docker.client import DockerError
from stampede.docker.containers import ContainerInfo, is_generator
from stampede.evaluate.read.observation import SENT, WRITTEN
from stampede.records.folder import write_whole
from stampede.records.run import ContainerLog
from stampede.servers.base import BESIDE

OBSERVED_WITHIN_S = 60
"""How long a container may take to answer: a database that hangs never answers."""
_OBSERVE = (
    f"echo '==> {WRITTEN} <=='; cat /proc/[0-9]*/io 2> /dev/null | grep wchar; "
    f"echo '==> {SENT} <=='; cat /proc/net/dev; exec timeout {OBSERVED_WITHIN_S} observe"
)


async def observe(
    containers: Iterable[ContainerInfo],
    part: Path,
    moment: Literal["before", "after"],
    masked: Callable[[bytes], bytes],
) -> dict[str, str]:
    """Ask every container except the load generators for its settings and counters; see servers/observe.

    Return the settings by the name of the container. ``masked`` removes secrets from a text. A container that does not
    answer leaves no observation, which makes the trial suspect or invalid.
    """
    found: dict[str, str] = {}

    async def ask(container: ContainerInfo) -> None:
        with suppress(DockerError):
            said = await container.execute("sh", "-c", _OBSERVE)
            counts, last_section, settings = said.partition("==> settings <==\n")
            if last_section:  # else an interrupt has cut the output short
                settings = masked(settings.encode()).decode()
                write_whole(part / f"{container.name}.{moment}.txt", f"{counts}{last_section}{settings}\n")
                found[container.name] = settings

    asked = (each for each in containers if not is_generator(each.service) and not each.service.startswith(BESIDE))
    await asyncio.gather(*(ask(container) for container in asked if container.status == "running"))
    return found


@dataclass(frozen=True)
class LogStart:
    """The first line of a log before the load, with its time, and how many bytes the log had then, without times."""

    line: bytes
    size: int


async def log_starts(containers: Sequence[ContainerInfo]) -> dict[str, LogStart]:
    """Return how the log of each container except the load generators begins, by the id of the container."""
    found: dict[str, LogStart] = {}

    async def look(container: ContainerInfo) -> None:
        with suppress(DockerError):
            lines = (await container.output(with_times=True)).splitlines(keepends=True)
            size = sum(len(line.partition(b" ")[2]) for line in lines)
            found[container.id] = LogStart(b"".join(lines[:1]), size)

    await asyncio.gather(*(look(container) for container in containers if not is_generator(container.service)))
    return found


def log_record(said: bytes, with_times: bytes, before: LogStart) -> ContainerLog:
    """Return how much of a log the engine still has, given its text without and with the times of its lines.

    The engine drops the beginning of a log that becomes too long. If a container had written nothing before the load,
    nobody knows whether the engine dropped something.
    """
    cut = bool(before.line) and not with_times.startswith(before.line)
    return ContainerLog(kept=len(said), before=before.size, cut=cut)
