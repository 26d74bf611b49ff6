"""Ask the containers of a trial for their settings and counters, and keep the answers in the trial's folder."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Literal

from python_on_whales.exceptions import DockerException

from stampede.docker.containers import ContainerInfo
from stampede.evaluate.read.observation import SENT, WRITTEN
from stampede.records.folder import write_whole
from stampede.servers.workload import BESIDE

OBSERVED_WITHIN_S = 60
"""How long a container may take to answer: a database that hangs never answers."""
_OBSERVE = (
    f"echo '==> {WRITTEN} <=='; cat /proc/[0-9]*/io 2> /dev/null | grep wchar; "
    f"echo '==> {SENT} <=='; cat /proc/net/dev; exec timeout {OBSERVED_WITHIN_S} observe"
)


def observe(
    containers: Sequence[ContainerInfo],
    part: Path,
    moment: Literal["before", "after"],
    masked: Callable[[bytes], bytes],
) -> dict[str, str]:
    """Ask every container except the load generators for its settings and counters; see servers/observe.

    Return the settings by the name of the container. ``masked`` removes secrets from a text. A container that does not
    answer leaves no observation, which makes the trial suspect or invalid.
    """
    found: dict[str, str] = {}

    def ask(container: ContainerInfo) -> None:
        if container.is_generator or container.service.startswith(BESIDE) or container.state.status != "running":
            return
        with suppress(DockerException):
            said = container.execute(["sh", "-c", _OBSERVE])
            counts, last_section, settings = said.partition("==> settings <==\n")
            if last_section:  # else an interrupt has cut the output short
                settings = masked(settings.encode()).decode()
                write_whole(part / f"{container.name}.{moment}.txt", f"{counts}{last_section}{settings}\n")
                found[container.name] = settings

    with ThreadPoolExecutor() as pool:
        list(pool.map(ask, containers))
    return found


def keep_who_served(containers: Sequence[ContainerInfo], service: str, part: Path) -> None:
    """Keep what stampede-probe has noted in somebody's own application; see servers/user-service/stampede_own.py."""
    for container in containers:
        if container.service == service and container.state.status == "running":
            said = container.execute(["sh", "-c", "cat /tmp/served/* || true"])
            write_whole(part / f"served-{container.name}.csv", f"{said}\n" if said else "")
