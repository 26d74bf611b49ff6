"""The services that somebody's own application needs beside it, such as a database, from a Compose file of its own."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stampede.docker.client import HERE, MISSING, DockerError
from stampede.errors import WrongUse
from stampede.servers.base import BESIDE
from stampede.typed import typed

BESIDE_PROJECT = "stampede-beside"
"""The Compose project that builds the images of the services beside an application."""
MIB = 512
"""The memory of a service that states no limit."""
_KEPT = ("command", "entrypoint", "healthcheck", "user", "working_dir", "tmpfs", "shm_size", "init", "stop_signal")
"""What a service keeps of its description. Its ports and networks are the lab's; its data lasts for one trial."""
_READ = (*_KEPT, "image", "build", "environment", "volumes", "secrets", "configs", "mem_limit", "deploy", "depends_on")
_OF_NO_MATTER = ("container_name", "expose", "hostname", "labels", "logging", "networks", "ports", "profiles",
                 "pull_policy", "restart", "stop_grace_period")  # fmt: skip
_TIMES = ("interval", "timeout", "start_period", "start_interval")
_DATA = ("/var/lib", "/data")
"""Where images have their data, which is new in each trial, so nothing is mounted there."""
_SECRET = re.compile(r"PASS|SECRET|TOKEN|KEY", re.IGNORECASE)


@dataclass(frozen=True)
class ServicesBeside:
    """Services beside the application: as Compose takes them, with variables in the place of ``values``.

    ``secrets`` are those of the values that no file of a run may have. ``builds`` has the images that ``file``, the
    Compose file of the application, says how to build, by their names in this file. ``left_out`` is what the file says
    and the lab does not do, such as ``db: cap_add``.
    """

    services: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    file: Path = Path()
    builds: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()


def read_beside(file: Path, names: Sequence[str]) -> ServicesBeside:
    """Read services from a Compose file. Raise WrongUse if Compose cannot read the file, or if a service is missing."""
    file = file.resolve()
    try:
        said = HERE.run("compose", "--file", str(file), "--project-name", BESIDE_PROJECT, "--project-directory",
                        str(file.parent), "--profile", "*", "config", "--format", "json")  # fmt: skip
    except DockerError as error:
        if error.exit_code == MISSING:
            raise WrongUse("beside.compose: Docker's client is missing on this machine.", hint=typed("setup")) from None
        raise WrongUse(f"beside.compose: {file.name} cannot be read: {error}") from None
    resolved: Mapping[str, Any] = json.loads(said)
    described: Mapping[str, Mapping[str, Any]] = resolved["services"]
    values: dict[str, str] = {}
    services, builds, secrets = {}, {}, {}
    for name in names:
        if name not in described:
            there = ", ".join(sorted(described))
            raise WrongUse(f"beside.services: {file.name} has no service {name}; it has {there}.")
        says = described[name]
        image = says.get("image") or f"{BESIDE_PROJECT}-{name}"
        if "build" in says:
            builds[name] = image
        kept = {key: says[key] for key in _KEPT if says.get(key) is not None}
        check = kept.get("healthcheck") or {}
        if check.get("disable") or not check.get("test", True) or check.get("test") in ("NONE", ["NONE"]):
            kept.pop("healthcheck", None)
        environment = {key: str(value) for key, value in (says.get("environment") or {}).items() if value}
        secrets |= {key: value.replace("$$", "$") for key, value in environment.items() if _SECRET.search(key)}
        limits = (says.get("deploy") or {}).get("resources", {}).get("limits", {})
        size = str(max(6 * 2**20, int(says.get("mem_limit") or limits.get("memory") or MIB * 2**20)))
        after = {other: condition for other, condition in (says.get("depends_on") or {}).items() if other in names}
        services[f"{BESIDE}{name}"] = {
            **hidden(kept, values),
            "image": image,
            "environment": {key: hidden(value, values) for key, value in environment.items()},
            "volumes": [
                {"type": "bind", "source": hidden(source, values), "target": target, "read_only": True}
                for source, target in _files(says, resolved, file.parent)
            ],
            "depends_on": {f"{BESIDE}{other}": condition for other, condition in after.items()},
            "mem_limit": size, "memswap_limit": size, "pids_limit": 2048,
            "networks": {"lab": {"aliases": [name]}},
        }  # fmt: skip
    left_out = [f"{name}: {key}" for name in names for key, value in sorted(described[name].items())
                if value and key not in (*_READ, *_OF_NO_MATTER)]  # fmt: skip
    return ServicesBeside(services, values, secrets, file, builds, left_out)


def hidden(value: Any, by_variable: dict[str, str]) -> Any:  # noqa: ANN401  # any JSON value
    """Return a value in which variables stand for all texts that may have been made with a secret."""
    if isinstance(value, dict):
        return {key: item if key in _TIMES else hidden(item, by_variable) for key, item in value.items()}
    if isinstance(value, list):
        return [hidden(item, by_variable) for item in value]
    if not isinstance(value, str):
        return value
    name = f"LAB_BESIDE_{len(by_variable)}"
    by_variable[name] = value.replace("$$", "$")  # Compose doubles each $ in what it prints
    return f"${{{name}:-}}"


def _files(described: Mapping[str, Any], resolved: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the files of the application's folder that a service mounts, to be read only, and where. No volumes."""
    for mount in described.get("volumes") or ():
        target = str(mount["target"])
        inside = mount.get("type") == "bind" and Path(mount["source"]).is_relative_to(folder)
        if inside and not target.startswith(_DATA):
            yield mount["source"], target
    for kind, place in (("secrets", "/run/secrets/"), ("configs", "/")):
        for used in described.get(kind) or ():
            if source := resolved.get(kind, {}).get(used["source"], {}).get("file"):
                target = str(used.get("target") or used["source"])
                yield source, target if target.startswith("/") else place + target
