"""The services that somebody's own application needs beside it, such as a database, from a Compose file of its own."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stampede.docker.client import HERE, MISSING, DockerError
from stampede.errors import WrongUse
from stampede.servers.workload import BESIDE
from stampede.service.layer import BESIDE_PROJECT, ServicesBeside
from stampede.typed import typed

MIB = 512
"""The memory of a service that states no limit."""
_KEPT = ("command", "entrypoint", "healthcheck", "user", "working_dir", "tmpfs", "shm_size", "init", "stop_signal")
"""What a service keeps of its description. Its ports and networks are the lab's; its data lasts for one trial."""
_READ = (*_KEPT, "image", "build", "environment", "volumes", "secrets", "configs", "mem_limit", "deploy", "depends_on")
_OF_NO_MATTER = ("container_name", "expose", "hostname", "labels", "logging", "networks", "ports", "profiles",
                 "pull_policy", "restart", "stop_grace_period")  # fmt: skip
_DATA = ("/var/lib", "/data")
"""Where images have their data, which is new in each trial, so nothing is mounted there."""
_SECRET = re.compile(r"PASS|SECRET|TOKEN|KEY", re.IGNORECASE)


def read_beside(file: Path, names: Sequence[str]) -> ServicesBeside:
    """Read services from a Compose file. Raise WrongUse if Compose cannot read the file, or if a service is missing."""
    file = file.resolve()
    resolved = _resolve(file)
    described: Mapping[str, Mapping[str, Any]] = resolved["services"]
    for name in names:
        if name not in described:
            there = ", ".join(sorted(described))
            raise WrongUse(f"beside.services: {file.name} has no service {name}; it has {there}.")
    values = _Values()
    services = {}
    for name in names:
        mounts = _files(described[name], resolved, file.parent)
        services[f"{BESIDE}{name}"] = _translate_service(name, described[name], names, mounts, values)
    return ServicesBeside(
        services, values.by_variable,
        secrets={
            key: value.replace("$$", "$") for name in names
            for key, value in _environment(described[name]).items() if _SECRET.search(key)
        },
        file=file,
        builds={name: _image(name, described[name]) for name in names if "build" in described[name]},
        left_out=[
            f"{name}: {key}" for name in names for key, value in sorted(described[name].items())
            if value and key not in (*_READ, *_OF_NO_MATTER)
        ],
    )  # fmt: skip


def _resolve(file: Path) -> dict[str, Any]:
    """Return what Compose makes of a file. Raise WrongUse if it cannot read it."""
    try:
        said = HERE.run("compose", "--file", str(file), "--project-name", BESIDE_PROJECT, "--project-directory",
                        str(file.parent), "--profile", "*", "config", "--format", "json")  # fmt: skip
    except DockerError as error:
        if error.exit_code == MISSING:
            raise WrongUse("beside.compose: Docker's client is missing on this machine.", hint=typed("setup")) from None
        raise WrongUse(f"beside.compose: {file.name} cannot be read: {error}") from None
    resolved: dict[str, Any] = json.loads(said)
    return resolved


class _Values:
    """Values that no record of a run may have, each with the variable that stands for it."""

    def __init__(self) -> None:
        self.by_variable: dict[str, str] = {}

    def hide(self, value: Any) -> Any:  # noqa: ANN401  # any JSON value
        """Return a value in which variables stand for all texts that may have been made with a secret."""
        if isinstance(value, dict):
            return {key: item if key in _TIMES else self.hide(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.hide(item) for item in value]
        if not isinstance(value, str):
            return value
        name = f"LAB_BESIDE_{len(self.by_variable)}"
        self.by_variable[name] = value.replace("$$", "$")  # Compose doubles each $ in what it prints
        return f"${{{name}:-}}"


_TIMES = ("interval", "timeout", "start_period", "start_interval")


def _translate_service(
    name: str, described: Mapping[str, Any], names: Sequence[str], mounts: Iterable[tuple[str, str]], values: _Values
) -> dict[str, Any]:
    kept = {key: described[key] for key in _KEPT if described.get(key) is not None}
    if _is_disabled(kept.get("healthcheck") or {}):
        kept.pop("healthcheck", None)
    after = {other: condition for other, condition in (described.get("depends_on") or {}).items() if other in names}
    return {
        **values.hide(kept),
        "image": _image(name, described),
        "environment": {key: values.hide(value) for key, value in _environment(described).items()},
        "volumes": [
            {"type": "bind", "source": values.hide(source), "target": target, "read_only": True}
            for source, target in mounts
        ],
        "depends_on": {f"{BESIDE}{other}": condition for other, condition in after.items()},
        "mem_limit": str(_bytes(described)), "memswap_limit": str(_bytes(described)), "pids_limit": 2048,
        "networks": {"lab": {"aliases": [name]}},
    }  # fmt: skip


def _image(name: str, described: Mapping[str, Any]) -> str:
    return described.get("image") or f"{BESIDE_PROJECT}-{name}"


def _environment(described: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in (described.get("environment") or {}).items() if value}


def _is_disabled(check: Mapping[str, Any]) -> bool:
    return bool(check.get("disable")) or not check.get("test", True) or check.get("test") in ("NONE", ["NONE"])


def _bytes(described: Mapping[str, Any]) -> int:
    limits = (described.get("deploy") or {}).get("resources", {}).get("limits", {})
    return max(6 * 2**20, int(described.get("mem_limit") or limits.get("memory") or MIB * 2**20))


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
