"""Somebody's application as a workload: a layer on a server's image, and the services beside it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stampede.docker.commands import Say
from stampede.docker.redaction import mask
from stampede.servers.workload import BEFORE, BESIDE, Workload

BESIDE_PROJECT = "stampede-beside"
"""The Compose project that builds the images of the services beside an application."""
TO_OUTSIDE, TO_OUTSIDE_MIB = f"{BESIDE}to-", 64
"""How the names of services begin that pass connections on to a host outside, and the memory of each."""
FOLDER = "/opt/application"
"""Where the application's folder is in its image. The application may write there, in a volume of its trial."""
OWN = "own"
"""The service of docker-compose.yml that serves somebody's own application."""
WAY_OUT = "way-out"
"""The network of these services."""


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


@dataclass(frozen=True)
class Layer(Workload):
    """An application as a layer on an image: the folder to build, and the tag of the result.

    ``image`` is the image that exists, if the application is in an image; ``server`` is the server that this image must
    have, and its release. ``before`` is a command to run before the application is served; empty: there is none.
    ``hosts`` are the addresses of hosts outside that the application may reach, by their names and ports. ``loaded``
    says how the application is loaded alone (servers/user-service/load.py); empty: nobody knows its name.
    """

    folder: Path
    tag: str
    secrets: Mapping[str, str] = field(default_factory=dict)
    beside: ServicesBeside = field(default_factory=ServicesBeside)
    before: str = ""
    image: str = ""
    server: tuple[str, str] = ("", "")
    hosts: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    loaded: Mapping[str, Any] = field(default_factory=dict)

    def build(self, service: str, packages: Sequence[str], factors: Mapping[str, str], say: Say) -> None:  # noqa: ARG002
        """Build the image with the application and the programs that serve it."""
        from stampede.service.build import build_layer  # noqa: PLC0415  # which needs this class

        build_layer(self, service, factors, say)

    @property
    def needs_others(self) -> bool:
        """Whether the application may need services, hosts or a command before to be loaded."""
        return bool(self.beside.services or self.before or self.hosts)

    @property
    def load_files(self) -> Path | None:
        """The folder with the requests of a log; None: no log is sent again."""
        return replay if (replay := self.folder / "replay").exists() else None

    @property
    def memory_mib(self) -> dict[str, int]:
        """The memory limits of the services beside the application, in MiB."""
        limits = {name: int(service["mem_limit"]) // 2**20 for name, service in self.beside.services.items()}
        return limits | {f"{TO_OUTSIDE}{host}": TO_OUTSIDE_MIB for host in self.hosts}

    @property
    def application(self) -> Path | None:
        """The copy of the application's folder; None: an image has the application."""
        return None if self.image else self.folder / "application"

    def masked(self, said: bytes) -> bytes:
        """Return what a program said, with the names of secrets in the place of their values."""
        return mask(said, [*self.secrets.items(), *self.beside.secrets.items()])

    @property
    def variables(self) -> dict[str, str]:
        """The secrets, the values of the services beside, the addresses of hosts, and the folder of a replay."""
        secrets = {"LAB_SECRETS": quote(json.dumps(dict(self.secrets)))} if self.secrets else {}
        addresses = {
            _variable_of(place, port): address
            for place, ports in enumerate(self.hosts.values()) for port, address in ports.items()
        }  # fmt: skip
        replay = {"LAB_REPLAY_FOLDER": str(self.load_files)} if self.load_files else {}
        return secrets | dict(self.beside.values) | addresses | replay

    def extend(self, resolved: dict[str, Any], server: str) -> None:
        """Add the services beside, the ways to hosts outside and the command before; replay a log, if there is one."""
        services, networks = resolved["services"], resolved["networks"]
        box = {key: services[server][key] for key in ("dns", "labels", "logging", "oom_score_adj", "security_opt")}
        added = {name: dict(box | dict(service)) for name, service in self.beside.services.items()}
        ready = {name: _after("healthy" if "healthcheck" in service else "started") for name, service in added.items()}
        if self.hosts:
            networks[WAY_OUT] = {"labels": networks["lab"]["labels"]}
        for place, (host, ports) in enumerate(self.hosts.items()):
            added[f"{TO_OUTSIDE}{host}"] = _to_outside(services[server], place, host, [*ports])
            ready[f"{TO_OUTSIDE}{host}"] = _after("started")
        if not self.image:
            services[server] = services[server] | {"volumes": [{"type": "volume", "target": FOLDER}]}
        if self.before:
            added[BEFORE] = services[server] | {
                "entrypoint": ["python3", "/opt/stampede/before.py"], "command": [self.before.replace("$", "$$")],
                "depends_on": dict(ready), "healthcheck": {"disable": True}, "scale": 1, "networks": {"lab": {}},
            }  # fmt: skip
            ready[BEFORE] = _after("completed_successfully")
            services[server] = {key: value for key, value in services[server].items() if key != "volumes"} | {
                "volumes_from": [BEFORE]  # so that it has what that wrote
            }
        services |= added
        services[server] = services[server] | {"depends_on": services[server].get("depends_on", {}) | ready}
        if self.load_files:  # outside of the results, because a log has what no record may have
            k6 = services["k6"]
            replay = {"type": "bind", "source": "${LAB_REPLAY_FOLDER:-}", "target": "/replay", "read_only": True}
            environment = k6["environment"] | {"LAB_REPLAY": "/replay/requests.json"}
            services["k6"] = k6 | {"volumes": [*k6["volumes"], replay], "environment": environment}


def _after(condition: str) -> dict[str, Any]:
    return {"condition": f"service_{condition}", "required": True}


def _variable_of(place: int, port: int) -> str:
    return f"LAB_HOST_{place}_{port}"


def _to_outside(server: dict[str, Any], place: int, host: str, ports: Sequence[int]) -> dict[str, Any]:
    """Return the service that has the name of a host in the lab's network, and passes connections on to the host."""
    return server | {
        "entrypoint": ["python3", "/opt/stampede/forward.py"],
        "command": [f"{port}=${{{_variable_of(place, port)}:-}}" for port in ports], "depends_on": {}, "scale": 1,
        "mem_limit": str(TO_OUTSIDE_MIB * 2**20), "memswap_limit": str(TO_OUTSIDE_MIB * 2**20),
        # in the place of the check of the image, if it has one
        "healthcheck": {"test": ["CMD", "true"], "interval": "1s"},
        "networks": {"lab": {"aliases": [host]}, WAY_OUT: {}},
    }  # fmt: skip
