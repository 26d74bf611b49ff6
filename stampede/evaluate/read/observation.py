"""The state of a trial's containers before and after the load, as servers/observe printed it."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from stampede.records.folder import GENERATOR, OBSERVATIONS
from stampede.records.model import Model

if TYPE_CHECKING:  # loading NumPy would double the time of short commands
    from stampede.evaluate.read.lab_time import Clock

APP_PORTS = range(8000, 8064)
"""The ports at which servers listen: all workers at the first port, or each worker at a port of its own."""

WRITTEN, SENT = "bytes that processes wrote", "network interfaces"
"""The sections that the lab puts before the output of servers/observe."""
_SECTION = re.compile(r"^==> (.+) <==\n", re.MULTILINE)
_NS_PER_S = 1e9


class UnreadableObservation(Exception):
    """A file is cut short, or not from servers/observe or k6/run; the message names the file and the reason."""


class Observation(Model):
    """One container at one moment; None: the machine does not report it, or nobody asked. Counts begin at its start.

    ``counts`` has the counters of each worker by process id and name, if the server remembers them also of workers that
    have died. ``holds`` has the listening sockets of the server (inodes) that each living process has open. A balancer
    has handled ``balanced`` requests. ``stalls`` has the beginning and end of each stall of a called service, in epoch
    seconds. ``throttled_s`` is how long the CPU limit kept the container from
    computing, ``memory_mib`` leaves out the file cache, and ``out_of_memory`` counts processes that the kernel killed.
    A database has ``rows``, each named after the visit that wrote it, and the counters ``connections_max`` and
    ``connections_refused``. ``signals`` has the sums of servers/app/sampled.py, if the probe sits in the workers.
    ``written`` is how many bytes the processes wrote by write() (to files, to their output, and with some servers to
    connections), ``sent`` how many bytes the container sent.
    """

    host: str
    counts: dict[int, dict[str, int]]
    holds: dict[int, frozenset[int]]
    listen_overflows: int
    throttled_s: float | None
    out_of_memory: int | None
    balanced: int | None
    processor_s: float | None
    memory_mib: float | None
    stalls: tuple[tuple[float, float], ...] = ()
    rows: tuple[str, ...] | None = None
    database: dict[str, int] = Field({})
    signals: dict[str, int] = Field({})
    written: int | None = None
    sent: int | None = None

    @property
    def workers(self) -> set[int]:
        """The workers that are alive, by process id."""
        return self.counts.keys() & self.holds.keys()


class Container(Model):
    """One container of a trial, e.g. nginx-1, before and after the load. None: the container was not observed then."""

    name: str
    before: Observation | None
    after: Observation | None


class Reading(Model):
    """How long the load generator waited for a processor until ``at`` (epoch seconds), summed over its threads."""

    at: float
    waited_s: float


def read_containers(trial_folder: Path) -> tuple[Container, ...]:
    """Read all observations of a trial, ordered by container. Raise UnreadableObservation if a file makes no sense."""
    found: dict[str, dict[str, Observation | None]] = {}
    for path in sorted(path for pattern in OBSERVATIONS for path in trial_folder.glob(pattern)):
        name, when, _ = path.name.rsplit(".", 2)
        try:
            found.setdefault(name, {"before": None, "after": None})[when] = parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise UnreadableObservation(f"{path} is not an observation: {error}") from None
    return tuple(Container(name=name, **found[name]) for name in sorted(found))


def observed(containers: tuple[Container, ...]) -> Iterator[tuple[str, Observation, Observation]]:
    """Yield the name and the observations of each container that was observed before and after the load."""
    for each in containers:
        if each.before and each.after:
            yield each.name, each.before, each.after


def balanced(containers: tuple[Container, ...]) -> int | None:
    """Return how many requests the balancer handled during the load; None: no balancer was observed."""
    counts = ((before.balanced, after.balanced) for _, before, after in observed(containers))
    return next((after - before for before, after in counts if before is not None and after is not None), None)


def counted_by_worker(containers: tuple[Container, ...], name: str) -> dict[str, int]:
    """Return by how much each worker's (host:pid) counter ``name`` rose during the load, for workers that have it."""
    return {
        f"{after.host}:{worker}": counts[name] - before.counts.get(worker, {}).get(name, 0)
        for _, before, after in observed(containers)
        for worker, counts in after.counts.items()
        if name in counts
    }


def stalls_within(containers: tuple[Container, ...], began: float, ended: float) -> tuple[tuple[float, float], ...]:
    """Return the stalls that began and ended between two times (epoch seconds), in order."""
    told = [stall for container in containers if container.after for stall in container.after.stalls]
    return tuple(sorted(stall for stall in told if began <= stall[0] and stall[1] <= ended))


def stalls_by_lab_clock(containers: tuple[Container, ...], of_hosts: "Mapping[str, Clock]") -> tuple[Container, ...]:
    """Return the containers with the times of their stalls by the lab's clock, given the clock of each host."""

    def corrected(container: Observation | None) -> Observation | None:
        if container is None or not container.stalls or container.host not in of_hosts:
            return container
        clock = of_hosts[container.host]
        stalls = tuple((clock.corrected(began), clock.corrected(ended)) for began, ended in container.stalls)
        return container.model_copy(update={"stalls": stalls})

    return tuple(
        container.model_copy(update={"before": corrected(container.before), "after": corrected(container.after)})
        for container in containers
    )


def database_of(containers: tuple[Container, ...]) -> tuple[Observation | None, Observation, tuple[str, ...]] | None:
    """Return a trial's database before and after the load, and its rows; None: it was not observed after the load."""
    for container in containers:
        if container.after and container.after.rows is not None:
            return container.before, container.after, container.after.rows
    return None


def read_generators(
    trial_folder: Path, of_generators: "Mapping[str, Clock] | None" = None
) -> tuple[tuple[Reading, ...], ...]:
    """Read what the k6/run of each load generator wrote every second; a k6 that ended at once has no readings.

    ``of_generators``: if there are several machines, the clock of each generator, by the name of its file of points.
    Raise UnreadableObservation if a file makes no sense.
    """
    found = []
    for path in sorted(trial_folder.glob(GENERATOR)):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            readings = [(float(at), int(waited) / _NS_PER_S) for at, waited in map(str.split, lines)]
        except (OSError, ValueError) as error:
            raise UnreadableObservation(f"{path} cannot be read: {error}") from None
        clock = (of_generators or {}).get(path.stem.replace("k6-processor", "points"))
        found.append(tuple(Reading(at=clock.corrected(at) if clock else at, waited_s=s) for at, s in readings))
    return tuple(found)


def parse(text: str) -> Observation:
    """Return the observation that a text describes. Raise ValueError, KeyError or IndexError if it is unreadable."""
    parts = _SECTION.split(text)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    listening = {
        int(inode)
        for port, inode in map(str.split, _lines(sections, "listening sockets: port in hexadecimal, inode"))
        if int(port, 16) in APP_PORTS
    }
    holds: dict[int, set[int]] = {}
    for folder, *sockets in map(str.split, _lines(sections, "sockets of processes")):
        held = holds.setdefault(int(folder.split("/")[2]), set())
        for socket in sockets:  # none, if the process closed the socket before find could print its name
            if (inode := int(socket.removeprefix("socket:[").removesuffix("]"))) in listening:
                held.add(inode)
    names, values = (line.split() for line in _lines(sections, "TcpExt"))
    told = map(str.split, sections.get("stalls", "").strip().splitlines())
    stalls = [(float(began), float(ended)) for began, ended in told]
    for began, ended in stalls:
        if not 0 <= began <= ended < math.inf:
            raise ValueError(f"a stall has no sound beginning and end: {began:g} {ended:g}")
    written = [int(line.split()[-1]) for line in sections.get(WRITTEN, "").splitlines()]  # wchar: BYTES, by process
    interfaces = [line.partition(":") for line in sections.get(SENT, "").splitlines()]  # as proc_pid_net(5) says
    sent = [int(counts.split()[8]) for name, colon, counts in interfaces if colon and name.strip() != "lo"]
    accounted = sections.get("/sys/fs/cgroup/cpuacct/cpuacct.usage")  # version 1
    # missing if the control group has no CPU controller, or of a kernel before 4.13, which does not count who is killed
    throttled = ("cpu.stat", "throttled_usec", 1e6), ("cpu/cpu.stat", "throttled_time", _NS_PER_S)
    killed = _cgroup_count(sections, ("memory.events", "oom_kill", 1), ("memory/memory.oom_control", "oom_kill", 1))
    anonymous = ("memory.stat", "anon", 2**20), ("memory/memory.stat", "rss", 2**20)
    used_s = int(accounted) / _NS_PER_S if accounted else _cgroup_count(sections, ("cpu.stat", "usage_usec", 1e6))
    return Observation(
        host=sections["/etc/hostname"].strip(),
        counts={
            int(name.removeprefix("worker ")): {what: int(count) for what, count in _pairs(section).items()}
            for name, section in sections.items()
            if name.startswith("worker ")
        },
        holds={process: frozenset(inodes) for process, inodes in holds.items()},
        listen_overflows=int(dict(zip(names, values, strict=True))["ListenOverflows"]),
        throttled_s=_cgroup_count(sections, *throttled),
        out_of_memory=None if killed is None else int(killed),
        balanced=int(_pairs(sections["balancer"])["served"]) if "balancer" in sections else None,
        processor_s=used_s,
        memory_mib=_cgroup_count(sections, *anonymous),
        stalls=tuple(stalls),
        rows=tuple(sections["rows"].splitlines()) if "rows" in sections else None,  # an empty line is a row, too
        database={name: int(count) for name, count in _pairs(sections.get("database", "")).items()},
        signals={name: int(count) for name, count in _pairs(sections.get("signals", "")).items()},
        written=sum(written) if written else None,
        sent=sum(sent) if sent else None,
    )


def _lines(sections: dict[str, str], name: str) -> list[str]:
    return sections[name].strip().splitlines()


def _pairs(section: str) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in section.strip().splitlines())


def _cgroup_count(sections: dict[str, str], *places: tuple[str, str, float]) -> float | None:
    """Return what a control group counts, divided by its unit: a file, a name in it and a unit for each version."""
    for file, name, unit in places:
        if count := _pairs(sections.get(f"/sys/fs/cgroup/{file}", "")).get(name):
            return int(count) / unit
    return None
