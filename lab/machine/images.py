"""The images: two base images, pulled or built as stand-ins, and the lab's own, built on them when a file changed."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from python_on_whales import DockerClient
from python_on_whales.exceptions import DockerException, NoSuchImage

from lab.errors import LabError
from lab.machine.engine import Say, ca_bundle, is_debian_root, last_line, run_command
from lab.machine.inputs import inputs_digest
from lab.paths import COMPOSE_FILE, TOOLS
from lab.plan import Plan
from lab.services import image_of

DEBIAN = "debian:trixie-slim"
K6_RELEASE = "1.8.1"
K6 = f"grafana/k6:{K6_RELEASE}"
BASE_IMAGES: dict[str, tuple[str, ...]] = {DEBIAN: (), K6: ("k6",)}
"""What everything else is built on, or used as it is published, each with the packages that it is for."""
PINNED = {line.split("@")[0]: line for line in (TOOLS / "base-images.txt").read_text(encoding="utf-8").split()}
"""What is pulled for each base image: its name with the digest of its contents. `make lock` pins anew."""
STAND_IN = "stampede.stand-in"
INPUTS = "stampede.inputs"


@dataclass(frozen=True)
class OwnImage:
    """An image that the lab builds: its service, the factors (LAB_…) that Compose builds it with, and its packages.

    ``packages`` names what the image is for, as provenance finds it; Python's own packages are called ``python/…``.
    """

    service: str
    packages: tuple[str, ...]
    factors: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What docker-compose.yml calls it, e.g. stampede/gunicorn:27.0.1."""
        return image_of(self.service, self.factors)


BESIDE_SERVERS = {
    "nginx": OwnImage("nginx", ("nginx",)),
    "haproxy": OwnImage("haproxy", ("haproxy",)),
    "mariadb": OwnImage("mariadb", ("mariadb-server",)),
    "api": OwnImage("api", ("python3",)),
    "client": OwnImage("client", ("python3",)),
}
"""The lab's own images beside those of servers, by their service."""


def images_of(plan: Plan) -> list[OwnImage]:
    """Return the lab's own images that a plan needs, each once."""
    images: dict[str, OwnImage] = {}
    for trial in plan.trials:
        server = trial.variant
        of_server = OwnImage(server.service, ("python3", *server.packages), server.factors())
        known = images.get(of_server.name, of_server)
        packages = tuple(dict.fromkeys((*known.packages, *of_server.packages)))
        images[of_server.name] = replace(known, packages=packages)
        for service in trial.services_beside:
            images[BESIDE_SERVERS[service].name] = BESIDE_SERVERS[service]
    return list(images.values())


def build_images(images: Iterable[OwnImage], say: Say) -> None:
    """Build the lab's own images that are missing, or whose own files or base image have changed."""
    base = DockerClient().image.inspect(DEBIAN).id
    for image in images:
        digest = inputs_digest(image.service, image.factors, base)
        if label(image.name, INPUTS) == digest:
            continue
        say(f"Building {image.name} …")
        began = time.monotonic()
        environment = os.environ | image.factors | {"LAB_INPUTS": digest, "LAB_CA_BUNDLE": ca_bundle()}
        command = ["docker", "compose", "--file", str(COMPOSE_FILE), "--profile", "*", "build", image.service]
        run_command(command, f"The image {image.name} could not be built.", environment)
        say(f"Built {image.name} in {time.monotonic() - began:.0f} s.")


def make_base_images_ready(say: Say) -> None:
    """Pull the base images that are missing, or build stand-ins where no registry has them for us."""
    client = DockerClient()
    for image in BASE_IMAGES:
        if client.image.exists(image):
            continue
        say(f"Pulling {image} …")
        began = time.monotonic()
        try:
            client.image.pull(PINNED[image], quiet=True)
            client.image.tag(PINNED[image], image)  # the name that FROM and Compose know, as a stand-in has it
        except DockerException as error:
            say(f"No registry has it for us ({last_line(error)}); building a stand-in from package registries …")
            _build_stand_in(image)
        say(f"{image} is there after {time.monotonic() - began:.0f} s.")


def _build_stand_in(image: str) -> None:
    problem = f"The image {image} can neither be pulled nor built here."
    if image == DEBIAN:
        if not is_debian_root():
            raise LabError(
                problem,
                hint=f"Where a registry is reached: docker pull {PINNED[image]} && docker tag {PINNED[image]} {image} "
                f"&& docker save {image} --output image.tar\nHere: docker load --input image.tar",
            )
        run_command([str(TOOLS / "build-debian.sh"), image], problem)
        return
    run_command(
        ["docker", "buildx", "build", "--load", "--tag", image, "--build-arg", f"K6_RELEASE={K6_RELEASE}",
         "--secret", f"id=ca_bundle,src={ca_bundle()}", "--file", str(TOOLS / "k6.Dockerfile"), str(TOOLS)],
        problem,
    )  # fmt: skip


def origin(image: str) -> str:
    """Return where a base image came from, in words."""
    if stand_in := label(image, STAND_IN):
        return f"stand-in from the {stand_in}"
    pinned = PINNED[image].split("@")[1]
    return "pulled as pinned" if any(one.endswith(f"@{pinned}") for one in digests(image)) else "not the pinned one"


def digests(image: str) -> list[str]:
    """Return the digests under which a registry gave us an image; none of a stand-in."""
    return [] if label(image, STAND_IN) else DockerClient().image.inspect(image).repo_digests or []


def label(image: str, name: str) -> str:
    """Return a label of an image; empty when either is missing."""
    try:
        return (DockerClient().image.inspect(image).config.labels or {}).get(name, "")
    except NoSuchImage:
        return ""
