"""Ask the engine about the containers of a trial: their owner, their services and what they wrote."""

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass

from stampede.docker.client import Machine

OWNER_LABEL = "stampede.owner"
SERVICE = "com.docker.compose.service"
PROJECT = "com.docker.compose.project"
NUMBER = "com.docker.compose.container-number"
"""The label of containers that Compose has started; images that Compose has built have the other labels, too."""
GENERATORS = ("k6", "client")
"""The services that send requests, and that end by themselves."""

BOX = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534",
       "--pids-limit", "16", "--memory", "64m", "--pull", "never")  # fmt: skip
"""The box of the lab's own small containers."""


def digest(content: bytes) -> str:
    """Return a digest that is short enough for the name of a file."""
    return hashlib.sha256(content).hexdigest()[:16]


def owner() -> str:
    """Return the owner of this lab's containers, made of machine and user, because several may share an engine."""
    return f"{platform.node()}-{os.getuid()}"


def label_options(project: str) -> list[str]:
    """Return the options for Docker's commands that label what they make as this lab's, and as a project's."""
    return ["--label", f"{OWNER_LABEL}={owner()}", "--label", f"{PROJECT}={project}"]


@dataclass(frozen=True)
class ContainerInfo:
    """A container as the engine described it at one moment.

    ``service`` is its name in docker-compose.yml, or e.g. k6-2 for a further k6 container. ``name`` is its name within
    its trial, e.g. nginx-1. ``machine`` is its machine, ``hostname`` its host name, and ``image`` the id of its image.
    ``health`` and ``probed`` are the state of its health check and what this last said; empty: it has none.
    """

    id: str
    service: str
    name: str
    machine: Machine
    status: str = "running"
    exit_code: int = 0
    out_of_memory: bool = False
    health: str = ""
    probed: str = ""
    hostname: str = ""
    image: str = ""

    async def execute(self, *command: str, stdin: bytes = b"", within_s: float = 120) -> str:
        """Run a command in this container, and return its output. Raise DockerError if that fails."""
        words = ["exec", *(["--interactive"] if stdin else []), self.id, *command]
        said = await self.machine.call(*words, stdin=stdin, within_s=within_s)
        return said.decode(errors="replace").rstrip("\n")

    async def output(self, *, with_times: bool = False) -> bytes:
        """Return what it wrote to standard output and standard error; the engine can put a time to each line."""
        options = ["--timestamps"] if with_times else []
        return await self.machine.call("container", "logs", *options, self.id, merged=True)


async def containers_of(project: str, machines: Sequence[Machine]) -> list[ContainerInfo]:
    """Return all containers of a Compose project on these machines, including containers that have ended.

    Compose numbers the containers of a service on each machine. Over all machines, the numbers go on.
    """
    seen: list[ContainerInfo] = []
    numbers: dict[str, int] = {}
    for machine in machines:
        labelled = ["--filter", f"label={PROJECT}={project}", "--filter", f"label={NUMBER}"]
        found = await machine.call("container", "ls", "--all", "--no-trunc", "--quiet", *labelled)
        if not found:
            continue
        inspected = json.loads(await machine.call("container", "inspect", *found.decode().split()))
        labels = [each["Config"]["Labels"] for each in inspected]
        order = sorted(range(len(inspected)), key=lambda at: (labels[at][SERVICE], int(labels[at][NUMBER])))
        for each, label in ((inspected[at], labels[at]) for at in order):
            service = label[SERVICE]
            numbers[service] = numbers.get(service, 0) + 1 if len(machines) > 1 else int(label[NUMBER])
            state, health = each["State"], each["State"].get("Health") or {}
            probed = (health.get("Log") or [{}])[-1].get("Output") or ""
            seen.append(ContainerInfo(
                each["Id"], service, f"{service}-{numbers[service]}", machine, state["Status"], state["ExitCode"],
                state["OOMKilled"], health.get("Status", ""), probed.strip(), each["Config"]["Hostname"], each["Image"],
            ))  # fmt: skip
    return seen


def is_generator(service: str) -> bool:
    """Whether a service is a load generator: k6, a further k6 container such as k6-2, or the client."""
    return service.partition("-")[0] in GENERATORS


def overlay_name(project: str) -> str:
    """Return the name of the network that the containers of a trial on several machines share.

    A swarm allows at most 63 characters, which the name of a project may exceed.
    """
    return f"stampede-{digest(project.encode())}"
