"""The services that somebody's own application needs beside it, such as a database, from a Compose file of its own."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from python_on_whales import DockerClient
from python_on_whales.client_config import ClientNotFoundError
from python_on_whales.exceptions import DockerException

from lab.apps.service.build import BESIDE_PROJECT
from lab.apps.service.layer import ServicesBeside
from lab.engine.commands import last_line
from lab.errors import WrongUse
from lab.servers.workload import BESIDE

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
    try:
        resolved = DockerClient(
            compose_files=[file], compose_project_name=BESIDE_PROJECT, compose_project_directory=file.parent,
            compose_profiles=["*"],
        ).compose.config(return_json=True)  # fmt: skip
    except ClientNotFoundError:
        raise WrongUse("beside.compose: Docker's client is missing on this machine.", hint="make setup") from None
    except DockerException as error:
        raise WrongUse(f"beside.compose: {file.name} cannot be read: {last_line(error)}") from None
    there: dict[str, Any] = resolved["services"]
    values: dict[str, str] = {}

    def variable(value: str) -> str:
        """Return a variable for a value that no record of a run may have. Compose doubles each $ in what it prints."""
        name = f"LAB_BESIDE_{len(values)}"
        values[name] = value.replace("$$", "$")
        return f"${{{name}:-}}"

    services: dict[str, dict[str, Any]] = {}
    secrets: dict[str, str] = {}
    builds: dict[str, str] = {}
    left_out: list[str] = []
    for name in names:
        if name not in there:
            raise WrongUse(f"beside.services: {file.name} has no service {name}; it has {', '.join(sorted(there))}.")
        described = there[name]
        environment = {key: str(value) for key, value in (described.get("environment") or {}).items() if value}
        secrets |= {key: value.replace("$$", "$") for key, value in environment.items() if _SECRET.search(key)}
        image = described.get("image") or f"{BESIDE_PROJECT}-{name}"
        if "build" in described:
            builds[name] = image
        kept = {key: described[key] for key in _KEPT if described.get(key) is not None}
        if _is_disabled(kept.get("healthcheck") or {}):
            kept.pop("healthcheck", None)
        mounts = [*_files(described, resolved, file.parent)]
        services[f"{BESIDE}{name}"] = {
            **_hidden(kept, variable),
            "image": image,
            "environment": {key: variable(value) for key, value in environment.items()},
            "volumes": [
                {"type": "bind", "source": variable(source), "target": target, "read_only": True}
                for source, target in mounts
            ],
            "depends_on": {
                f"{BESIDE}{other}": one for other, one in (described.get("depends_on") or {}).items() if other in names
            },
            "mem_limit": str(_bytes(described)), "memswap_limit": str(_bytes(described)), "pids_limit": 2048,
            "networks": {"lab": {"aliases": [name]}},
        }  # fmt: skip
        unknown = sorted(key for key, value in described.items() if value and key not in (*_READ, *_OF_NO_MATTER))
        left_out += [f"{name}: {key}" for key in unknown]
    return ServicesBeside(services, values, secrets, file, builds, left_out)


def _is_disabled(check: Mapping[str, Any]) -> bool:
    return bool(check.get("disable")) or not check.get("test", True) or check.get("test") in ("NONE", ["NONE"])


def _hidden(value: Any, variable: Callable[[str], str]) -> Any:  # noqa: ANN401  # any JSON value
    """Return a value in which variables stand for all texts that may have been made with a secret."""
    if isinstance(value, dict):
        return {key: one if key in ("interval", "timeout", "start_period", "start_interval") else _hidden(one, variable)
                for key, one in value.items()}  # fmt: skip
    if isinstance(value, list):
        return [_hidden(one, variable) for one in value]
    return variable(value) if isinstance(value, str) else value


def _bytes(described: Mapping[str, Any]) -> int:
    """Return the memory limit of a service in bytes."""
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
        for one in described.get(kind) or ():
            if source := resolved.get(kind, {}).get(one["source"], {}).get("file"):
                target = str(one.get("target") or one["source"])
                yield source, target if target.startswith("/") else place + target
