"""Ask the engine about the containers of a trial: their owner, their services and what they wrote."""

import os
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter

from pydantic import TypeAdapter
from python_on_whales.components.container.models import ContainerInspectResult, ContainerState
from python_on_whales.exceptions import DockerException
from python_on_whales.utils import run

from stampede.docker.cache import digest
from stampede.docker.cluster.machines import Machine

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
    """

    id: str
    service: str
    name: str
    state: ContainerState
    machine: Machine
    hostname: str
    image: str = ""

    @property
    def is_generator(self) -> bool:
        """Whether this is a load generator."""
        return is_generator(self.service)

    def execute(self, command: list[str]) -> str:
        """Run a command in this container, and return its output. Raise DockerException if that fails."""
        return str(self.machine.client.container.execute(self.id, command))


def containers_of(project: str, machines: Sequence[Machine]) -> list[ContainerInfo]:
    """Return all containers of a Compose project on these machines, including containers that have ended.

    Compose numbers the containers of a service on each machine. Over all machines, the numbers go on.
    """
    seen: list[ContainerInfo] = []
    numbers: dict[str, int] = {}
    for machine in machines:
        for service, number, container in sorted(_inspected(project, machine), key=itemgetter(0, 1)):
            assert container.id
            assert container.state
            numbers[service] = numbers.get(service, 0) + 1 if len(machines) > 1 else number
            name = f"{service}-{numbers[service]}"
            hostname = (container.config and container.config.hostname) or ""
            image = container.image or ""
            seen.append(ContainerInfo(container.id, service, name, container.state, machine, hostname, image))
    return seen


def _inspected(project: str, machine: Machine) -> Iterator[tuple[str, int, ContainerInspectResult]]:
    """Yield each container of a project on one machine, with its service and its number.

    The engine is asked once for all of them: each attribute of a ``Container`` would be a process of its own.
    """
    found = machine.client.container.list(all=True, filters=[("label", f"{PROJECT}={project}"), ("label", NUMBER)])
    if not found:
        return
    said = run([*machine.docker, "container", "inspect", *(container.id for container in found)])
    for container in _INSPECTED.validate_json(str(said)):
        labels = (container.config and container.config.labels) or {}
        yield labels[SERVICE], int(labels[NUMBER]), container


_INSPECTED = TypeAdapter(list[ContainerInspectResult])


def is_generator(service: str) -> bool:
    """Whether a service is a load generator: k6, a further k6 container such as k6-2, or the client."""
    return service.partition("-")[0] in GENERATORS


def output_of(container: ContainerInfo, *, with_times: bool = False) -> bytes:
    """Return what a container wrote to standard output and standard error; the engine can put a time to each line."""
    options = ["--timestamps"] if with_times else []
    command = [*container.machine.docker, "container", "logs", *options, container.id]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise DockerException(command, done.returncode, stderr=done.stdout)
    return done.stdout


def first_line_of(container: ContainerInfo) -> bytes:
    """Return the first line that the engine has of what a container wrote, with its time; empty: there is none."""
    command = [*container.machine.docker, "container", "logs", "--timestamps", container.id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as asked:
        assert asked.stdout
        line = asked.stdout.readline()
        asked.terminate()
    return line


@contextmanager
def suppress_docker_errors() -> Iterator[None]:
    """Go on if the engine refuses or does not answer. The next command removes what could not be removed."""
    try:
        yield
    except DockerException:
        time.sleep(0.2)


def overlay_name(project: str) -> str:
    """Return the name of the network that the containers of a trial on several machines share.

    A swarm allows at most 63 characters, which the name of a project may exceed.
    """
    return f"stampede-{digest(project.encode())}"
