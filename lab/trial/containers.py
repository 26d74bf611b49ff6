"""The containers of a trial as the engine knows them: whose they are, what each is for, and what it wrote."""

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
"""The services that ask, and end by themselves."""

LabelFilter = list[tuple[Literal["label"], str]]


def owner() -> str:
    """Return who starts containers here: this user on this machine, also when several share an engine."""
    return f"{platform.node()}-{os.getuid()}"


def containers_of(project: str) -> list[Container]:
    """Return all containers of a Compose project, those that have ended too."""
    return DockerClient().container.list(all=True, filters=[("label", f"{PROJECT}={project}")])


def labels_of(container: Container) -> dict[str, str]:
    """Return the labels of a container, SERVICE and PROJECT among them."""
    return container.config.labels or {}


def service_of(container: Container) -> str:
    """Return the service of a container in docker-compose.yml, or what Compose made of it for one of several k6."""
    return labels_of(container)[SERVICE]


def name_of(container: Container) -> str:
    """Return the name of a container within its project, e.g. nginx-1."""
    return f"{service_of(container)}-{labels_of(container)['com.docker.compose.container-number']}"


def is_generator(service: str) -> bool:
    """Whether a service is a load generator, one of several k6 too."""
    return service.partition("-")[0] in GENERATORS


def output_of(container: Container) -> bytes:
    """Return what a container wrote, on both streams."""
    lines = DockerClient().container.logs(container, stream=True)
    return b"".join(line for _, line in cast("Iterable[tuple[str, bytes]]", lines))


@contextmanager
def tolerating_docker_errors() -> Iterator[None]:
    """Go on when the engine refuses or is gone: what cannot be removed now is removed by the next command."""
    try:
        yield
    except DockerException:
        time.sleep(0.2)
