"""The logs of a trial's containers: how much of them is kept, and whether the engine has dropped their beginning."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from python_on_whales.exceptions import DockerException

from stampede.docker.containers import ContainerInfo, first_line_of, output_of
from stampede.evaluate.metrics.servers import cut_logs
from stampede.evaluate.read.observation import read_containers
from stampede.records.run import ContainerLog


@dataclass(frozen=True)
class LogStart:
    """The first line of a log before the load, with its time, and how many bytes the log had then."""

    line: bytes
    size: int


def log_starts(containers: Sequence[ContainerInfo]) -> dict[str, LogStart]:
    """Return how the log of each container except the load generators begins, by the id of the container."""

    def look(container: ContainerInfo) -> tuple[str, LogStart] | None:
        try:
            return container.id, LogStart(first_line_of(container), len(output_of(container)))
        except DockerException:
            return None

    with ThreadPoolExecutor() as pool:
        return dict(filter(None, pool.map(look, [container for container in containers if not container.is_generator])))


def log_record(said: bytes, first_line: bytes, before: LogStart) -> ContainerLog:
    """Return how much of a log the engine still has, given its text and its first line with the time.

    The engine drops the beginning of a log that becomes too long. If a container had written nothing before the load,
    nobody knows whether the engine dropped something.
    """
    return ContainerLog(kept=len(said), before=before.size, cut=bool(before.line) and first_line != before.line)


def note_cuts(part: Path, logs: Mapping[str, ContainerLog]) -> None:
    """Put a line before each log in a trial's folder that lacks its beginning: how much of how much is there."""
    if not any(log.cut for log in logs.values()):
        return
    written = {container.name: container.after.written for container in read_containers(part) if container.after}
    for name, there in cut_logs(logs, written).items():
        path = part / f"{name}.log"
        notice = f"==> The beginning of this log is missing: {there} follow. <==\n"
        path.write_bytes(notice.encode() + path.read_bytes())
