"""What the containers of a trial said of themselves before and after the load: servers/observe, read."""

import re
from pathlib import Path

from analysis.quantities import Model

APP_PORT = 8000
"""Where every server listens."""

OBSERVATIONS = ("*.before.txt", "*.after.txt")
GENERATOR = "k6-processor.txt"
"""The files of a trial's folder that are read here."""

_SECTION = re.compile(r"^==> (.+) <==\n", re.MULTILINE)
_NS_PER_S = 1e9


class UnreadableObservation(Exception):
    """An observation that is cut short or not ours; the message says which file and what is wrong."""


class Observation(Model):
    """One container at one moment. Counts run from its start.

    ``served`` is the server's own count of requests by process id of the worker, dead workers included; ``holds`` says
    which listening sockets of the server (inodes) each living process has open. ``nginx_served`` is None where there
    is no nginx.
    """

    host: str
    served: dict[int, int]
    holds: dict[int, frozenset[int]]
    listen_overflows: int
    throttled_s: float
    out_of_memory: int
    nginx_served: int | None

    @property
    def workers(self) -> set[int]:
        """The workers that are alive."""
        return self.served.keys() & self.holds.keys()


class Container(Model):
    """One container of a trial, e.g. nginx-1, before and after the load. None: it was not there to be asked."""

    name: str
    before: Observation | None
    after: Observation | None


class Reading(Model):
    """How long the load generator waited for a processor until ``at`` (epoch seconds), summed over its threads."""

    at: float
    waited_s: float


def read_containers(trial_folder: Path) -> tuple[Container, ...]:
    """Read all observations of a trial, ordered by container. Raise UnreadableObservation when one makes no sense."""
    names = {path.name.rsplit(".", 2)[0] for when in ("before", "after") for path in trial_folder.glob(f"*.{when}.txt")}
    return tuple(
        Container(name=name, **{when: _read(trial_folder / f"{name}.{when}.txt") for when in ("before", "after")})
        for name in sorted(names)
    )


def read_generator(trial_folder: Path) -> tuple[Reading, ...]:
    """Read what k6/run wrote down every second; nothing when k6 ended at once."""
    path = trial_folder / GENERATOR
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        readings = [(float(at), int(waited)) for at, waited in map(str.split, lines)]
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise UnreadableObservation(f"{path} cannot be read: {error}") from None
    return tuple(Reading(at=at, waited_s=waited / _NS_PER_S) for at, waited in readings)


def parse(text: str) -> Observation:
    """Return what the text of an observation says. Raise ValueError or KeyError when it is not one."""
    parts = _SECTION.split(text)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    listening = {
        int(inode)
        for port, inode in map(str.split, _lines(sections, "listening sockets: port in hexadecimal, inode"))
        if int(port, 16) == APP_PORT
    }
    holds: dict[int, set[int]] = {}
    for folder, socket in map(str.split, _lines(sections, "sockets of processes")):
        held = holds.setdefault(int(folder.split("/")[2]), set())
        if (inode := int(socket.removeprefix("socket:[").removesuffix("]"))) in listening:
            held.add(inode)
    names, values = (line.split() for line in _lines(sections, "TcpExt"))
    return Observation(
        host=sections["/etc/hostname"].strip(),
        served={
            int(name.removeprefix("worker ")): int(_pairs(section)["served"])
            for name, section in sections.items()
            if name.startswith("worker ")
        },
        holds={process: frozenset(inodes) for process, inodes in holds.items()},
        listen_overflows=int(dict(zip(names, values, strict=True))["ListenOverflows"]),
        throttled_s=_throttled_s(sections),
        out_of_memory=_out_of_memory(sections),
        nginx_served=_nginx_served(sections["nginx"]) if "nginx" in sections else None,
    )


def _read(path: Path) -> Observation | None:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise UnreadableObservation(f"{path} is not an observation: {error}") from None


def _lines(sections: dict[str, str], name: str) -> list[str]:
    return sections[name].strip().splitlines()


def _pairs(section: str) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in section.strip().splitlines())


def _throttled_s(sections: dict[str, str]) -> float:
    """Return how long the container was kept from computing by its limit; a container without limit has no count."""
    if "/sys/fs/cgroup/cpu.stat" in sections:
        return int(_pairs(sections["/sys/fs/cgroup/cpu.stat"]).get("throttled_usec", "0")) / 1e6
    if "/sys/fs/cgroup/cpu/cpu.stat" in sections:
        return int(_pairs(sections["/sys/fs/cgroup/cpu/cpu.stat"])["throttled_time"]) / _NS_PER_S
    return 0.0


def _out_of_memory(sections: dict[str, str]) -> int:
    for name in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        if name in sections:
            return int(_pairs(sections[name]).get("oom_kill", "0"))
    return 0


def _nginx_served(status: str) -> int:
    found = re.search(r"^ *\d+ \d+ (\d+)", status, re.MULTILINE)
    if not found:
        raise ValueError("nginx did not say how many requests it served")
    return int(found[1])
