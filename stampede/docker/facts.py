"""What the container engine says of itself: its program, its machine, and the limits that it enforces."""

import json
import os
import shutil
from dataclasses import dataclass
from typing import Any

from stampede.docker.client import HERE, DockerError
from stampede.paths import ROOT

TRIED = ROOT / "docs" / "reference" / "tried.json"
PLATFORM = "DOCKER_DEFAULT_PLATFORM"
"""The variable with which every command of Docker chooses the system and the processor that images are for."""
_SAME = {"amd64": "x86_64", "arm64": "aarch64"}
"""What engines call the processors of platforms."""
_EMULATED = " emulated"
_LIMITS = {
    "MemoryLimit": "memory",
    "SwapLimit": "swap",
    "CpuCfsQuota": "processor time",
    "CPUSet": "the choice of cores",
    "PidsLimit": "the number of processes",
}
"""The limits that the lab sets, in words, by the key with which an engine says whether it enforces them."""


@dataclass(frozen=True)
class EngineFacts:
    """An engine and the machine on which its containers run, which is called ``machine``.

    ``cgroups`` is the version of control groups. ``unenforced`` has the limits that the engine accepts and does not
    enforce, in words. ``architecture`` is that of the containers. ``containerd``: the engine
    keeps its images in containerd's store.
    """

    name: str
    version: str
    machine: str
    system: str
    architecture: str
    cores: int
    memory_mib: int
    cgroups: str
    rootless: bool
    containerd: bool
    unenforced: tuple[str, ...]

    @property
    def emulates(self) -> bool:
        """Whether the containers run on an emulated processor."""
        return self.architecture.endswith(_EMULATED)

    @property
    def kind(self) -> str:
        """What must be the same for two machines to count as the same combination."""
        engine = f"{self.name} {self.version.partition('.')[0]}" + self.containerd * " with containerd's images"
        rights = "rootless" if self.rootless else "root" if os.geteuid() == 0 else "an ordinary user"
        return f"{engine}, cgroups {self.cgroups}, {self.architecture}, {rights}"


_told: dict[tuple[str | None, ...], EngineFacts] = {}
"""What engines have said, by the client that asked and the variables with which it chooses an engine."""


def ask_engine() -> EngineFacts | None:
    """Return what the engine says of itself, which it is asked only once; None if no engine answers."""
    chosen = (shutil.which("docker"), *map(os.environ.get, ("DOCKER_HOST", "DOCKER_CONTEXT", PLATFORM)))
    if chosen in _told:
        return _told[chosen]
    try:
        told = HERE.info()
    except (DockerError, ValueError):
        return None
    if not told.get("ServerVersion"):
        return None
    components = HERE.told("version", "--format", "{{range .Server.Components}}{{.Name}},{{end}}")
    of_machine = str(told.get("Architecture", ""))
    asked = os.environ.get(PLATFORM, "").removeprefix("linux/")
    _told[chosen] = EngineFacts(
        name="Podman" if "Podman" in components else "Docker",
        version=str(told["ServerVersion"]),
        machine=str(told.get("Name", "")),
        system=str(told.get("OperatingSystem", "")),
        architecture=asked + _EMULATED if asked and _SAME.get(asked, asked) != of_machine else of_machine,
        cores=int(told.get("NCPU", 0)),
        memory_mib=int(told.get("MemTotal", 0)) // 2**20,
        cgroups=str(told.get("CgroupVersion", "1")),
        rootless=any("rootless" in each for each in told.get("SecurityOptions") or []),
        containerd="io.containerd.snapshotter" in json.dumps(told.get("DriverStatus")),
        unenforced=tuple(words for key, words in _LIMITS.items() if told.get(key) is False),
    )
    return _told[chosen]


def combinations() -> list[dict[str, Any]]:
    """Return the combinations of engine, control groups, processor and rights on which the lab was tried.

    Without its documents, the lab knows none. Each has its ``kind``, ``date``, ``engine``, ``system``, what ``ran``
    with its result, and what was ``wrong``.
    """
    found: list[dict[str, Any]] = json.loads(TRIED.read_text(encoding="utf-8")) if TRIED.exists() else []
    return found


def tried(kind: str) -> str:
    """Return in words when the lab was last tried on such a machine."""
    found = [each for each in combinations() if each["kind"] == kind]
    return f"{kind}: tried on {max(each['date'] for each in found)}" if found else f"{kind}: not tried"
