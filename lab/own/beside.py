"""The services that somebody's own application needs beside it, such as a database, from a Compose file of its own."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from python_on_whales import DockerClient
from python_on_whales.exceptions import DockerException

from lab.errors import WrongUse
from lab.machine.engine import last_line
from lab.servers.base import BESIDE, Beside

PROJECT = "stampede-beside"
MIB = 512
"""The memory of a service that states no limit."""
_KEPT = ("command", "entrypoint", "healthcheck", "user", "working_dir", "tmpfs", "shm_size", "init", "stop_signal")
"""What a service keeps of its description. Its ports and networks are the lab's; its data lasts for one trial."""
_SECRET = re.compile(r"PASS|SECRET|TOKEN|KEY", re.IGNORECASE)


def read_beside(file: Path, names: Sequence[str]) -> Beside:
    """Read services from a Compose file. Raise WrongUse if Compose cannot read the file, or if a service is missing."""
    try:
        resolved = DockerClient(
            compose_files=[file], compose_project_name=PROJECT, compose_project_directory=file.parent,
            compose_profiles=["*"],
        ).compose.config(return_json=True)["services"]  # fmt: skip
    except DockerException as error:
        raise WrongUse(f"beside.compose: {file.name} cannot be read: {last_line(error)}") from None
    services: dict[str, dict[str, Any]] = {}
    values: dict[str, str] = {}
    secrets: dict[str, str] = {}
    builds: dict[str, str] = {}

    def variable(value: str) -> str:
        """Return a variable for a value that no record of a run may have."""
        name = f"LAB_BESIDE_{len(values)}"
        values[name] = value
        return f"${{{name}:-}}"

    for name in names:
        if name not in resolved:
            raise WrongUse(f"beside.services: {file.name} has no service {name}; it has {', '.join(sorted(resolved))}.")
        described = resolved[name]
        environment = _environment(described)
        secrets |= {key: value for key, value in environment.items() if value and _SECRET.search(key)}
        image = described.get("image") or f"{PROJECT}-{name}"
        if "build" in described:
            builds[name] = image
        mib = max(6, int(described.get("mem_limit") or MIB * 2**20) // 2**20)
        services[f"{BESIDE}{name}"] = {
            **{key: described[key] for key in _KEPT if described.get(key) is not None},
            "image": image, "environment": {key: variable(value) for key, value in environment.items()},
            "volumes": [
                {"type": "bind", "source": variable(source), "target": target, "read_only": True}
                for source, target in _mounts(described, file.parent)
            ],
            "mem_limit": str(mib * 2**20), "memswap_limit": str(mib * 2**20), "pids_limit": 2048,
            "networks": {"lab": {"aliases": [name]}},
        }  # fmt: skip
    return Beside(services, values, secrets, file, builds)


def _environment(described: Mapping[str, Any]) -> dict[str, str]:
    """Return a service's variables. Compose doubles each $ in what it prints."""
    found = described.get("environment") or {}
    return {key: str(value).replace("$$", "$") for key, value in found.items() if value is not None}


def _mounts(described: Mapping[str, Any], folder: Path) -> list[tuple[str, str]]:
    """Return the files of the application's folder that a service mounts, to be read only. Volumes are left out."""
    return [
        (mount["source"], mount["target"])
        for mount in described.get("volumes", ())
        if mount.get("type") == "bind" and Path(mount["source"]).is_relative_to(folder)
    ]
