"""Ask the engine about the containers of a trial: their owner, their services and what they wrote."""

import os
import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, cast

from python_on_whales import Container, DockerClient
from python_on_whales.exceptions import DockerException

OWNER_LABEL = "stampede.owner"
SERVICE = "com.docker.compose.service"
PROJECT = "com.docker.compose.project"
GENERATORS = ("k6", "client")
"""The services that send requests, and that end by themselves."""

LabelFilter = list[tuple[Literal["label"], str]]


def owner() -> str:
    """Return the owner of this lab's containers, made of machine and user, because several may share an engine."""
    return f"{platform.node()}-{os.getuid()}"


def containers_of(project: str) -> list[Container]:
    """Return all containers of a Compose project, including containers that have ended."""
    return DockerClient().container.list(all=True, filters=[("label", f"{PROJECT}={project}")])


def labels_of(container: Container) -> dict[str, str]:
    """Return the labels of a container, which include SERVICE and PROJECT."""
    return container.config.labels or {}


def service_of(container: Container) -> str:
    """Return the service of a container: its name in docker-compose.yml, or e.g. k6-2 for a further k6 container."""
    return labels_of(container)[SERVICE]


def name_of(container: Container) -> str:
    """Return the name of a container within its project, e.g. nginx-1."""
    return f"{service_of(container)}-{labels_of(container)['com.docker.compose.container-number']}"


def is_generator(service: str) -> bool:
    """Whether a service is a load generator: k6, a further k6 container such as k6-2, or the client."""
    return service.partition("-")[0] in GENERATORS


def output_of(container: Container) -> bytes:
    """Return what a container wrote to standard output and standard error."""
    lines = DockerClient().container.logs(container, stream=True)
    return b"".join(line for _, line in cast("Iterable[tuple[str, bytes]]", lines))


@contextmanager
def tolerating_docker_errors() -> Iterator[None]:
    """Go on if the engine refuses or does not answer. The next command removes what could not be removed."""
    try:
        yield
    except DockerException:
        time.sleep(0.2)
