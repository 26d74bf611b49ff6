"""Ask the engine about the containers of a trial: their owner, their services and what they wrote."""

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter
from python_on_whales import Container, DockerClient
from python_on_whales.components.container.models import ContainerInspectResult, ContainerState
from python_on_whales.exceptions import DockerException
from python_on_whales.utils import run

OWNER_LABEL = "stampede.owner"
SERVICE = "com.docker.compose.service"
PROJECT = "com.docker.compose.project"
GENERATORS = ("k6", "client")
"""The services that send requests, and that end by themselves."""

LabelFilter = list[tuple[Literal["label"], str]]


def owner() -> str:
    """Return the owner of this lab's containers, made of machine and user, because several may share an engine."""
    return f"{platform.node()}-{os.getuid()}"


@dataclass(frozen=True)
class Seen:
    """A container as the engine described it at one moment.

    ``service`` is its name in docker-compose.yml, or e.g. k6-2 for a further k6 container. ``name`` is its name within
    its project, e.g. nginx-1.
    """

    id: str
    service: str
    name: str
    state: ContainerState

    @property
    def is_generator(self) -> bool:
        """Whether this is a load generator."""
        return is_generator(self.service)


def containers_of(project: str) -> list[Seen]:
    """Return all containers of a Compose project, including containers that have ended.

    The engine is asked once for all of them: each attribute of a ``Container`` would be a process of its own.
    """
    client = DockerClient()
    found = client.container.list(all=True, filters=[("label", f"{PROJECT}={project}")])
    if not found:
        return []
    said = run([*client.client_config.docker_cmd, "container", "inspect", *(one.id for one in found)])
    return [_seen(each) for each in _INSPECTED.validate_json(str(said))]


def _seen(one: ContainerInspectResult) -> Seen:
    assert one.id
    assert one.state
    labels = (one.config and one.config.labels) or {}
    service = labels[SERVICE]
    return Seen(one.id, service, f"{service}-{labels['com.docker.compose.container-number']}", one.state)


_INSPECTED = TypeAdapter(list[ContainerInspectResult])


def labels_of(container: Container) -> dict[str, str]:
    """Return the labels of a container, which include SERVICE and PROJECT."""
    return container.config.labels or {}


def is_generator(service: str) -> bool:
    """Whether a service is a load generator: k6, a further k6 container such as k6-2, or the client."""
    return service.partition("-")[0] in GENERATORS


def output_of(container: Seen) -> bytes:
    """Return what a container wrote to standard output and standard error."""
    command = ["docker", "container", "logs", container.id]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise DockerException(command, done.returncode, stderr=done.stdout)
    return done.stdout


@contextmanager
def tolerating_docker_errors() -> Iterator[None]:
    """Go on if the engine refuses or does not answer. The next command removes what could not be removed."""
    try:
        yield
    except DockerException:
        time.sleep(0.2)
